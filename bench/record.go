package bench

import (
	"cmp"
	"slices"
	"time"

	"kvbench/results"
)

// Record is what an initiator saw of a phase.
type Record struct {
	Response   *results.Histogram `json:"response"`
	Service    *results.Histogram `json:"service"`
	Layer      *results.Histogram `json:"layer"`
	FirstLayer *results.Histogram `json:"first_layer"`
	Exposed    *results.Histogram `json:"exposed"`
	Post       *results.Histogram `json:"post"`
	AckRTT     *results.Histogram `json:"ack_rtt"`
	Requests   int64              `json:"requests"`
	Bytes      int64              `json:"bytes"`
	Busy       time.Duration      `json:"busy_ns"` // with a request in flight

	spans []span
}

// span is one request's time from start to delivery, on the initiator's clock.
type span struct{ start, end time.Duration }

// newRecord makes the record of one worker.
func newRecord() *Record {
	r := &Record{spans: make([]span, 0, 1024)}
	for _, h := range r.histograms() {
		*h = results.NewHistogram()
	}
	return r
}

func (r *Record) histograms() []**results.Histogram {
	return []**results.Histogram{&r.Response, &r.Service, &r.Layer, &r.FirstLayer, &r.Exposed, &r.Post, &r.AckRTT}
}

// layer counts one delivered layer. It is on the timed path.
func (r *Record) layer(post, service, ack time.Duration, acked bool) {
	r.Post.Record(post)
	r.Layer.Record(service)
	if acked {
		r.AckRTT.Record(ack)
	}
}

// request counts one delivered request of bytes. Everything it moved after its
// prefill, which here is before it began, is exposed.
func (r *Record) request(intended time.Duration, s span, first time.Duration, bytes int64) {
	r.Response.Record(s.end - intended)
	r.Service.Record(s.end - s.start)
	r.Exposed.Record(s.end - s.start)
	r.FirstLayer.Record(first - s.start)
	r.Requests++
	r.Bytes += bytes
	r.spans = append(r.spans, s)
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
	}
	total.Busy = union(total.spans)
	return total
}

// union is the time that the spans cover together.
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
