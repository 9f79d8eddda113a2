package hostinfo

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// tree is the root of the file system that facts are read from: "/", or in a test the
// layout of another host.
type tree string

// host is this machine's tree.
const host tree = "/"

func (t tree) path(elem ...string) string {
	return filepath.Join(append([]string{string(t)}, elem...)...)
}

// text returns a file's content without surrounding white space; false if it cannot be
// read.
func (t tree) text(elem ...string) (string, bool) {
	b, err := os.ReadFile(t.path(elem...))
	return strings.TrimSpace(string(b)), err == nil
}

// word is text, empty if the file cannot be read.
func (t tree) word(elem ...string) string {
	s, _ := t.text(elem...)
	return s
}

// number reads a file that holds one decimal number; false if it does not.
func (t tree) number(elem ...string) (int64, bool) {
	s, ok := t.text(elem...)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// names lists a directory: numbers by value, then the rest by name. It is empty if the
// directory cannot be read.
func (t tree) names(elem ...string) []string {
	entries, err := os.ReadDir(t.path(elem...))
	if err != nil {
		return nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	slices.SortFunc(names, compareNames)
	return names
}

// compareNames orders eth2 before eth10.
func compareNames(a, b string) int {
	stemA, numberA := splitNumber(a)
	stemB, numberB := splitNumber(b)
	if c := strings.Compare(stemA, stemB); c != 0 {
		return c
	}
	if c := numberA - numberB; c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

// splitNumber splits the number, of up to 9 digits, off the end of a name; -1 if there is
// none.
func splitNumber(s string) (stem string, number int) {
	i := len(s)
	for i > 0 && len(s)-i < 9 && s[i-1] >= '0' && s[i-1] <= '9' {
		i--
	}
	n, err := strconv.Atoi(s[i:])
	if err != nil {
		return s, -1
	}
	return s[:i], n
}

// linkBase returns the last element of a symbolic link's target, which is how sysfs names a
// driver or a bus; empty if there is no such link.
func (t tree) linkBase(elem ...string) string {
	to, err := os.Readlink(t.path(elem...))
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

// resolve returns a path with its links followed; empty if it leads nowhere.
func (t tree) resolve(elem ...string) string {
	to, err := filepath.EvalSymlinks(t.path(elem...))
	if err != nil {
		return ""
	}
	return to
}

// missing returns the error of listing a directory; nil if it can be listed.
func (t tree) missing(elem ...string) error {
	_, err := os.ReadDir(t.path(elem...))
	return err
}

func (t tree) exists(elem ...string) bool {
	_, err := os.Stat(t.path(elem...))
	return err == nil
}

// value returns the text after the first "name :" of a file; empty if there is none.
func (t tree) value(name string, elem ...string) string {
	content, _ := t.text(elem...)
	for line := range strings.Lines(content) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// kibibytes reads a size in the form of /proc/meminfo, "24684092 kB", in bytes; 0 if it has
// another form.
func kibibytes(s string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(s, " kB"), 10, 64)
	if err != nil || n < 0 || n > 1<<52 {
		return 0
	}
	return n << 10
}
