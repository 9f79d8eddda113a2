package rdma

import (
	"os"
	"strings"
	"testing"
)

// says checks that an error has words in it.
func says(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one that says %q", words)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q:\n%v", w, err)
		}
	}
}

// unset takes a variable out of the environment for the time of a test.
func unset(t *testing.T, name string) {
	t.Helper()
	t.Setenv(name, "") // restores it
	os.Unsetenv(name)
}
