package bench

import (
	"errors"
	"testing"
	"time"

	"kvbench/transport/mem"
)

// TestOccupancy: a run is alone where no other is there at its start, nor comes before
// its end, however short its stay.
func TestOccupancy(t *testing.T) {
	var o occupancy
	leave := o.enter()
	still := o.alone()
	if !still() {
		t.Error("the only run is not alone")
	}
	visitor := o.enter()
	during := o.alone()
	visitor()
	if still() {
		t.Error("alone, although another came and went")
	}
	if during() {
		t.Error("alone, although another was there at the start")
	}
	if !o.alone()() {
		t.Error("not alone after the other has gone")
	}
	leave()
}

// TestConsumerCPUOfOneRun: the consumer's processor time is that of its process, which
// says nothing about one of two runs.
func TestConsumerCPUOfOneRun(t *testing.T) {
	b := newBed(t, mem.New(), func(c *Consumer) { c.Limits.Sessions = 2 })
	plan := planOf(Push, spec(t))
	plan.Transport = "mem"
	p := b.producer()
	var errGuest error
	met := false
	p.Observe = func(at Progress) {
		if at.Stage == "measure" && !met {
			met = true
			_, errGuest = b.run(plan, Load{Requests: 1})
		}
	}
	o, err := p.Run(t.Context(), plan, Load{Requests: 3})
	if err := errors.Join(err, errGuest); err != nil || !met {
		t.Fatalf("a second run met the first: %v; %v", met, err)
	}
	if cpu := o.Cells[0].ConsumerCPU; cpu != nil {
		t.Errorf("%v s of the consumer's processor in a run that shared it, want none", *cpu)
	}
	run, err := Summarize(o, Assumptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if e := evidence(run, &run.Cells[0], nil); run.Consumer.CPUSeconds != nil || e.Consumer.Cores != 0 || e.Producer.CPUs != run.Producer.Host.CPUs {
		t.Errorf("the consumer's side has %v s, the evidence %+v", run.Consumer.CPUSeconds, e)
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); { // until the first has left
		if o, err = b.run(plan, Load{Requests: 3}); err != nil || o.Cells[0].ConsumerCPU != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil || o.Cells[0].ConsumerCPU == nil {
		t.Errorf("alone again, the run has no processor time of the consumer: %v", err)
	}
}
