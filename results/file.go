package results

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrRecord is returned when a file is not a readable run record.
var ErrRecord = errors.New("not a kvbench run record")

// maxRecord bounds the bytes that Decode reads. A record of a thousand cells is far
// smaller.
const maxRecord = 256 << 20

// File is a place for a record. Create has tested that it is writable, so an unwritable
// path fails before the run, not after it.
type File struct {
	path string      // with symbolic links followed
	mode fs.FileMode // of the existing file; 0 for a new file
}

// Create checks that a record can be written to path, and leaves an existing file
// unchanged. Only a regular file, or a new one, can hold a record.
func Create(path string) (*File, error) {
	f := &File{path: path}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		f.path = target
	} else if _, errThere := os.Stat(path); errThere != nil && isLink(path) { // a pipe's link in /proc leads there under no name
		return nil, fmt.Errorf("write result: %s is a link to nowhere; choose another --out", path)
	}
	switch info, err := os.Stat(f.path); {
	case err == nil && info.IsDir():
		return nil, fmt.Errorf("write result: %s is a directory; give a file name", path)
	case err == nil && !info.Mode().IsRegular():
		return nil, fmt.Errorf("write result: %s is no regular file; choose another --out, or --format json for the table", path)
	case err == nil:
		f.mode = info.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("write result: %w; choose another --out", err)
	}
	t, err := f.temporary()
	if err != nil {
		return nil, fmt.Errorf("write result %s: %w; choose another --out", path, err)
	}
	t.Close()
	if err := os.Remove(t.Name()); err != nil {
		return nil, fmt.Errorf("write result %s: %w; choose another --out", path, err)
	}
	return f, nil
}

func isLink(path string) bool {
	_, err := os.Readlink(path)
	return err == nil
}

// temporary makes a new file beside the record's place, with the record's mode.
func (f *File) temporary() (*os.File, error) {
	// The name is random, because a process number is 1 in most containers.
	name := fmt.Sprintf(".%s.%s.tmp", filepath.Base(f.path), rand.Text()[:10])
	// The process's umask applies, as for any new file.
	t, err := os.OpenFile(filepath.Join(filepath.Dir(f.path), name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil || f.mode == 0 {
		return t, err
	}
	if err := t.Chmod(f.mode); err != nil {
		t.Close()
		os.Remove(t.Name())
		return nil, err
	}
	return t, nil
}

// Write stores the whole record or, on an error, none of it, so that a reader never sees
// half a record.
func (f *File) Write(r *Run) error {
	b, err := Encode(r)
	if err != nil {
		return err
	}
	return f.replace(b)
}

// replace puts b in the file's place atomically.
func (f *File) replace(b []byte) (err error) {
	t, err := f.temporary()
	if err != nil {
		return fmt.Errorf("write result %s: %w", f.path, err)
	}
	defer func() {
		if err != nil {
			t.Close()
			os.Remove(t.Name())
			err = fmt.Errorf("write result %s: %w", f.path, err)
		}
	}()
	if _, err := t.Write(b); err != nil {
		return err
	}
	if err := t.Sync(); err != nil {
		return err
	}
	if err := t.Close(); err != nil {
		return err
	}
	return os.Rename(t.Name(), f.path)
}

// Encode writes a record as indented JSON.
func Encode(r *Run) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return nil, fmt.Errorf("encode result: %w", err)
	}
	return b.Bytes(), nil
}

// Decode reads a record and checks its schema and sizes. It returns ErrRecord, wrapped, if
// they are invalid.
func Decode(r io.Reader) (*Run, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxRecord+1))
	if err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	if len(b) > maxRecord {
		return nil, fmt.Errorf("read result: longer than %d bytes: %w", maxRecord, ErrRecord)
	}
	var run Run
	if err := json.Unmarshal(b, &run); err != nil {
		return nil, fmt.Errorf("read result: %w: %w", ErrRecord, err)
	}
	if run.Schema != Schema {
		return nil, fmt.Errorf("read result: schema %.40q, want %q: %w", run.Schema, Schema, ErrRecord)
	}
	for i, c := range run.Cells {
		if c.ContextTokens < 1 || c.Bytes < 0 || c.Layers < 0 || c.Descriptors < 0 {
			return nil, fmt.Errorf("read result: cell %d has no possible sizes: %w", i, ErrRecord)
		}
	}
	return &run, nil
}

// ReadFile reads a record from a file.
func ReadFile(path string) (*Run, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	defer f.Close()
	run, err := Decode(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return run, nil
}
