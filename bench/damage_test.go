package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"kvbench/internal/testenv"
	"kvbench/payload"
	"kvbench/transport"
	"kvbench/transport/mem"
)

// TestDamageIsFound runs over transports that spoil the data in a known way. What
// must be found is found, in either direction, and the consumer lives on. Outside the long
// run the cases take turns with the directions.
func TestDamageIsFound(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		fault  mem.Fault
		depth  payload.Depth
		layout func(*payload.Spec) // nil is contiguous
		says   string              // part of what was found; it may be empty
	}{
		// Every byte is looked at, so whatever differs is seen.
		{mem.Corrupt, payload.VerifyFull, nil, ""},
		{mem.Corrupt, payload.VerifyFull, paged(1), ""},
		{mem.Drop, payload.VerifyFull, nil, ""},
		{mem.Drop, payload.VerifyFull, paged(1), ""},
		{mem.Swap, payload.VerifyFull, nil, "misplaced"},
		{mem.Swap, payload.VerifyFull, paged(1), "misplaced"},
		{mem.Truncate, payload.VerifyFull, nil, "end did not"},
		{mem.Stale, payload.VerifyFull, nil, "stale"},
		{mem.Stale, payload.VerifyFull, paged(0.5), "stale"},
		{mem.Overrun, payload.VerifyFull, paged(1), ""},
		// Stamps see what is not where it belongs, or not of now.
		{mem.Drop, payload.VerifyStamp, nil, ""},
		{mem.Drop, payload.VerifyStamp, paged(1), ""},
		{mem.Swap, payload.VerifyStamp, nil, "misplaced"},
		{mem.Swap, payload.VerifyStamp, paged(1), "misplaced"},
		{mem.Truncate, payload.VerifyStamp, nil, "end did not"},
		{mem.Stale, payload.VerifyStamp, nil, "stale"},
		{mem.Stale, payload.VerifyStamp, paged(0.5), "stale"},
	} {
		for j, direction := range directions {
			if j != i%len(directions) && !testenv.Full {
				continue
			}
			t.Run(strings.Join([]string{string(c.fault), string(direction), string(c.depth)}, " "), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T) {
					s := spec(t)
					if c.layout != nil {
						s = spec(t, c.layout)
					}
					plan := planOf(direction, s)
					plan.Verify = c.depth
					damageIsFound(t, c.fault, plan, c.says)
				})
			})
		}
	}
}

// damageIsFound makes a run over a transport with a fault, and then another one that does
// not verify.
func damageIsFound(t *testing.T, fault mem.Fault, plan Plan, says string) {
	b := newVirtualBed(t, mem.New(fault))
	o, err := b.run(plan, Load{Requests: 3, Warmup: 1})
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), says) {
		t.Fatalf("error %v, want ErrCorrupt that says %q", err, says)
	}
	v := o.Cells[0].Verify
	if v.Mismatched == 0 || v.First == "" || o.Cells[0].Complete {
		t.Errorf("verification %+v, complete %v", v, o.Cells[0].Complete)
	}
	run, err := Summarize(o, Assumptions{}, err)
	if err != nil {
		t.Fatal(err)
	}
	if got := run.Cells[0]; run.Complete || got.Verify.Mismatched == 0 || got.Verdict.Status != "fail" || !strings.Contains(got.Verdict.Reason, "arrived wrong") {
		t.Errorf("record: complete %v, %+v, %+v", run.Complete, got.Verify, got.Verdict)
	}
	plan.Verify = payload.VerifyNone
	if _, err := b.retry(plan, Load{Requests: 1}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// retry runs until the consumer has a place.
func (b *bed) retry(plan Plan, load Load) (o *Outcome, err error) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if o, err = b.run(plan, load); err == nil || !strings.Contains(err.Error(), "already, its limit") {
			return o, err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return o, err
}

// TestWhatStampsMiss: damage between the stamps of a block is for full to find.
func TestWhatStampsMiss(t *testing.T) {
	s := spec(t, paged(1)) // a descriptor is a block, and its middle is no stamp
	plan := planOf(Push, s)
	plan.Verify = payload.VerifyStamp
	if _, err := newBed(t, mem.New(mem.Corrupt)).run(plan, Load{Requests: 1}); err != nil {
		t.Errorf("stamps found damage in the middle of a block: %v", err)
	}
	plan.Verify = payload.VerifyFull
	if _, err := newBed(t, mem.New(mem.Corrupt)).run(plan, Load{Requests: 1}); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "between its stamps") {
		t.Errorf("full: %v", err)
	}
}

// TestReadCompletedEarly: what the reader is told it has, it does not have yet.
func TestReadCompletedEarly(t *testing.T) {
	if _, err := newBed(t, mem.New(mem.Early)).run(planOf(Pull, spec(t)), Load{Requests: 2}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("error %v, want ErrCorrupt", err)
	}
}

// TestBrokenPromises: a transport that lies about completion ends a run with an
// error, or by the caller's patience, and never as a result.
func TestBrokenPromises(t *testing.T) {
	for _, c := range []struct {
		fault     mem.Fault
		direction Direction
		want      error
	}{
		{mem.Lose, Push, context.DeadlineExceeded},
		{mem.Lose, Pull, context.DeadlineExceeded},
		{mem.Mute, Push, context.DeadlineExceeded},
		{mem.Mute, Pull, transport.ErrProtocol},
		{mem.Repeat, Push, transport.ErrProtocol},
		{mem.Repeat, Pull, nil}, // the reason is the consumer's
	} {
		t.Run(string(c.fault)+" "+string(c.direction), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				b := newVirtualBed(t, mem.New(c.fault))
				const within = 3 * time.Second
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				plan := planOf(c.direction, spec(t))
				plan.Transport = "mem"
				begin := time.Now()
				o, err := b.producer().Run(ctx, plan, Load{Requests: 3})
				if err == nil || c.want != nil && !errors.Is(err, c.want) {
					t.Fatalf("error %v, want %v", err, c.want)
				}
				if len(o.Cells) > 0 && o.Cells[0].Complete {
					t.Error("the cell is marked complete")
				}
				if d := time.Since(begin); d > within {
					t.Errorf("ended after %v", d)
				}
			})
		})
	}
}
