//go:build timing

package mem_test

import "testing"

// TestSuiteCatchesRaces is TestSuiteCatchesFaults for the faults that are data races.
func TestSuiteCatchesRaces(t *testing.T) {
	for _, f := range races {
		t.Run(string(f), func(t *testing.T) { catch(t, f) })
	}
}
