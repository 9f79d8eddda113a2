package bench

import (
	"slices"
	"strings"
	"testing"
	"time"

	"kvbench/model"
	"kvbench/payload"
	"kvbench/results"
)

// unlikeRun is the record of six requests of gpt-oss-120b at 4096 tokens over 1 Gbit/s,
// under an emulated prefill of 3 s, whose exposed time was the given one. Of its 36 layers
// every second one holds 128 tokens, of 2048 bytes in K and V, and the others, the last
// among them, all 4096: 8,388,608 bytes, or 71.28 ms at 117.685e6 B/s.
func unlikeRun(t *testing.T, exposed time.Duration) *results.Run {
	t.Helper()
	plan := planOf(Push, payload.Spec{Geometry: preset(t, "gpt-oss-120b"), Tokens: 4096})
	cells, err := plan.cells()
	if err != nil {
		t.Fatal(err)
	}
	const pace = 3 * time.Second / 36
	record := newRecord()
	for range 6 {
		end := 36*pace + exposed
		record.request(0, moved{span: span{0, end}, first: pace, prefill: 36 * pace}, cells[0].plan.Bytes)
		for range 36 {
			record.layer(time.Microsecond, time.Millisecond, time.Millisecond, true)
		}
	}
	o := &Outcome{Plan: plan, Cells: []CellOutcome{{
		cell: &cells[0], Record: merge([]*Record{record}), Complete: true, Verify: payload.Verdict{Checked: 1}, Pace: pace,
	}}}
	run, err := Summarize(o, gigabit(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// TestUnlikeLayersAreJudged by the recurrence over their own sizes: the mean layer, of
// 4,325,376 bytes, would leave 36.75 ms exposed, and call 71 ms a failure.
func TestUnlikeLayersAreJudged(t *testing.T) {
	t.Parallel()
	for exposed, want := range map[time.Duration]string{71 * time.Millisecond: "pass", 37 * time.Millisecond: "fail"} {
		run := unlikeRun(t, exposed)
		for range 2 { // as summarized, and as read back
			c := run.Cells[0]
			near(t, "exposed by the spec", c.Overlap.Spec.Seconds, 8388608/117.685e6, 1e-5)
			if c.Verdict.Status != want {
				t.Errorf("%v exposed: %+v, want %s", exposed, c.Verdict, want)
			}
			if err := Recheck(run, gigabit(t).Judge); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestRecordedTransfers: the record has every transfer's size, those alike together.
func TestRecordedTransfers(t *testing.T) {
	got := unlikeRun(t, time.Millisecond).Cells[0].Transfers
	if len(got) != 36 || got[0] != (results.Transfers{Count: 1, Bytes: 262144, Descriptors: 2}) || got[35] != (results.Transfers{Count: 1, Bytes: 8388608, Descriptors: 2}) {
		t.Errorf("%+v", got)
	}
	alike, err := Summarize(outcomeOf(t, measuredAs(time.Second)), Assumptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := alike.Cells[0].Transfers; !slices.Equal(got, []results.Transfers{{Count: 80, Bytes: 524288, Descriptors: 2}}) {
		t.Errorf("80 layers alike: %+v", got)
	}
}

// TestTransfersOfSeveralLayers: of gemma-3-4b's 34 layers the full ones move together after
// the 30th, where blocks are cross-layer, and the others after the last. 2048 tokens of 4096 B
// make 5 times 8,388,608 B, and 1024 of them 29 times 4,194,304. Behind 34 paces of 10 ms at
// 1 GB/s the first takes 42 ms, 2 more than the four paces that are left.
func TestTransfersOfSeveralLayers(t *testing.T) {
	cells, err := planOf(Push, payload.Spec{Geometry: preset(t, "gemma-3-4b"), Tokens: 2048, Layout: payload.Layout{Paged: true, CrossLayer: true}}).cells()
	if err != nil {
		t.Fatal(err)
	}
	list := recorded(cells[0].plan)
	if cells[0].layers() != 34 || len(list) != 2 || list[0].Bytes != 41943040 || list[0].Layers != 30 || list[1].Bytes != 121634816 || list[1].Layers != 4 {
		t.Errorf("%d layers, %+v", cells[0].layers(), list)
	}
	request, _ := transfersOf(&results.Cell{Transfers: list})
	near(t, "exposed", model.Cost{BytesPerSecond: 1e9}.ExposedSeconds(request, 0.34), 0.041943040-0.04+0.121634816, 1e-9)
}

// TestOlderRecordUnderPrefill: without the sizes of its transfers the exposed time has no
// verdict; without a prefill, or with one transfer, they do not matter.
func TestOlderRecordUnderPrefill(t *testing.T) {
	run := unlikeRun(t, 71*time.Millisecond)
	run.Cells[0].Transfers = nil
	if err := Recheck(run, gigabit(t).Judge); err != nil {
		t.Fatal(err)
	}
	if v := run.Cells[0].Verdict; v.Status != "unchecked" || !strings.Contains(v.Reason, "does not hold the size of each layer") || !strings.Contains(v.Reason, "run it again") {
		t.Errorf("%+v", v)
	}
	whole, err := Summarize(outcomeOf(t, measuredAs(356*time.Millisecond, 356*time.Millisecond, 356*time.Millisecond)), gigabit(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	whole.Cells[0].Transfers = nil
	if err := Recheck(whole, gigabit(t).Judge); err != nil {
		t.Fatal(err)
	}
	if v := whole.Cells[0].Verdict; v.Status != "pass" {
		t.Errorf("without a prefill: %+v", v)
	}
}

// TestTransfersContradict: a record whose transfers are not its totals is refused.
func TestTransfersContradict(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*results.Cell){
		"one less":              func(c *results.Cell) { c.Transfers = c.Transfers[1:] },
		"other bytes":           func(c *results.Cell) { c.Transfers[0].Bytes++ },
		"layers of none":        func(c *results.Cell) { c.Transfers[0].Layers = -1 },
		"other descriptors":     func(c *results.Cell) { c.Transfers[0].Descriptors-- },
		"none of a size":        func(c *results.Cell) { c.Transfers[0].Count = 0 },
		"more than can be":      func(c *results.Cell) { c.Transfers[0].Count = 1 << 62 },
		"bytes beyond counting": func(c *results.Cell) { c.Transfers = []results.Transfers{{Count: 36, Bytes: 1 << 62, Descriptors: 2}} },
	} {
		run := unlikeRun(t, 71*time.Millisecond)
		change(&run.Cells[0])
		if err := Recheck(run, gigabit(t).Judge); err == nil || !strings.Contains(err.Error(), "contradicts itself") {
			t.Errorf("%s: %v", name, err)
		}
	}
	run := unlikeRun(t, 71*time.Millisecond)
	c := &run.Cells[0]
	c.Layers, c.Descriptors, c.Transfers, c.Latency.Layer.Count = 1<<40, 1<<40, nil, 6<<40
	if err := Recheck(run, gigabit(t).Judge); err == nil || !strings.Contains(err.Error(), "contradicts itself") {
		t.Errorf("more layers than memory: %v", err)
	}
}

// TestExposedNearTheCrossover: 80 layers of 1 MB over a path that calibration puts between
// 0.95 and 1.05 of 1 ms a layer, under a prefill of 76 ms. It exposes 4.95 ms, but may 0.95
// or 8.95: 8 ms measured are no miss, and no hit.
func TestExposedNearTheCrossover(t *testing.T) {
	fit := model.Fit{Bandwidth: model.Exactly(1e9), LackOfFit: 0.05 / 1.959964}
	histogram := func(d time.Duration) *results.Histogram {
		h := results.NewHistogram()
		for range 10 {
			h.Record(d)
		}
		return h
	}
	cell := results.Cell{Layers: 80, Descriptors: 80, Bytes: 80e6, Requests: 10, Complete: true, Transfers: []results.Transfers{{Count: 80, Bytes: 1e6, Descriptors: 1}}}
	judged := func(prefill, exposed time.Duration) (results.Prediction, results.Verdict) {
		c := cell
		predict(&c, histogram(prefill+exposed), histogram(exposed), prefill.Seconds(), nil, &fit)
		run := &results.Run{Cells: []results.Cell{c}}
		Judge{0.15, []string{"fit"}}.judge(run, &fit)
		return *run.Cells[0].Overlap.Fit, run.Cells[0].Verdict
	}
	p, v := judged(76*time.Millisecond, 8*time.Millisecond)
	near(t, "exposed", p.Seconds, 4.95e-3, 1e-9)
	near(t, "low", p.SecondsLow, 0.95e-3, 1e-9)
	near(t, "high", p.SecondsHigh, 8.95e-3, 1e-9)
	if !p.Vague || v.Status != "unchecked" || !strings.Contains(v.Reason, "too vague") {
		t.Errorf("%+v, %+v", p, v)
	}
	// Far from it the share is that of the whole: 80 ms less 79/80 of 16 ms, 4 ms either way.
	p, v = judged(16*time.Millisecond, 90*time.Millisecond)
	near(t, "far, high", p.SecondsHigh, 68.2e-3, 1e-9)
	if p.Vague || v.Status != "fail" {
		t.Errorf("far from it: %+v, %+v", p, v)
	}
}
