package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"kvbench/transport"
)

// Arrivals selects how an open loop spaces its requests.
type Arrivals string

// The spacings.
const (
	Poisson Arrivals = "poisson" // exponential gaps: independent users
	Uniform Arrivals = "uniform" // equal gaps
)

// ParseArrivals parses poisson or uniform.
func ParseArrivals(s string) (Arrivals, error) {
	switch a := Arrivals(s); a {
	case Poisson, Uniform:
		return a, nil
	}
	return "", fmt.Errorf("arrivals %q are not known: choose poisson or uniform", s)
}

// schedule computes the due times of an open loop's requests. They do not depend on
// earlier requests: a slow answer delays no later request.
type schedule struct {
	rng  *rand.Rand // nil for equal gaps
	mean float64    // mean gap in seconds
	at   float64    // due time of the latest request, in seconds
}

func newSchedule(l Load) *schedule {
	s := &schedule{mean: 1 / l.Rate}
	if l.Arrivals != Uniform {
		s.rng = rand.New(rand.NewPCG(l.Seed, 1))
	}
	return s
}

// next returns the due time of the next request, from the start.
func (s *schedule) next() time.Duration {
	gap := s.mean
	if s.rng != nil {
		gap *= s.rng.ExpFloat64()
	}
	s.at += gap
	return time.Duration(min(s.at*float64(time.Second), float64(math.MaxInt64/2)))
}

// stageClock converts due times, counted from the start of a stage, to the initiator's
// clock. The stage starts with its first due time.
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

// notDue is the due time of a closed loop's request, which starts as soon as it can.
const notDue = time.Duration(math.MaxInt64)

// due converts a due time to the initiator's clock, and a negative time to notDue.
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
