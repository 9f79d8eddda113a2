package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"kvbench/model"
	"kvbench/transport"
)

// calibrationTransfers is the most transfers that calibration posts together.
const calibrationTransfers = 64

// calibration is one stretch of calibration. A run has several, before, between
// and after its cells, so that a host whose speed drifts is judged by the
// speed that it had all along.
type calibration struct {
	Seed   uint64        `json:"seed"`
	Budget time.Duration `json:"budget_ns"` // wanted length of all stretches together
	Share  int           `json:"share"`     // this one is the Share-th part of the budget
}

// trial is a batch to be timed: its counts, made independent of one another.
type trial struct {
	transfers, descriptors int // descriptors of all transfers together
	bytes                  int64
}

// calibrator times batches on an otherwise idle path.
type calibrator struct {
	in     *initiator
	span   int64 // memory on both sides
	rng    *rand.Rand
	offset int64 // where the next batch begins: batches walk through memory, as requests do
	avoid  map[trial]bool
	most   int // descriptors that a request has
	// cellCounts are the numbers of descriptors of the cells' requests.
	cellCounts map[int]bool
	trials     []trial

	batches uint64 // timed so far
}

// firstBatch is where the numbers of batches begin, above those of requests.
const firstBatch = 1 << 31

const (
	leastRounds   = 7 // every batch is timed so often, whatever it costs
	mostRounds    = 41
	smallestBatch = 16 << 10
	largestBatch  = 256 << 20
	sizeLevels    = 7
)

// newCalibrator designs the batches to time, none of which is a request of the
// cells.
func (s *side) newCalibrator(ctx context.Context, c calibration) (*calibrator, error) {
	in := s.initiators[0]
	k := &calibrator{in: in, span: min(s.span, in.remote.Size), rng: rand.New(rand.NewPCG(c.Seed, 0)), avoid: make(map[trial]bool), cellCounts: make(map[int]bool)}
	for _, cell := range s.cells {
		k.avoid[trial{len(cell.plan.Transfers), cell.plan.Descriptors, cell.plan.Bytes}] = true
		k.cellCounts[cell.plan.Descriptors] = true
		k.most = max(k.most, cell.plan.Descriptors)
	}
	var err error
	if k.trials, err = k.design(ctx, c.Budget); err != nil {
		return nil, fmt.Errorf("calibrate: %w", err)
	}
	return k, nil
}

// calibrate runs one stretch: batches whose bytes, descriptors and transfers vary
// independently over decades, each in turn, in random order.
func (s *side) calibrate(ctx context.Context, c calibration, report func(done, total int)) ([]model.Sample, error) {
	share := max(c.Share, 1)
	if s.calibrator == nil {
		var err error
		if s.calibrator, err = s.newCalibrator(ctx, c); err != nil {
			return nil, err
		}
	}
	k := s.calibrator
	budget := c.Budget / time.Duration(share)
	least, most := (leastRounds+share-1)/share, (mostRounds+share-1)/share
	var samples []model.Sample
	start := time.Now()
	for round := 0; round < least || round < most && time.Since(start) < budget; round++ {
		k.rng.Shuffle(len(k.trials), func(i, j int) { k.trials[i], k.trials[j] = k.trials[j], k.trials[i] })
		for i, t := range k.trials {
			d, err := k.time(ctx, t)
			if err != nil {
				return nil, fmt.Errorf("calibrate: %w", err)
			}
			samples = append(samples, model.Sample{Transfers: t.transfers, Descriptors: t.descriptors, Bytes: t.bytes, Seconds: d.Seconds()})
			report(round*len(k.trials)+i+1, max(least, round+1)*len(k.trials))
		}
	}
	return samples, nil
}

// design chooses the batches to time: the largest takes so long that all of them
// fit the budget, as far as a first look at the path tells.
func (k *calibrator) design(ctx context.Context, budget time.Duration) ([]trial, error) {
	largest, err := k.largest(ctx, budget)
	if err != nil {
		return nil, err
	}
	smallest := min(smallestBatch, max(1, largest/64))
	var trials []trial
	seen := make(map[trial]bool)
	for level := range sizeLevels {
		share := float64(level) / (sizeLevels - 1)
		bytes := int64(float64(smallest) * math.Pow(float64(largest)/float64(smallest), share))
		for _, counts := range k.counts() {
			t := trial{counts[0], counts[1], bytes}
			for k.avoid[t] || seen[t] {
				t.bytes-- // one byte less is another batch
			}
			if t.bytes < int64(t.descriptors) {
				continue // less than a byte a descriptor
			}
			seen[t] = true
			trials = append(trials, t)
		}
	}
	return trials, nil
}

// counts are the transfers and descriptors tried at every size, so that neither
// goes with the size nor with the other. Counts of several descriptors are none
// that a cell has: the fit predicts them without having seen them.
func (k *calibrator) counts() [][2]int {
	many := k.unlikeCells(max(256, min(k.most, 1<<15)))
	middle := k.unlikeCells(int(math.Sqrt(float64(many))))
	return [][2]int{
		{1, 1}, {1, middle}, {1, many},
		{8, k.unlikeCells(8)}, {8, max(8, middle)}, {calibrationTransfers, k.unlikeCells(calibrationTransfers)}, {calibrationTransfers, max(calibrationTransfers, many)},
	}
}

// unlikeCells is the least count of descriptors from n up that no cell has.
func (k *calibrator) unlikeCells(n int) int {
	for k.cellCounts[n] {
		n++
	}
	return n
}

// largest returns the most bytes of a batch such that every batch together takes
// at most the budget: sizes are log-spaced, so the mean batch is less than a third
// of the largest.
func (k *calibrator) largest(ctx context.Context, budget time.Duration) (int64, error) {
	batches := float64(sizeLevels * len(k.counts()) * leastRounds)
	share := budget.Seconds() * 3 / batches
	bytes := int64(smallestBatch)
	for {
		bytes = min(bytes, k.span, largestBatch)
		best := math.Inf(1)
		for range 3 {
			d, err := k.time(ctx, trial{1, 1, bytes})
			if err != nil {
				return 0, err
			}
			best = min(best, d.Seconds())
		}
		if best >= share || bytes == min(k.span, largestBatch) {
			return max(1, int64(float64(bytes)*min(1, share/best))), nil
		}
		bytes *= 4
	}
}

// time moves one batch over fresh memory and returns how long it took.
func (k *calibrator) time(ctx context.Context, t trial) (time.Duration, error) {
	descriptors := k.spread(t)
	k.batches++
	m, err := k.in.move(ctx, job{request: firstBatch + k.batches, descriptors: descriptors})
	return m.end - m.start, err
}

// spread cuts a batch into transfers of descriptors that no transport can merge:
// the remote side holds them in reverse order.
func (k *calibrator) spread(t trial) [][]transport.Descriptor {
	if k.offset+t.bytes > k.span {
		k.offset = 0
	}
	base := k.offset
	k.offset += (t.bytes + pageSize - 1) / pageSize * pageSize
	bounds := func(i, n int, total int64) int64 { return total/int64(n)*int64(i) + min(int64(i), total%int64(n)) }
	batch := make([][]transport.Descriptor, t.transfers)
	for i := range t.descriptors {
		from, to := bounds(i, t.descriptors, t.bytes), bounds(i+1, t.descriptors, t.bytes)
		j := i * t.transfers / t.descriptors
		batch[j] = append(batch[j], transport.Descriptor{Local: base + from, Remote: base + t.bytes - to, Length: to - from})
	}
	return batch
}
