package mem_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"kvbench/transport/mem"
	"kvbench/transport/transporttest"
)

func TestConformance(t *testing.T) {
	transporttest.Run(t, transporttest.Subject{Listener: mem.New()})
}

// races are the faults that are data races by intention: a transport goes on with bytes
// that it has given back. TestSuiteCatchesRaces runs them, without the race detector.
var races = []mem.Fault{mem.Early, mem.LateSource}

// TestSuiteCatchesFaults holds broken transports up to the suite. A fault that no
// case notices is a hole in the suite.
func TestSuiteCatchesFaults(t *testing.T) {
	for _, f := range mem.Faults() {
		if !slices.Contains(races, f) {
			t.Run(string(f), func(t *testing.T) { catch(t, f) })
		}
	}
}

// patience is enough in virtual time, in which work takes none.
const patience = 5 * time.Second

// catch holds a broken transport up to the suite. Time is virtual, so that a transport
// which waits for ever is found out at once, and a slow machine is not taken for a fault.
func catch(t *testing.T, f mem.Fault) {
	synctest.Test(t, func(t *testing.T) {
		name, complaints := transporttest.FirstFailure(transporttest.Subject{Listener: mem.New(f), Patience: patience})
		if name == "" {
			t.Fatalf("a transport with fault %q passed every case", f)
		}
		t.Logf("caught by %s: %.120s", name, complaints[0])
	})
}

// TestNothingIsCaught holds a transport without faults up to the suite, in virtual time too.
func TestNothingIsCaught(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if name, complaints := transporttest.FirstFailure(transporttest.Subject{Listener: mem.New(), Patience: patience}); name != "" {
			t.Errorf("%s fails without a fault: %s", name, complaints)
		}
	})
}
