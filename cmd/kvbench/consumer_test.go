package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestQuoted: a shell reads back what was quoted.
func TestQuoted(t *testing.T) {
	for word, want := range map[string]string{
		"SXZZDQFDXJ": "SXZZDQFDXJ", "a-b_c.d/e+f=": "a-b_c.d/e+f=", "": "''", "it's": `'it'\''s'`, `a b$c"d`: `'a b$c"d'`, "*": "'*'", "é": "'é'",
	} {
		got := quoted(word)
		if got != want {
			t.Errorf("%q: %s, want %s", word, got, want)
		}
		if out, err := exec.Command("sh", "-c", "printf %s "+got).Output(); err != nil || string(out) != word {
			t.Errorf("%q: sh reads %q, %v", word, out, err)
		}
	}
}

// TestPrintedToken: one that was kept off the command line is not printed either.
func TestPrintedToken(t *testing.T) {
	for _, c := range []struct {
		env  []string
		args []string
		says string
	}{
		{nil, []string{"--token", "it's"}, `--token 'it'\''s'`},
		{[]string{"KVBENCH_TOKEN=hush"}, nil, "run with the same KVBENCH_TOKEN:"},
	} {
		p := launch{env: c.env}.start(t, append([]string{"consumer", "--listen", "0.0.0.0:0"}, c.args...)...)
		first := p.stdout.await(t, "on the prefill host")
		line := p.stdout.await(t, "kvbench producer --connect ")
		if !strings.Contains(first+line, c.says) || strings.Contains(first+line, "hush") {
			t.Errorf("%v %v: %s\n%s", c.env, c.args, first, line)
		}
		p.signal(os.Interrupt)
		p.end(promptly).want(t, exitDone)
	}
}
