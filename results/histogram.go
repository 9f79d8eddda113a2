package results

import (
	"encoding/json"
	"fmt"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

const (
	lowestNs  = 1
	highestNs = int64(time.Hour)
	digits    = 3
)

// Histogram counts durations from 1 ns to 1 h with three significant digits. It is not safe
// for concurrent use: each worker records into a separate one, and they are merged
// afterwards. Recording allocates nothing.
type Histogram struct {
	h *hdr.Histogram
	// max is stored separately: the library's maximum is rounded up to its bucket.
	max time.Duration
}

// NewHistogram returns an empty histogram.
func NewHistogram() *Histogram { return &Histogram{h: hdr.New(lowestNs, highestNs, digits)} }

// Record counts one duration. Longer than an hour counts as an hour.
func (h *Histogram) Record(d time.Duration) {
	// The value is always in range, so RecordValue cannot fail.
	_ = h.h.RecordValue(inRange(d))
	h.max = max(h.max, d)
}

// inRange is the duration limited to the histogram's range, in ns.
func inRange(d time.Duration) int64 { return min(max(int64(d), lowestNs), highestNs) }

// Count returns the number of recorded durations.
func (h *Histogram) Count() int64 { return h.h.TotalCount() }

// Quantile returns the q-quantile, q in 0..1, as the upper end of its bucket, but at most
// the maximum. It is 0 for an empty histogram.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.Count() == 0 {
		return 0
	}
	return time.Duration(min(h.h.ValueAtQuantile(100*q), inRange(h.max)))
}

// mean is the mean of the bucket middles in ns, but at most the maximum.
func (h *Histogram) mean() float64 { return min(h.h.Mean(), float64(inRange(h.max))) }

// Moments returns the mean in seconds and the mean of the square in s²; zeros for an empty
// histogram.
func (h *Histogram) Moments() (mean, square float64) {
	if h.Count() == 0 {
		return 0, 0
	}
	mean = h.mean() / 1e9
	deviation := h.h.StdDev() / 1e9
	return mean, mean*mean + deviation*deviation
}

// Smallest returns the rank-th smallest duration, counted from 1; 0 for an empty histogram.
func (h *Histogram) Smallest(rank int64) time.Duration {
	if h.Count() == 0 {
		return 0
	}
	// The histogram rounds 100·q·count half up to a rank; a quarter stays clear of the
	// rounding.
	return h.Quantile((float64(rank) - 0.25) / float64(h.Count()))
}

// Merge adds another histogram's counts.
func (h *Histogram) Merge(o *Histogram) {
	h.h.Merge(o.h)
	h.max = max(h.max, o.max)
}

// Reset clears all counts.
func (h *Histogram) Reset() {
	h.h.Reset()
	h.max = 0
}

// Latency is a histogram in a result. A quantile is null if there are too few samples: p90
// needs 10, p99 100 and p99.9 1000.
type Latency struct {
	Count  int64   `json:"count"`
	MeanNs float64 `json:"mean_ns"`
	P50Ns  *int64  `json:"p50_ns"`
	P90Ns  *int64  `json:"p90_ns"`
	P99Ns  *int64  `json:"p99_ns"`
	P999Ns *int64  `json:"p999_ns"`
	MaxNs  int64   `json:"max_ns"`
	// HDR is the histogram in HdrHistogram's V2 compressed encoding, base64.
	HDR string `json:"hdr"`
}

// Latency returns the histogram in its form for a result.
func (h *Histogram) Latency() (Latency, error) {
	encoded, err := h.h.Encode(hdr.V2CompressedEncodingCookieBase)
	if err != nil {
		return Latency{}, fmt.Errorf("encode histogram: %w", err)
	}
	l := Latency{Count: h.Count(), MaxNs: int64(h.max), HDR: string(encoded)}
	if l.Count > 0 {
		l.MeanNs = h.mean()
	}
	for _, q := range []struct {
		to   **int64
		q    float64
		need int64
	}{{&l.P50Ns, 0.5, 1}, {&l.P90Ns, 0.9, 10}, {&l.P99Ns, 0.99, 100}, {&l.P999Ns, 0.999, 1000}} {
		if l.Count >= q.need {
			v := int64(h.Quantile(q.q))
			*q.to = &v
		}
	}
	return l, nil
}

// Histogram decodes the result's histogram.
func (l Latency) Histogram() (*Histogram, error) {
	if l.HDR == "" {
		return nil, fmt.Errorf("read histogram: it is empty")
	}
	h, err := hdr.Decode([]byte(l.HDR))
	if err != nil {
		return nil, fmt.Errorf("read histogram: %w", err)
	}
	if h.TotalCount() != l.Count {
		return nil, fmt.Errorf("read histogram: it counts %d where the result says %d", h.TotalCount(), l.Count)
	}
	if l.Count > 0 && !h.ValuesAreEquivalent(h.Max(), inRange(time.Duration(l.MaxNs))) {
		return nil, fmt.Errorf("read histogram: its largest is about %d ns where the result says %d", h.Max(), l.MaxNs)
	}
	return &Histogram{h: h, max: time.Duration(l.MaxNs)}, nil
}

// MarshalJSON encodes the histogram as a Latency, to send it between the two sides of a
// run.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	l, err := h.Latency()
	if err != nil {
		return nil, err
	}
	return json.Marshal(l)
}

// UnmarshalJSON decodes MarshalJSON's output.
func (h *Histogram) UnmarshalJSON(b []byte) error {
	var l Latency
	if err := json.Unmarshal(b, &l); err != nil {
		return err
	}
	got, err := l.Histogram()
	if err != nil {
		return err
	}
	*h = *got
	return nil
}
