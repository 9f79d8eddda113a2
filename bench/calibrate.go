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

// calibrationTransfers is the most transfers in one batch of calibration.
const calibrationTransfers = 64

// calibration is one stretch of calibration. A run calibrates before, between and after
// its cells, so that the fit covers the whole run even if the host's speed drifts.
type calibration struct {
	Seed   uint64        `json:"seed"`
	Budget time.Duration `json:"budget_ns"` // wanted length of all stretches together
	Share  int           `json:"share"`     // this stretch gets Budget / Share
}

// trial is a batch to time. Its counts are chosen independently of one another.
type trial struct {
	transfers, descriptors int // descriptors of all transfers together
	bytes                  int64
}

// calibrator times batches on an otherwise idle path.
type calibrator struct {
	in     *initiator
	span   int64 // bytes of memory usable on both sides
	rng    *rand.Rand
	offset int64 // start of the next batch: batches walk through memory, as requests do
	avoid  map[trial]bool
	most   int // most descriptors of a cell's request
	// cellCounts holds the descriptor counts of the cells' requests.
	cellCounts map[int]bool
	trials     []trial

	batches uint64 // timed so far
}

// firstBatch is the number of the first batch, above every request's.
const firstBatch = 1 << 31

const (
	leastRounds   = 7 // every batch is timed at least this often, even over budget
	mostRounds    = 41
	smallestBatch = 16 << 10
	largestBatch  = 256 << 20
	sizeLevels    = 7
)

// newCalibrator chooses the batches to time. None equals a request of the cells.
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

// calibrate runs one stretch: it times batches in random order. Their bytes, descriptors
// and transfers vary independently over decades.
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

// design chooses the batches to time. It limits the largest so that all of them fit the
// budget, judging by a few timed transfers.
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
				t.bytes-- // one byte less makes another batch
			}
			if t.bytes < int64(t.descriptors) {
				continue // less than one byte per descriptor
			}
			seen[t] = true
			trials = append(trials, t)
		}
	}
	return trials, nil
}

// counts returns the pairs of transfers and descriptors to try at every size, chosen so
// that neither correlates with the size or with the other. Descriptor counts above one
// differ from every cell's, so the fit predicts the cells without having seen their
// counts.
func (k *calibrator) counts() [][2]int {
	many := k.unlikeCells(max(256, min(k.most, 1<<15)))
	middle := k.unlikeCells(int(math.Sqrt(float64(many))))
	return [][2]int{
		{1, 1}, {1, middle}, {1, many},
		{8, k.unlikeCells(8)}, {8, max(8, middle)}, {calibrationTransfers, k.unlikeCells(calibrationTransfers)}, {calibrationTransfers, max(calibrationTransfers, many)},
	}
}

// unlikeCells returns the least descriptor count from n up that no cell has.
func (k *calibrator) unlikeCells(n int) int {
	for k.cellCounts[n] {
		n++
	}
	return n
}

// largest returns the size in bytes of the largest batch, such that all batches together
// take at most the budget. Sizes are log-spaced, so the mean batch is less than a third
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

// time moves one batch over fresh memory and returns its duration.
func (k *calibrator) time(ctx context.Context, t trial) (time.Duration, error) {
	descriptors := k.spread(t)
	k.batches++
	m, err := k.in.move(ctx, job{request: firstBatch + k.batches, descriptors: descriptors})
	return m.end - m.start, err
}

// spread splits a batch into transfers. No transport can merge their descriptors, because
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
