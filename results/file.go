package results

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// ErrRecord is returned when a file is not a run record that can be read.
var ErrRecord = errors.New("not a kvbench run record")

// maxRecord bounds what Read takes: a record of a thousand cells is far smaller.
const maxRecord = 256 << 20

// File is a place for a record that has been tried: that it can be written is
// known before the run, not after it.
type File struct{ path string }

// Create checks that a record can be written to path, without touching what is there.
func Create(path string) (*File, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, fmt.Errorf("write result: %s is a directory; give a file name", path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".kvbench-*")
	if err != nil {
		return nil, fmt.Errorf("write result: %w; choose another --out", err)
	}
	f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return nil, fmt.Errorf("write result: %w; choose another --out", err)
	}
	return &File{path}, nil
}

// Write stores the record: the whole of it or, on an error, none, so that a
// reader never sees half a record.
func (f *File) Write(r *Run) error {
	b, err := Encode(r)
	if err != nil {
		return err
	}
	return writeAtomically(f.path, b)
}

func writeAtomically(path string, b []byte) (err error) {
	t, err := os.CreateTemp(filepath.Dir(path), ".kvbench-*")
	if err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	defer func() {
		if err != nil {
			t.Close()
			os.Remove(t.Name())
			err = fmt.Errorf("write result %s: %w", path, err)
		}
	}()
	if err := t.Chmod(0o644); err != nil {
		return err
	}
	if _, err := t.Write(b); err != nil {
		return err
	}
	if err := t.Sync(); err != nil {
		return err
	}
	if err := t.Close(); err != nil {
		return err
	}
	return os.Rename(t.Name(), path)
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

// Decode reads a record and checks that it is one.
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
