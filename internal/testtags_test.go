package internal

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNamesFollowTags: scripts/test-timing finds its tests by the names of files, and a
// reader finds those of the long run so. A file named otherwise would run nowhere.
func TestNamesFollowTags(t *testing.T) {
	var files []string
	for _, p := range list(t, "linux") {
		more, err := filepath.Glob(filepath.Join(p.Dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	if len(files) < 100 {
		t.Fatalf("%d test files", len(files))
	}
	tagged := 0
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		timing, full := tagsOf(string(source))
		want := ""
		switch {
		case full: // also with timing: the long run's pass over shaped links
			want = "_full_test.go"
		case timing:
			want = "_timing_test.go"
		}
		if want != "" {
			tagged++
		}
		named := strings.HasSuffix(file, "_timing_test.go") || strings.HasSuffix(file, "_full_test.go")
		if named != (want != "") || !strings.HasSuffix(file, want) {
			t.Errorf("%s: build tags timing %v, full %v", file, timing, full)
		}
	}
	if tagged < 5 {
		t.Errorf("%d files with a tag were found", tagged)
	}
}

// tagsOf reports whether a file's build constraint requires the tag timing or full.
func tagsOf(source string) (timing, full bool) {
	for line := range strings.Lines(source) {
		if tags, ok := strings.CutPrefix(line, "//go:build "); ok {
			list := strings.Fields(tags)
			return slices.Contains(list, "timing"), slices.Contains(list, "full")
		}
	}
	return false, false
}
