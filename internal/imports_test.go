// Package internal has no code of its own; its test holds the packages of the
// module to the direction in which they may import one another.
package internal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "kvbench/"

// rule says what a package may import of this module, and why no more. A
// pattern's * stands for any one element, and ... at its end for anything.
type rule struct {
	from string
	may  []string
	why  string
}

// rules has the more special ones first: the first that matches a package is its rule.
var rules = []rule{
	{"cmd/...", []string{"..."}, "the command line is on top"},
	{"bench", []string{"transport", "payload", "model", "results", "internal/control", "internal/host*", "internal/units"},
		"a run knows transports by their contract only, and prints nothing"},
	{"report", []string{"results", "model", "payload", "transport", "internal/hostinfo", "internal/units"},
		"what people look at is made from records, predictions and facts of hosts alone"},
	{"results", []string{"payload", "transport", "internal/hostinfo"}, "a record does not know how a run is made"},
	{"model", []string{"internal/units", "internal/spelling"}, "the model is arithmetic on numbers that it is given"},
	{"payload", []string{"internal/units", "internal/spelling"}, "bytes and geometry know nothing of how they move"},
	{"transport", nil, "the contract stands alone"},
	{"transport/transporttest", []string{"transport", "internal/testenv"}, "the suite knows the contract and no implementation"},
	{"transport/transporttest/remote", []string{"transport", "transport/transporttest"}, "it carries the suite's calls to another process, whatever the transport"},
	{"transport/transporttest/gpu", []string{"transport", "transport/transporttest", "internal/cudadrv"}, "it is memory for the suite's cases, whatever the transport"},
	{"transport/*", []string{"transport", "internal/..."}, "a transport moves descriptors, whatever they hold, and knows no other transport"},
	{"internal/gpumem", []string{"transport", "internal/..."}, "it is what transports of GPU memory share, in the contract's terms"},
	{"internal/intake", []string{"transport", "internal/..."}, "it is what the listeners of transports share, in the contract's terms"},
	{"internal/rendezvous", []string{"transport", "internal/..."}, "it is how transports meet whose data takes no socket, in the contract's terms"},
	{"internal/...", []string{"internal/..."}, "what is shared below knows nothing of what is above"},
}

// standardOnly are the packages that need nothing but the standard library.
var standardOnly = []string{"transport", "internal/control"}

// listed is a package as go list -json shows it.
type listed struct {
	ImportPath string
	Dir        string
	Imports    []string
	Deps       []string
}

// list returns the module's packages as they are built for an operating system.
func list(t *testing.T, goos string) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Imports,Deps", module+"...")
	cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	var packages []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); err == io.EOF {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
		touch(t, p.Dir)
	}
}

// touch looks at a package's files, so that go test runs this test again, and
// does not answer from its cache, when one of them has changed.
func touch(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if _, err := os.Stat(f); err != nil {
			t.Fatal(err)
		}
	}
}

func TestImportsGoOneWay(t *testing.T) {
	for _, goos := range []string{"linux", "darwin"} {
		t.Run(goos, func(t *testing.T) {
			packages := list(t, goos)
			if len(packages) < 10 {
				t.Fatalf("go list found %d packages", len(packages))
			}
			for _, p := range packages {
				for _, broken := range check(p) {
					t.Error(broken)
				}
			}
		})
	}
}

// check returns a sentence for each import of a package that breaks a rule.
func check(p listed) (broken []string) {
	name := strings.TrimPrefix(p.ImportPath, module)
	complain := func(imported, why string) {
		broken = append(broken, fmt.Sprintf("%s imports %s, which it must not: %s", name, imported, why))
	}
	at := slices.IndexFunc(rules, func(r rule) bool { return matches(r.from, name) })
	if at < 0 {
		return []string{fmt.Sprintf("no rule says what %s may import: add one here, as the design says", name)}
	}
	for _, full := range p.Imports {
		imported, own := strings.CutPrefix(full, module)
		switch {
		case own && strings.HasPrefix(imported, "cmd/"):
			complain(imported, "nothing imports the command line")
		case own && !slices.ContainsFunc(rules[at].may, func(pattern string) bool { return matches(pattern, imported) }):
			complain(imported, rules[at].why)
		case !own && strings.Contains(strings.Split(full, "/")[0], ".") && slices.Contains(standardOnly, name):
			complain(full, "it needs the standard library only")
		}
	}
	// However many steps lie between: what moves bytes does not know what they are.
	if strings.HasPrefix(name, "transport") && slices.Contains(p.Deps, module+"payload") {
		complain("payload, through others", "a transport moves descriptors, whatever they hold")
	}
	return broken
}

func matches(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "..."); ok {
		return strings.HasPrefix(name+"/", prefix)
	}
	ok, _ := path.Match(pattern, name)
	return ok
}

// TestCheckNotices holds the check itself up to imports that break each rule.
func TestCheckNotices(t *testing.T) {
	for _, c := range []struct {
		from, imported string
		broken         bool
	}{
		{"bench", "transport", false},
		{"bench", "transport/tcp", true},
		{"bench", "report", true},
		{"bench", "cmd/kvbench", true},
		{"bench", "internal/hostmem", false},
		{"bench", "internal/ucx", true},
		{"model", "payload", true},
		{"report", "bench", true},
		{"results", "model", true},
		{"transport", "internal/units", true},
		{"transport/rdma", "internal/ucx", false},
		{"transport/rdma", "transport/tcp", true},
		{"transport/tcp", "payload", true},
		{"internal/hostinfo", "bench", true},
		{"cmd/kvbench", "transport/tcp", false},
		{"somewhere/new", "fmt", true},
	} {
		got := check(listed{ImportPath: module + c.from, Imports: []string{"fmt", module + c.imported}})
		if (len(got) > 0) != c.broken {
			t.Errorf("%s importing %s: complaints %q, wanted some: %v", c.from, c.imported, got, c.broken)
		}
	}
	if got := check(listed{ImportPath: module + "transport", Imports: []string{"golang.org/x/sys/unix"}}); len(got) != 1 {
		t.Errorf("a third party's package in transport: complaints %q", got)
	}
	if got := check(listed{ImportPath: module + "transport/tcp", Deps: []string{module + "payload"}}); len(got) != 1 {
		t.Errorf("payload below a transport: complaints %q", got)
	}
}
