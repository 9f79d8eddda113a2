package testdouble

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// compiler puts a compiler in place that writes what it is told into the library, and
// returns a function that counts its runs.
func compiler(t *testing.T) (runs func() int) {
	t.Helper()
	dir := t.TempDir()
	script := `#!/bin/sh
case $1 in --version) echo cc of a test; exit ;; esac
echo >>` + dir + `/runs
while [ "$1" != -o ]; do said="$said $1"; shift; done
printf '\177ELF %s' "$said" >"$2"
`
	if err := os.WriteFile(filepath.Join(dir, "cc"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv(selector, "") // with "none" there is no double
	return func() int {
		content, err := os.ReadFile(filepath.Join(dir, "runs"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return len(content)
	}
}

// built is what Build makes with a cache directory.
func built(t *testing.T, cache string, old bool) string {
	t.Helper()
	t.Setenv("KVBENCH_CACHE", cache)
	dir := t.TempDir()
	if err := Build(dir, old); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, name := range []string{"libcuda.so.1", "libnvidia-ml.so.1"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(content))
	}
	return strings.Join(all, "\n")
}

// TestCache: each library is compiled once, and the old ones are others.
func TestCache(t *testing.T) {
	runs, cache := compiler(t), t.TempDir()
	first := built(t, cache, false)
	if again := built(t, cache, false); again != first || runs() != 2 {
		t.Errorf("%q and then %q in %d runs of the compiler, want the same in 2", first, again, runs())
	}
	old := built(t, cache, true)
	if again := built(t, cache, true); again != old || runs() != 4 || !strings.Contains(old, "-DOLD_DRIVER") || strings.Contains(first, "-DOLD_DRIVER") {
		t.Errorf("old: %q and then %q after %d runs of the compiler, want the same after 4", old, again, runs())
	}
}

// TestCacheIsNoUse has a cache that cannot be, and one that holds what is no library.
func TestCacheIsNoUse(t *testing.T) {
	runs := compiler(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	built(t, file, false)
	if built(t, file, false); runs() != 4 {
		t.Errorf("without a cache: %d runs of the compiler, want 4", runs())
	}
	cache := t.TempDir()
	want := built(t, cache, false)
	kept, err := filepath.Glob(filepath.Join(cache, "double", "*"))
	if err != nil || len(kept) != 2 {
		t.Fatalf("%q in the cache, %v; want two libraries", kept, err)
	}
	for _, name := range kept {
		if err := os.Truncate(name, 0); err != nil {
			t.Fatal(err)
		}
	}
	if got := built(t, cache, false); got != want || runs() != 8 {
		t.Errorf("with empty files in the cache: %q after %d runs, want %q after 8", got, runs(), want)
	}
}

func TestCacheForgets(t *testing.T) {
	dir := t.TempDir()
	long := time.Now().Add(-unused - time.Hour)
	for name, used := range map[string]time.Time{"old": long, "new": time.Now()} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(file, nil, 0o644), os.Chtimes(file, used, used)); err != nil {
			t.Fatal(err)
		}
	}
	if err := prune(dir, time.Now().Add(-unused)); err != nil {
		t.Fatal(err)
	}
	if all, _ := filepath.Glob(filepath.Join(dir, "*")); len(all) != 1 || filepath.Base(all[0]) != "new" {
		t.Errorf("%q stayed", all)
	}
}
