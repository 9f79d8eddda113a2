package bench

import (
	"fmt"
	"time"
	"unsafe"

	"kvbench/internal/units"
	"kvbench/payload"
	"kvbench/transport"
)

// Direction selects the side that initiates.
type Direction string

// The directions.
const (
	Push Direction = "push" // the producer WRITEs into the consumer's memory
	Pull Direction = "pull" // the consumer READs the producer's memory
)

// ParseDirection parses push or pull.
func ParseDirection(s string) (Direction, error) {
	switch d := Direction(s); d {
	case Push, Pull:
		return d, nil
	}
	return "", fmt.Errorf("direction %q is not known: choose push or pull", s)
}

func (d Direction) op() transport.Op {
	if d == Pull {
		return transport.Read
	}
	return transport.Write
}

// Plan is the parameters of a run that the producer sends to the consumer: everything
// that both must do alike.
type Plan struct {
	RunID     uint64           `json:"run_id"` // seeds the bytes
	Transport string           `json:"transport"`
	Config    transport.Config `json:"config"`
	Direction Direction        `json:"direction"`
	Workers   int              `json:"workers"` // requests in flight
	Specs     []payload.Spec   `json:"specs"`   // one per cell
	Rank      Rank             `json:"rank"`
	Pool      int64            `json:"pool_bytes"` // a worker's memory on either side; 0 holds a whole request
	Verify    payload.Depth    `json:"verify"`
	// Memory is the kind of memory that holds the KV cache on both sides.
	Memory    transport.MemoryKind `json:"memory"`
	HugePages bool                 `json:"huge_pages"`
	Lock      bool                 `json:"lock"` // lock the memory against swapping
}

// Rank selects the prefill and decode ranks that exchange the traffic of a run.
type Rank struct {
	Prefill int `json:"prefill"`
	Decode  int `json:"decode"`
}

const (
	maxWorkers = 1024
	maxSpecs   = 1000
)

