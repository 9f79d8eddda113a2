package testdouble

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

// unused is how long a library stays in the cache that nobody takes.
const unused = 7 * 24 * time.Hour

// cacheDir is where libraries are kept for other packages' tests and for the next run,
// or nothing if there is no such place.
func cacheDir() string {
	base := os.Getenv("KVBENCH_CACHE")
	if base == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return ""
		}
		base = filepath.Join(user, "kvbench")
	}
	return filepath.Join(base, "double")
}

// cacheName names a library after all that it follows from: the compiler, what it is told
// and the sources in folder.
func cacheName(library string, command []string, folder string) (string, error) {
	version, err := exec.Command(command[0], "--version").Output()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s %q\n%s", runtime.GOARCH, command, version)
	err = fs.WalkDir(sources, folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := sources.ReadFile(name)
		fmt.Fprintf(h, "%s %d\n%s", name, len(content), content)
		return err
	})
	return fmt.Sprintf("%x-%s", h.Sum(nil)[:16], library), err
}

// fromCache copies a library from the cache to file and reports whether it was there.
func fromCache(name, file string) bool {
	dir := cacheDir()
	if dir == "" {
		return false
	}
	kept := filepath.Join(dir, name)
	content, err := os.ReadFile(kept)
	if err != nil || !bytes.HasPrefix(content, []byte("\x7fELF")) {
		return false
	}
	now := time.Now()
	os.Chtimes(kept, now, now) // fails if somebody else owns it, who then keeps its time
	return os.WriteFile(file, content, 0o755) == nil
}

// toCache keeps a library, whole or not at all, and removes what nobody has used for long.
// The tests do without it, so what fails is left out.
func toCache(name, file string) error {
	dir := cacheDir()
	if dir == "" {
		return errors.New("no cache")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	aside, err := os.CreateTemp(dir, "new")
	if err != nil {
		return err
	}
	_, err = aside.Write(content)
	if err = errors.Join(err, aside.Sync(), aside.Close()); err == nil {
		err = os.Rename(aside.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		os.Remove(aside.Name())
		return err
	}
	return prune(dir, time.Now().Add(-unused))
}

// prune removes the files of a directory that were not used since a time.
func prune(dir string, since time.Time) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.ModTime().Before(since) {
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	return nil
}
