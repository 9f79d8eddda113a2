package bench

import (
	"errors"
	"strings"
	"testing"
	"time"

	"kvbench/internal/hostinfo"
	"kvbench/results"
	"kvbench/transport"
)

// connectedOver is an outcome of 41,943,040-byte requests over tcp/eth0 between two hosts.
func connectedOver(t *testing.T) *Outcome {
	const ms = time.Millisecond
	o := outcomeOf(t, measuredAs(700*ms, 700*ms, 700*ms, 700*ms, 700*ms, 700*ms))
	o.Path = transport.Path{Lane: "tcp/eth0", Device: "eth0"}
	o.Producer.Host = hostinfo.Host{Hostname: "prefill-1", Device: hostinfo.Device{Name: "eth0", MTU: 9000, BytesPerSecond: 12.5e9}}
	o.Consumer.Host.Hostname = "decode-1"
	return o
}

// TestCalibrationOfStagedMemory: it says nothing about GPU memory that moves directly.
func TestCalibrationOfStagedMemory(t *testing.T) {
	over := func(p transport.Path) *Outcome {
		o := connectedOver(t)
		o.Plan.Memory, o.Path = transport.CUDAMemory, p
		return o
	}
	staged := over(transport.Path{Lane: "rc_mlx5/mlx5_0:1", Staging: &transport.Staging{}})
	staged.Samples = pathSamples(20e-6, 1e-6, 60e6)
	earlier, err := Summarize(staged, gigabit(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	a := gigabit(t)
	a.Calibration = earlier.Fit
	direct := over(transport.Path{Lane: "rc_mlx5/mlx5_0:1"})
	if err := a.Suits(direct); !errors.Is(err, ErrOtherPath) || !strings.Contains(err.Error(), `GPU memory "staged", here "direct"`) {
		t.Errorf("direct: %v", err)
	}
	for name, o := range map[string]*Outcome{"staged again": staged, "not yet connected": over(transport.Path{})} {
		if err := a.Suits(o); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	a.Calibration.Taken.GPUPath = "" // an older record
	if err := a.Suits(direct); err != nil {
		t.Errorf("an older record: %v", err)
	}
}

// TestCalibrationOfAnotherPath: a fit is used for runs of the same transport,
// direction and lane only, and other differences are said.
func TestCalibrationOfAnotherPath(t *testing.T) {
	t.Parallel()
	first := connectedOver(t)
	first.Samples = pathSamples(20e-6, 1e-6, 60e6)
	earlier, err := Summarize(first, gigabit(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		change  func(*Outcome)
		refused string // what the error says
		noted   string // what the notes say
	}{
		{"the same", func(*Outcome) {}, "", ""},
		{"another transport", func(o *Outcome) { o.Plan.Transport = "rdma" }, `transport "tcp", here "rdma"`, ""},
		{"another kind of memory", func(o *Outcome) { o.Plan.Memory = transport.CUDAMemory }, `memory "host", here "cuda"`, ""},
		{"another direction", func(o *Outcome) { o.Plan.Direction = Pull }, `direction "push", here "pull"`, ""},
		{"another lane", func(o *Outcome) { o.Path.Lane = "tcp/lo" }, `lane "tcp/eth0", here "tcp/lo"`, ""},
		{"another producer", func(o *Outcome) { o.Producer.Host.Hostname = "prefill-2" }, "", "producer was prefill-1 when the calibration was taken, and is prefill-2 here"},
		{"another consumer", func(o *Outcome) { o.Consumer.Host.Hostname = "decode-2" }, "", "consumer was decode-1"},
		{"more streams", func(o *Outcome) { o.Plan.Config.Streams = 4 }, "", "streams was 1 when the calibration was taken, and is 4 here"},
		{"another rate", func(o *Outcome) { o.Producer.Host.Device.BytesPerSecond = 1.25e9 }, "", "device rate in bytes/s was 1.25e+10"},
		{"another MTU", func(o *Outcome) { o.Producer.Host.Device.MTU = 1500 }, "", "device MTU was 9000"},
		{"unchecked bytes", func(o *Outcome) { o.Plan.Verify = "none" }, "", "verification was full"},
	} {
		o, a := connectedOver(t), gigabit(t)
		c.change(o)
		a.Calibration = earlier.Fit
		a.Calibration.Source = "earlier.json"
		err := a.Suits(o)
		if c.refused != "" {
			if !errors.Is(err, ErrOtherPath) || !strings.Contains(err.Error(), c.refused) || !strings.Contains(err.Error(), "earlier.json") {
				t.Errorf("%s: %v, want %q", c.name, err, c.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		run, err := Summarize(o, a, nil)
		if err != nil {
			t.Fatal(err)
		}
		notes := strings.Join(run.Fit.Notes, "; ")
		if c.noted == "" && strings.Contains(notes, "when the calibration was taken") || !strings.Contains(notes, c.noted) {
			t.Errorf("%s: notes %q, want %q", c.name, notes, c.noted)
		}
		if run.Cells[0].Predicted.Fit == nil || *run.Fit.Taken != *earlier.Fit.Taken {
			t.Errorf("%s: prediction %v; the calibration is said to be of %+v", c.name, run.Cells[0].Predicted.Fit, run.Fit.Taken)
		}
	}
	// Before the sides are connected the lane is not known.
	early, a := connectedOver(t), gigabit(t)
	early.Path.Lane = ""
	a.Calibration = earlier.Fit
	if err := a.Suits(early); err != nil {
		t.Errorf("not yet connected: %v", err)
	}
	// An older record does not say where it was taken: it is used, and that is said.
	a.Calibration = &results.Fit{Samples: earlier.Fit.Samples}
	run, err := Summarize(connectedOver(t), a, nil)
	if err != nil || a.Suits(connectedOver(t)) != nil || !strings.Contains(strings.Join(run.Fit.Notes, "; "), "does not say on which path") {
		t.Errorf("an older record: notes %v, %v", run.Fit.Notes, err)
	}
}
