package transporttest

import (
	"testing"

	"kvbench/transport"
	"kvbench/transport/mem"
)

// ran lists what each body runs with in the cases of a subject.
func ran(s Subject) map[string][]permutation {
	s.Listener = mem.New()
	all := make(map[string][]permutation)
	for _, c := range cases(s) {
		for _, b := range bodies {
			if c.op != 0 && c.name == c.op.String()+map[bool]string{false: "/InitiatorDials/", true: "/TargetDials/"}[c.reversed]+b.name {
				all[b.name] = append(all[b.name], c.permutation)
			}
		}
	}
	return all
}

// distinct counts the permutations, operations and sides among some.
func distinct(all []permutation) [3]int {
	permutations, ops, sides := make(map[permutation]bool), make(map[transport.Op]bool), make(map[bool]bool)
	for _, p := range all {
		permutations[p], ops[p.op], sides[p.reversed] = true, true, true
	}
	return [3]int{len(permutations), len(ops), len(sides)}
}

// TestCases counts what the suite covers.
func TestCases(t *testing.T) {
	for name, c := range map[string]struct {
		subjects []Subject
		runs     int    // of each body
		want     [3]int // of each body: permutations, operations, sides
	}{
		"all":                  {[]Subject{{All: true}}, 4, [3]int{4, 2, 2}},
		"all of one operation": {[]Subject{{All: true, Only: transport.Read}}, 2, [3]int{2, 1, 2}},
		"short":                {[]Subject{{}}, 2, [3]int{2, 2, 2}},
		"one operation":        {[]Subject{{Only: transport.Write}}, 1, [3]int{1, 1, 1}},
		"parts 1 and 2":        {[]Subject{{Part: 1}, {Part: 2}}, 2, [3]int{2, 2, 2}},
		"three parts":          {[]Subject{{Part: 1}, {Part: 2}, {Part: 3}}, 3, [3]int{3, 2, 2}},
		"parts 3 and 4":        {[]Subject{{Part: 3}, {Part: 4}}, 2, [3]int{2, 2, 2}},
		"four parts":           {[]Subject{{Part: 1}, {Part: 2}, {Part: 3}, {Part: 4}}, 4, [3]int{4, 2, 2}},
	} {
		var bySubject []map[string][]permutation
		for _, s := range c.subjects {
			bySubject = append(bySubject, ran(s))
		}
		for _, b := range bodies {
			var all []permutation
			for _, r := range bySubject {
				all = append(all, r[b.name]...)
			}
			if len(all) != c.runs || distinct(all) != c.want {
				t.Errorf("%s: %s runs with %v, want %d runs with %v permutations, operations and sides", name, b.name, all, c.runs, c.want)
			}
		}
		// Within one configuration, too, either side dials for each operation.
		for i, r := range bySubject {
			var all []permutation
			for _, p := range r {
				all = append(all, p...)
			}
			want := 4
			if c.subjects[i].Only != 0 {
				want = 2
			}
			if got := distinct(all)[0]; got != want {
				t.Errorf("%s: subject %d has %d permutations, want %d", name, i, got, want)
			}
		}
	}
}
