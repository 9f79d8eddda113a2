package spelling

import "testing"

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "ndr", 3}, {"ndr", "", 3}, {"ib-ndr", "ib-ndr", 0},
		{"kitten", "sitting", 3}, {"saturday", "sunday", 3}, // Wagner and Fischer's, as textbooks have them
		{"100gbe", "10gbe", 1}, {"ab", "ba", 2},
	} {
		if got := Distance(c.a, c.b); got != c.want {
			t.Errorf("from %q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
