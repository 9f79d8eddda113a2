package bench

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"kvbench/results"
	"kvbench/transport"
)

// ErrOtherPath is returned when a calibration to reuse was taken on another kind of path.
var ErrOtherPath = errors.New("the calibration is of another path")

// conditions returns the conditions of an outcome's batches, as far as the run has come:
// the lane is empty until the sides are connected.
func (o *Outcome) conditions() results.Conditions {
	gpu := ""
	if o.Path.Lane != "" { // else not connected yet
		gpu = gpuPath(o.Plan.Memory, o.Path)
	}
	return results.Conditions{
		GPUPath: gpu, Transport: o.Plan.Transport, Memory: o.Plan.Memory, Lane: o.Path.Lane, Device: carrier(o.Producer.Host, o.Path),
		Direction: string(o.Plan.Direction), Streams: max(1, o.Plan.Config.Streams),
		SocketBuffer: o.Plan.Config.SocketBuffer, BusyPoll: o.Plan.Config.BusyPoll, Verify: o.Plan.Verify,
		Producer: o.Producer.Host.Hostname, Consumer: o.Consumer.Host.Hostname,
	}
}

// Suits returns ErrOtherPath, with the differences, if the calibration to reuse was taken
// over another transport, memory kind, GPU memory path, direction or lane than the
// outcome's so far. Other differences go into the record's notes.
func (a Assumptions) Suits(o *Outcome) error {
	if a.Calibration == nil || a.Calibration.Taken == nil {
		return nil
	}
	then, now := a.Calibration.Taken, o.conditions()
	var differ []string
	for _, c := range []struct{ what, then, now string }{
		{"transport", then.Transport, now.Transport},
		{"memory", string(cmp.Or(then.Memory, transport.HostMemory)), string(now.Memory)},
		{"GPU memory", cmp.Or(then.GPUPath, now.GPUPath), now.GPUPath}, // older records lack it
		{"direction", then.Direction, now.Direction},
		{"lane", then.Lane, now.Lane},
	} {
		if c.now != "" && c.then != c.now {
			differ = append(differ, fmt.Sprintf("%s %q, here %q", c.what, c.then, c.now))
		}
	}
	if len(differ) == 0 {
		return nil
	}
	return fmt.Errorf("%w (%s): %s; calibrate this path with --calibrate auto, or give a record of it", ErrOtherPath, a.Calibration.Source, strings.Join(differ, "; "))
}

// doubts lists the differences, short of another path, between an earlier calibration's
// conditions and these.
func doubts(then *results.Conditions, now results.Conditions) []string {
	if then == nil {
		return []string{"the calibration comes from a record that does not say on which path it was taken"}
	}
	var notes []string
	for _, c := range []struct {
		what      string
		then, now any
	}{
		{"producer", then.Producer, now.Producer},
		{"consumer", then.Consumer, now.Consumer},
		{"streams", then.Streams, now.Streams},
		{"device MTU", then.Device.MTU, now.Device.MTU},
		{"device rate in bytes/s", then.Device.RealRate(), now.Device.RealRate()},
		{"socket buffer in bytes", then.SocketBuffer, now.SocketBuffer},
		{"busy polling", then.BusyPoll, now.BusyPoll},
		{"verification", then.Verify, now.Verify},
	} {
		if c.then != c.now {
			notes = append(notes, fmt.Sprintf("%s was %v when the calibration was taken, and is %v here", c.what, c.then, c.now))
		}
	}
	return notes
}
