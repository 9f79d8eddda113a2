package bench

import (
	"testing"
	"time"
)

// BenchmarkRecordLayer is what counting one layer costs on the timed path.
func BenchmarkRecordLayer(b *testing.B) {
	r := newRecord()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.layer(time.Duration(i%5000), time.Duration(1e6+i%100000), time.Duration(4e4+i%1000), true)
	}
}

// TestRecordingAllocatesNothing holds the recorder to its promise.
func TestRecordingAllocatesNothing(t *testing.T) {
	r := newRecord()
	if n := testing.AllocsPerRun(1000, func() { r.layer(1000, 2e6, 5e4, true) }); n != 0 {
		t.Errorf("%v allocations a layer", n)
	}
}