// Validate checks everything that does not depend on a host.
func (p Plan) Validate() error {
	if _, err := ParseDirection(string(p.Direction)); err != nil {
		return err
	}
	if _, err := payload.ParseDepth(string(p.Verify)); err != nil {
		return err
	}
	if p.Memory != transport.HostMemory && p.Memory != transport.CUDAMemory {
		return fmt.Errorf("memory %q is not known: choose host or cuda", p.Memory)
	}
	if p.Workers < 1 || p.Workers > maxWorkers {
		return fmt.Errorf("concurrency of %d: choose 1 to %d", p.Workers, maxWorkers)
	}
	if len(p.Specs) < 1 || len(p.Specs) > maxSpecs {
		return fmt.Errorf("%d contexts: choose 1 to %d", len(p.Specs), maxSpecs)
	}
	if p.Pool < 0 {
		return fmt.Errorf("pool of %d bytes: give a size, or 0 for whole requests", p.Pool)
	}
	for _, s := range p.Specs {
		if err := s.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// PlanError is returned for a plan that no host can carry out: the caller's mistake.
type PlanError struct{ err error }

// Error implements error.
func (e *PlanError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *PlanError) Unwrap() error { return e.err }

// cell is one spec with its prepared transfers and their descriptors.
type cell struct {
	spec        payload.Spec
	shape       payload.Shape
	plan        *payload.Plan
	descriptors [][]transport.Descriptor // by transfer; Local is the initiator's side
	ready       []int                    // by transfer: layers that prefill has made when the transfer may leave
	workingSet  int64
}

// layers returns the number of layers that move.
func (c *cell) layers() int { return c.ready[len(c.ready)-1] }

// footprint is the memory that a plan takes on one side, in bytes.
type footprint struct {
	worker int64 // KV cache of each worker, plus the transport's own memory
	tokens int64 // the context with the largest worker, in tokens
	lists  int64 // byte ranges of all cells, for any number of workers
}

// MemoryError is returned when a plan needs more memory than a side has or allows.
type MemoryError struct {
	Side          string // consumer, producer, or both
	Need          int64  // bytes of one side
	Limit         int64  // bytes that the side, or both together, may use
	Each          int64  // bytes of each of Workers concurrent requests
	Workers       int
	ContextTokens int64
	Lists         int64  // bytes of Need that hold the byte ranges of all contexts
	Raise         string // advice for raising Limit
}

// Error implements error.
func (e *MemoryError) Error() string {
	what := fmt.Sprintf("the %s needs %s of memory", e.Side, units.BinaryBytes(e.Need))
	if e.Side == bothSides {
		what = fmt.Sprintf("producer and consumer need %s of memory each, on one host", units.BinaryBytes(e.Need))
	}
	lists, lower := "", "--context, --layers or --concurrency"
	if e.Lists >= e.Need/10 {
		lists, lower = fmt.Sprintf(", and %s for the lists of all contexts' byte ranges", units.BinaryBytes(e.Lists)), lower+", raise --block-tokens"
	}
	return fmt.Sprintf("%s (%s at a time, of %s each at %s tokens%s), but %s is the limit: lower %s, "+
		"give --pool to reuse a smaller memory on both sides, or %s",
		what, units.Count(e.Workers, "request"), units.BinaryBytes(e.Each), units.Tokens(e.ContextTokens), lists, units.BinaryBytes(e.Limit), lower, e.Raise)
}

// bothSides is the Side of a host that a producer and its consumer share.
const bothSides = "both"

// pageSize aligns workers' memory, so that no two share a page.
const pageSize = 4096

// memory returns the plan's footprint by closed forms: a lower bound for one worker, and
// the lists that cells makes.
func (p Plan) memory() (f footprint, err error) {
	for _, s := range p.Specs {
		shape, err := s.Shape()
		if err != nil {
			return f, err
		}
		pieces, blocks, err := s.Ranges(p.Rank.Prefill, p.Rank.Decode)
		if err != nil {
			return f, err
		}
		f.lists += listed(pieces, blocks)
		pair, _ := shape.Pair(p.Rank.Prefill, p.Rank.Decode)
		if n := p.pooled(pair.Bytes); n > f.worker {
			f.worker, f.tokens = n, s.Tokens
		}
	}
	return f, nil
}

// listed returns the bytes of a cell's lists: its pieces, the stamped blocks, and the
// pieces again as descriptors. Counts are capped above any real cell, so that the sum
// over 1000 cells does not overflow.
func listed(pieces, blocks int64) int64 {
	const most = 1 << 40
	piece, descriptor := int64(unsafe.Sizeof(payload.Piece{})), int64(unsafe.Sizeof(transport.Descriptor{}))
	return min(pieces, most)*(piece+descriptor) + min(blocks, most)*piece
}

func (p Plan) pooled(bytes int64) int64 {
	if p.Pool > 0 {
		return min(bytes, p.Pool)
	}
	return bytes
}

// checkMemory returns a *MemoryError if a side needs more than limit bytes. A limit of 0
// is not checked.
func (p Plan) checkMemory(side string, f footprint, limit int64, raise string) error {
	need := int64(1 << 61)
	if f.worker < need/maxWorkers {
		need = f.worker*int64(p.Workers) + f.lists
	}
	total := need
	if side == bothSides {
		total *= 2
	}
	if limit > 0 && total > limit {
		return &MemoryError{side, need, limit, f.worker, p.Workers, f.tokens, f.lists, raise}
	}
	return nil
}

// cells prepares the plan's cells, for an initiator or a target on either side.
func (p Plan) cells() ([]cell, error) {
	cells := make([]cell, len(p.Specs))
	for i, s := range p.Specs {
		shape, err := s.Shape()
		if err != nil {
			return nil, err
		}
		plan, err := s.Pair(p.Rank.Prefill, p.Rank.Decode)
		if err != nil {
			return nil, err
		}
		if plan, err = plan.Fold(p.Pool); err != nil {
			return nil, err
		}
		cells[i] = cell{spec: s, shape: shape, plan: plan, workingSet: min(plan.Bytes, plan.SourceBytes)}
		for _, t := range plan.Transfers {
			cells[i].descriptors = append(cells[i].descriptors, p.orient(t.Pieces))
			cells[i].ready = append(cells[i].ready, t.Ready)
		}
	}
	return cells, nil
}

// orient converts pieces to descriptors from the initiator's side.
func (p Plan) orient(pieces []payload.Piece) []transport.Descriptor {
	descs := make([]transport.Descriptor, len(pieces))
	for i, d := range pieces {
		descs[i] = transport.Descriptor{Local: d.Source, Remote: d.Dest, Length: d.Length}
		if p.Direction == Pull {
			descs[i].Local, descs[i].Remote = d.Dest, d.Source
		}
	}
	return descs
}

// spans returns the bytes of one worker's memory at source and destination, in whole
// pages, and the tokens of the largest context.
func spans(cells []cell) (source, dest, tokens int64) {
	for _, c := range cells {
		if n := max(c.plan.SourceBytes, c.plan.DestBytes); n > max(source, dest) {
			tokens = c.spec.Tokens
		}
		source, dest = max(source, c.plan.SourceBytes), max(dest, c.plan.DestBytes)
	}
	round := func(n int64) int64 { return (n + pageSize - 1) / pageSize * pageSize }
	return round(source), round(dest), tokens
}

// configure raises the transport's limits to fit the plan's cells.
func (p Plan) configure(cells []cell) transport.Config {
	cfg := p.Config
	for _, c := range cells {
		cfg.MaxOutstanding = max(cfg.MaxOutstanding, len(c.plan.Transfers), calibrationTransfers)
		for _, d := range c.descriptors {
			cfg.MaxDescriptors = max(cfg.MaxDescriptors, len(d), transport.DefaultMaxDescriptors)
		}
	}
	cfg.MaxOutstanding = min(cfg.MaxOutstanding, 1<<14)
	return cfg
}

// setupTimeout bounds each step of connecting a run, apart from making memory.
const setupTimeout = 20 * time.Second

// listing returns how long a side may take to make its lists, beside setupTimeout. 15 ms
// per MiB was measured on a shared machine with expensive page faults.
func (f footprint) listing() time.Duration {
	return time.Duration(f.lists>>20) * 50 * time.Millisecond
}

// patience returns how long one side waits while the other makes its memory. On a busy
// virtual machine, each GiB can take seconds.
func (p Plan) patience(cells []cell) time.Duration {
	source, dest, _ := spans(cells)
	gib := max(source, dest) * int64(p.Workers) >> 30
	return setupTimeout + time.Duration(gib)*10*time.Second
}
