package main

import (
	"crypto/rand"
	"encoding/binary"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kvbench/bench"
	"kvbench/internal/units"
	"kvbench/payload"
	"kvbench/transport"
)

// runFlags are the flags that producer and loopback share.
type runFlags struct {
	shape shapeFlags
	check checkFlags

	requests    int
	duration    time.Duration
	warmup      int
	concurrency int
	rate        string
	arrivals    string
	overlap     string
	prefill     prefillFlags
	estimate    *prefillEstimate // nil unless --prefill auto
	direction   string
	pool        string
	verify      string
	hugePages   bool
	lock        bool
	memory      memoryFlags

	transport    string
	streams      int
	busyPoll     bool
	socketBuffer string
	device       string
	lane         string
	rdmaOp       string

	out    string
	format string
}

func (f *runFlags) register(cmd *cobra.Command) {
	f.shape.register(cmd, []string{"512", "1K", "2K"})
	f.check.register(cmd)
	f.prefill.register(cmd, "length of the emulated prefill of a request, such as 500ms, one a context or one for all; or auto: computed, from --gpu")
	flags := cmd.Flags()
	flags.Uint64Var(&f.shape.seed, "seed", 1, "of block tables, schedules and calibration order")
	flags.IntVar(&f.requests, "requests", 20, "requests measured at each context")
	flags.DurationVar(&f.duration, "duration", 0, "measure each context for so long instead, such as 30s")
	flags.IntVar(&f.warmup, "warmup", 3, "requests at each context before measuring")
	flags.IntVar(&f.concurrency, "concurrency", 1, "requests in flight, each with its own connection and memory")
	flags.StringVar(&f.rate, "rate", "", "open loop: requests arrive at this rate, such as 10/s, ready or not (default: closed loop)")
	flags.StringVar(&f.arrivals, "arrivals", "poisson", "spacing of an open loop: poisson or uniform")
	flags.StringVar(&f.overlap, "overlap", "none", "none: all layers at once; layer: each as an emulated prefill makes it")
	flags.StringVar(&f.direction, "direction", "push", "push: the producer writes; pull: the consumer reads")
	flags.StringVar(&f.pool, "pool", "", "memory of a request on either side, reused within it, such as 64MiB (default: the whole request)")
	flags.StringVar(&f.verify, "verify", "stamp", "what is checked of the bytes that arrive: none, stamp (both ends of each block) or full")
	flags.BoolVar(&f.hugePages, "hugepages", false, "ask the kernel for transparent huge pages on both sides")
	flags.BoolVar(&f.lock, "lock", false, "lock the memory, so that it cannot be swapped out")
	f.memory.register(cmd)
	flags.StringVar(&f.transport, "transport", "tcp", "what carries the data: tcp, rdma (UCX), or cuda (CUDA IPC between GPUs of one host)")
	registerDevice(cmd, &f.device)
	flags.StringVar(&f.lane, "lane", "", "rdma: what must carry the data, rc, dc, ud, tcp or shm (default: any RDMA lane); a run on another fails")
	flags.StringVar(&f.rdmaOp, "rdma-op", "", "rdma: put or am (active messages) to push, get to pull (default: put, get)")
	flags.IntVar(&f.streams, "streams", 1, "connections (tcp) or CUDA streams (cuda) that share each transfer")
	flags.BoolVar(&f.busyPoll, "busy-poll", false, "spin for data instead of sleeping")
	flags.StringVar(&f.socketBuffer, "socket-buffer", "", "socket buffer of each connection, such as 4MiB (default: the kernel's choice)")
	flags.StringVar(&f.out, "out", "", "file for the run record (JSON)")
	registerFormat(cmd, &f.format)
}

