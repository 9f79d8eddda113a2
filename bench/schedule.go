package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"kvbench/transport"
)

// Arrivals says how an open loop spaces its requests.
type Arrivals string

// The spacings.
const (
	Poisson Arrivals = "poisson" // exponential gaps: independent users
	Uniform Arrivals = "uniform" // equal gaps
)

// ParseArrivals reads an Arrivals.
func ParseArrivals(s string) (Arrivals, error) {
	switch a := Arrivals(s); a {
	case Poisson, Uniform:
		return a, nil
	}
	return "", fmt.Errorf("arrivals %q are not known: choose poisson or uniform", s)
}

// schedule is when the requests of an open loop are due, whatever becomes of the
// ones before: a slow answer delays no later question.
type schedule struct {
	rng  *rand.Rand // nil for equal gaps
	mean float64    // gap, seconds
	at   float64    // of the latest request, seconds
}

func newSchedule(l Load) *schedule {
	s := &schedule{mean: 1 / l.Rate}
	if l.Arrivals != Uniform {
		s.rng = rand.New(rand.NewPCG(l.Seed, 1))
	}
	return s
}

// next returns when the next request is due, from the start.
func (s *schedule) next() time.Duration {
	gap := s.mean
	if s.rng != nil {
		gap *= s.rng.ExpFloat64()
	}
	s.at += gap
	return time.Duration(min(s.at*float64(time.Second), float64(math.MaxInt64/2)))
}

// stageClock turns due times, which count from the start of a stage, into the
// initiator's. The stage starts when the first due time is asked for.
type stageClock struct {
	mu      sync.Mutex
	started bool
	start   time.Duration
}

func (c *stageClock) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started = false
}

// notDue is when a request of a closed loop is due: it starts when it can.
const notDue = time.Duration(math.MaxInt64)

// due turns a due time into the initiator's; a negative one into notDue.
func (c *stageClock) due(at time.Duration) time.Duration {
	if at < 0 {
		return notDue
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started {
		c.started, c.start = true, transport.Now()
	}
	return c.start + at
}
