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

// calibration says how a path is to be calibrated.
type calibration struct {
	Seed   uint64        `json:"seed"`
	Budget time.Duration `json:"budget_ns"` // wanted length; a slow path takes longer
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
	next   uint64 // request number, apart from those of requests
	offset int64  // where the next batch begins: batches walk through memory, as requests do
	avoid  map[trial]bool
	most   int // descriptors that a request has
}

const (
	calibrationRepeats = 7
	smallestBatch      = 16 << 10
	largestBatch       = 256 << 20
	sizeLevels         = 7
)

// calibrate times batches whose bytes, descriptors and transfers vary
// independently over decades, in random order, none of which is a request of the
// cells to come.
func (s *side) calibrate(ctx context.Context, c calibration, report func(done, total int)) ([]model.Sample, error) {
	k := &calibrator{in: s.initiators[0], span: s.span, rng: rand.New(rand.NewPCG(c.Seed, 0)), avoid: make(map[trial]bool)}
	k.span = min(k.span, k.in.remote.Size)
	for _, cell := range s.cells {
		k.avoid[trial{len(cell.plan.Transfers), cell.plan.Descriptors, cell.plan.Bytes}] = true
		k.most = max(k.most, cell.plan.Descriptors)
	}
	trials, err := k.design(ctx, c.Budget)
	if err != nil {
		return nil, err
	}
	order := make([]trial, 0, len(trials)*calibrationRepeats)
	for range calibrationRepeats {
		order = append(order, trials...)
	}
	k.rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	samples := make([]model.Sample, len(order))
	for i, t := range order {
		d, err := k.time(ctx, t)
		if err != nil {
			return nil, fmt.Errorf("calibrate: %w", err)
		}
		samples[i] = model.Sample{Transfers: t.transfers, Descriptors: t.descriptors, Bytes: t.bytes, Seconds: d.Seconds()}
		report(i+1, len(order))
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
		for _, counts := range k.counts(level) {
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

// counts are the transfers and descriptors tried at a level of size. Neither goes
// with the size or with the other: each level takes the same pairs.
func (k *calibrator) counts(int) [][2]int {
	many := max(256, min(k.most, 1<<15))
	middle := int(math.Sqrt(float64(many)))
	return [][2]int{
		{1, 1}, {1, middle}, {1, many},
		{8, 8}, {8, max(8, middle)}, {calibrationTransfers, calibrationTransfers}, {calibrationTransfers, max(calibrationTransfers, many)},
	}
}

// largest returns the most bytes of a batch such that every batch together takes
// about the budget: sizes are log-spaced, so the mean batch is about a third of
// the largest.
func (k *calibrator) largest(ctx context.Context, budget time.Duration) (int64, error) {
	batches := float64(sizeLevels * len(k.counts(0)) * calibrationRepeats)
	share := budget.Seconds() * 3 / batches
	bytes := int64(smallestBatch)
	for {
		bytes = min(bytes, k.span, largestBatch)
		best := math.Inf(1)
		for range 3 {
			d, err := k.time(ctx, trial{1, 1, bytes})
			if err != nil {
				return 0, fmt.Errorf("calibrate: %w", err)
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
	k.next++
	s, _, err := k.in.move(ctx, k.next, descriptors, nil)
	return s.end - s.start, err
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