// plan returns the flags as a plan and a load. given reports whether a flag was set.
// Every error is the caller's mistake.
func (f *runFlags) plan(given func(flag string) bool) (bench.Plan, bench.Load, error) {
	p := bench.Plan{
		Transport: f.transport,
		Workers:   f.concurrency,
		HugePages: f.hugePages,
		Lock:      f.lock,
		Config:    transport.Config{Streams: f.streams, BusyPoll: f.busyPoll, Device: f.device},
	}
	l := bench.Load{Requests: f.requests, Duration: f.duration, Warmup: f.warmup, Seed: f.shape.seed}
	var err error
	if p.Memory, err = f.memory.parse(f.transport, given); err != nil {
		return p, l, err
	}
	p.Config.GPU = f.memory.gpu
	if l.Rate, err = parseArrivals(f.rate); err != nil {
		return p, l, err
	}
	if l.Arrivals, err = bench.ParseArrivals(f.arrivals); err != nil {
		return p, l, usagef("--arrivals: %w", err)
	}
	if p.Specs, err = f.shape.specs(); err != nil {
		return p, l, err
	}
	if l.Prefill, err = f.parsePrefill(p.Specs); err != nil {
		return p, l, err
	}
	if p.Rank, err = f.shape.parseRank(); err != nil {
		return p, l, err
	}
	if p.Direction, err = bench.ParseDirection(f.direction); err != nil {
		return p, l, usagef("--direction: %w", err)
	}
	if f.transport == "rdma" { // for other transports they can only come from the environment
		p.Config.Lane, p.Config.Operation = f.lane, f.rdmaOp
		if err = checkOperation(f.rdmaOp, p.Direction); err != nil {
			return p, l, err
		}
	}
	if p.Verify, err = payload.ParseDepth(f.verify); err != nil {
		return p, l, usagef("--verify: %w", err)
	}
	if f.pool != "" {
		if p.Pool, err = units.ParseBytes(f.pool); err != nil || p.Pool == 0 {
			return p, l, usagef("--pool %q is not a size such as 64MiB", f.pool)
		}
	}
	if f.socketBuffer != "" {
		n, err := units.ParseBytes(f.socketBuffer)
		if err != nil || n < 1 || n > 1<<30 {
			return p, l, usagef("--socket-buffer %q is not a size up to 1GiB such as 4MiB", f.socketBuffer)
		}
		p.Config.SocketBuffer = int(n)
	}
	if f.duration < 0 {
		return p, l, usagef("--duration %s: give a time above 0, such as 30s", f.duration)
	}
	if expected := l.Rate * l.Duration.Seconds(); l.Rate > 0 && l.Duration > 0 && expected < 1 {
		return p, l, usagef("--rate %s brings %.2g of a request in --duration %s: raise one of them", f.rate, expected, f.duration)
	}
	if f.check.calibrate == "auto" {
		l.Calibrate = calibrationTime
	}
	var id [8]byte
	rand.Read(id[:])
	p.RunID = binary.LittleEndian.Uint64(id[:])
	return p, l, asUsage(p.Validate())
}

// calibrationTime is the approximate length of calibration on a fast path.
const calibrationTime = 6 * time.Second

// parsePrefill parses the emulated prefill of each context. It returns nil without
// --overlap layer.
func (f *runFlags) parsePrefill(specs []payload.Spec) ([]time.Duration, error) {
	switch f.overlap {
	case "none":
		return nil, nil
	case "layer":
	default:
		return nil, usagef("--overlap %q is not known: choose none or layer", f.overlap)
	}
	if f.prefill.prefill == "auto" {
		return f.estimatePrefill(specs)
	}
	parts := strings.Split(f.prefill.prefill, ",")
	if len(parts) != 1 && len(parts) != len(specs) {
		return nil, usagef("--prefill gives %d lengths for %s: give one for all, or one for each", len(parts), units.Count(len(specs), "context"))
	}
	lengths := make([]time.Duration, len(specs))
	for i := range lengths {
		text := parts[min(i, len(parts)-1)]
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 || d > longestPrefill {
			return nil, usagef("--overlap layer needs --prefill, how long a prefill takes, such as 500ms, or auto; %q is neither", text)
		}
		lengths[i] = d
	}
	return lengths, nil
}

// longestPrefill is the longest emulated prefill.
const longestPrefill = time.Hour

// estimatePrefill computes the prefill of each context.
func (f *runFlags) estimatePrefill(specs []payload.Spec) ([]time.Duration, error) {
	var err error
	if f.estimate, err = f.prefill.estimate(specs[0].Geometry); err != nil {
		return nil, err
	}
	lengths := make([]time.Duration, len(specs))
	for i, s := range specs {
		seconds := f.estimate.Seconds(s.Tokens, 0)
		if seconds > longestPrefill.Seconds() {
			return nil, usagef("--prefill auto: %s tokens take %s, and at most %s is emulated: lower --context, or name more or faster --gpus", units.Tokens(s.Tokens), units.Seconds(seconds), units.Seconds(longestPrefill.Seconds()))
		}
		lengths[i] = time.Duration(seconds * float64(time.Second))
	}
	return lengths, nil
}

// registerDevice adds the flag for this side's device.
func registerDevice(cmd *cobra.Command, device *string) {
	cmd.Flags().StringVar(device, "device", "", "device of this side that must carry the data, such as eth0 or mlx5_0:1 (default: tcp: as routed; rdma: UCX's choice)")
}

// checkOperation returns a usage error if --rdma-op does not fit the direction: the
// producer puts or sends, the consumer gets.
func checkOperation(op string, d bench.Direction) error {
	fits := map[string]bench.Direction{"put": bench.Push, "am": bench.Push, "get": bench.Pull}
	want, known := fits[op]
	switch {
	case op == "":
		return nil
	case !known:
		return usagef("--rdma-op %q is not known: choose put, am or get", op)
	case want != d:
		return usagef("--rdma-op %s cannot %s: add --direction %s, or choose another operation", op, d, want)
	}
	return nil
}
