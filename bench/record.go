package bench

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"kvbench/internal/control"
	"kvbench/results"
)

// Record holds an initiator's measurements of a phase.
type Record struct {
	Response   *results.Histogram `json:"response"`
	Service    *results.Histogram `json:"service"`
	Layer      *results.Histogram `json:"layer"`
	FirstLayer *results.Histogram `json:"first_layer"`
	Exposed    *results.Histogram `json:"exposed"`
	Post       *results.Histogram `json:"post"`
	AckRTT     *results.Histogram `json:"ack_rtt"`
	Late       *results.Histogram `json:"late"`
	Requests   int64              `json:"requests"`
	Bytes      int64              `json:"bytes"`
	Busy       time.Duration      `json:"busy_ns"`    // with a request in flight
	OnPath     time.Duration      `json:"on_path_ns"` // with a layer on the path: Busy without the waits for prefill

	// Growth is the mean response of the last third of the requests, by due time, divided
	// by the mean of the first third. It is far above 1 if a queue builds up.
	Growth float64 `json:"growth"`
	// Replayed is the mean response if one free server takes these requests, each
	// starting when it is due and the one before it is delivered. It is 0 if several
	// workers served them.
	Replayed time.Duration `json:"replayed_ns"`

	spans     []span
	onPath    []span
	responses []response
}

// span is a period on the initiator's clock, from start to delivery.
type span struct{ start, end time.Duration }

// newRecord makes one worker's empty record.
func newRecord() *Record {
	r := &Record{spans: make([]span, 0, 1024), onPath: make([]span, 0, 1024), responses: make([]response, 0, 1024)}
	for _, h := range r.histograms() {
		*h = results.NewHistogram()
	}
	return r
}

func (r *Record) histograms() []**results.Histogram {
	return []**results.Histogram{&r.Response, &r.Service, &r.Layer, &r.FirstLayer, &r.Exposed, &r.Post, &r.AckRTT, &r.Late}
}

// layer records one delivered layer. It runs on the timed path.
func (r *Record) layer(post, service, ack time.Duration, acked bool) {
	r.Post.Record(post)
	r.Layer.Record(service)
	if acked {
		r.AckRTT.Record(ack)
	}
}

// request records one delivered request of the given bytes, due at intended. The time
// after its prefill is exposed.
func (r *Record) request(intended time.Duration, m moved, bytes int64) {
	r.Response.Record(m.end - intended)
	r.Service.Record(m.end - m.start)
	r.Exposed.Record(max(0, m.end-m.prefill))
	r.FirstLayer.Record(m.first - m.start)
	r.Requests++
	r.Bytes += bytes
	r.spans = append(r.spans, m.span)
	r.onPath = append(r.onPath, m.onPath...)
	r.responses = append(r.responses, response{intended, m.end - intended, m.end - m.start})
}

// response holds one request's due time, its duration from then, and its duration from
// its real start.
type response struct{ due, took, service time.Duration }

// whole returns an error if a record from the peer lacks a histogram or holds a negative
// count.
func (r *Record) whole() error {
	for _, h := range r.histograms() {
		if *h == nil {
			return fmt.Errorf("the consumer's record lacks a histogram: %w", control.ErrFrame)
		}
	}
	if r.Requests < 0 || r.Bytes < 0 || r.Busy < 0 || r.OnPath < 0 || r.Replayed < 0 {
		return fmt.Errorf("the consumer's record counts less than nothing: %w", control.ErrFrame)
	}
	return nil
}

// merge combines the workers' records.
func merge(records []*Record) *Record {
	total := newRecord()
	for _, r := range records {
		from := r.histograms()
		for i, to := range total.histograms() {
			(*to).Merge(*from[i])
		}
		total.Requests += r.Requests
		total.Bytes += r.Bytes
		total.spans = append(total.spans, r.spans...)
		total.onPath = append(total.onPath, r.onPath...)
		total.responses = append(total.responses, r.responses...)
	}
	total.Busy, total.OnPath = union(total.spans), union(total.onPath)
	slices.SortFunc(total.responses, func(a, b response) int { return cmp.Compare(a.due, b.due) })
	total.Growth = growth(total.responses)
	if len(records) == 1 {
		total.Replayed = replay(total.responses)
	}
	return total
}

// union returns the time that the spans cover together.
func union(spans []span) (covered time.Duration) {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	var until time.Duration
	for i, s := range spans {
		if i == 0 || s.start > until {
			until = s.start
		}
		if s.end > until {
			covered += s.end - until
			until = s.end
		}
	}
	return covered
}
