package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"kvbench/transport"
	"kvbench/transport/rdma"
	"kvbench/transport/tcp"
)

// A point is a call of the transport in one of the two processes of a run. At the n-th
// such call the process acts: it kills itself, or announces the point on standard error,
// so that a test need not guess when it is there.
//
//	listen      Listen returned
//	dial        Dial or DialTarget returned
//	accept      AcceptTarget or AcceptInitiator returned
//	register    Register returned
//	advertise   Advertise returned (target)
//	import      Import returned (initiator)
//	post        Post returned (initiator)
//	completion  Poll returned a completion (initiator)
//	notice      Notifications returned a notice (target)
//	close       Close of an endpoint is about to be called
type point struct {
	side string // producer or consumer
	name string
	n    int64 // 1 is the first
}

// pointVar holds a point and an action in the environment of a kvbench.
const pointVar = "RUN_KVBENCH_POINT"

// What a process does at a point.
const (
	die      = "die"      // kill itself
	announce = "announce" // and go on
	await    = "await"    // announce, and go on once a signal has ended the process's context
	hang     = "hang"     // announce, and never return
)

// to returns the environment in which the process does something at the point.
func (p point) to(action string) launch {
	return launch{env: []string{fmt.Sprintf("%s=%s %s %d %s", pointVar, p.side, p.name, p.n, action)}}
}

func (p point) String() string { return fmt.Sprintf("%s at %s %d", p.side, p.name, p.n) }

// reached waits for the announcement of a point.
func (p *process) reached(t *testing.T, at point) {
	t.Helper()
	p.stderr.await(t, fmt.Sprintf("[%v]", at))
}

// pointed returns the transports of host memory. If the point in spec is on the side of
// this command, they act at it.
func pointed(ctx context.Context, spec string, command string) []transport.Transport {
	f := strings.Fields(spec)
	n, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil {
		panic(err)
	}
	side := "producer"
	if command == "consumer" {
		side = command
	}
	if side != f[0] {
		return transports()
	}
	w := &watch{point: point{side, f[1], n}, action: f[3], ctx: ctx}
	return []transport.Transport{pointedTransport{tcp.New(), w}, pointedTransport{rdma.New(), w}}
}

// watch counts the calls of a point's name and acts at the n-th.
type watch struct {
	point
	action string
	ctx    context.Context // of the process
	calls  atomic.Int64
}

// at counts n calls.
func (w *watch) at(name string, n int) {
	if name != w.name || n == 0 {
		return
	}
	if after := w.calls.Add(int64(n)); after < w.n || after-int64(n) >= w.n {
		return
	}
	if w.action == die {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	fmt.Fprintf(os.Stderr, "[%v]\n", w.point)
	switch w.action {
	case await:
		<-w.ctx.Done()
	case hang:
		select {}
	}
}

// done counts a call that succeeded.
func (w *watch) done(name string, err error) {
	if err == nil {
		w.at(name, 1)
	}
}

type pointedTransport struct {
	transport.Transport
	*watch
}

// Check implements transport.Checker for a transport that is one.
func (p pointedTransport) Check(ctx context.Context, cfg transport.Config) error {
	if c, ok := p.Transport.(transport.Checker); ok {
		return c.Check(ctx, cfg)
	}
	return nil
}

func (p pointedTransport) Listen(ctx context.Context, cfg transport.Config) (transport.Listener, error) {
	l, err := p.Transport.Listen(ctx, cfg)
	p.done("listen", err)
	return pointedListener{l, p.watch}, err
}

func (p pointedTransport) Dial(ctx context.Context, addr transport.Address, cfg transport.Config) (transport.Initiator, error) {
	in, err := p.Transport.Dial(ctx, addr, cfg)
	p.done("dial", err)
	return pointedInitiator{in, p.watch}, err
}

func (p pointedTransport) DialTarget(ctx context.Context, addr transport.Address, cfg transport.Config) (transport.Target, error) {
	t, err := p.Transport.DialTarget(ctx, addr, cfg)
	p.done("dial", err)
	return pointedTarget{t, p.watch}, err
}

type pointedListener struct {
	transport.Listener
	*watch
}

func (p pointedListener) AcceptTarget(ctx context.Context) (transport.Target, error) {
	t, err := p.Listener.AcceptTarget(ctx)
	p.done("accept", err)
	return pointedTarget{t, p.watch}, err
}

func (p pointedListener) AcceptInitiator(ctx context.Context) (transport.Initiator, error) {
	in, err := p.Listener.AcceptInitiator(ctx)
	p.done("accept", err)
	return pointedInitiator{in, p.watch}, err
}

// allocate returns memory of the endpoint's own making if it makes any: UCX moves its own
// memory by other operations than the host's.
func allocate(e transport.Endpoint, size int64) (transport.Memory, error) {
	if a, ok := e.(transport.Allocator); ok {
		return a.Allocate(size)
	}
	return transport.Memory{}, transport.ErrUnsupported
}

type pointedInitiator struct {
	transport.Initiator
	*watch
}

func (p pointedInitiator) Allocate(size int64) (transport.Memory, error) {
	return allocate(p.Initiator, size)
}

func (p pointedInitiator) Free(m transport.Memory) error {
	return p.Initiator.(transport.Allocator).Free(m)
}

func (p pointedInitiator) Register(m transport.Memory) (transport.Region, error) {
	r, err := p.Initiator.Register(m)
	p.done("register", err)
	return r, err
}

func (p pointedInitiator) Import(ad transport.Advertisement) ([]transport.RemoteRegion, error) {
	r, err := p.Initiator.Import(ad)
	p.done("import", err)
	return r, err
}

func (p pointedInitiator) Post(t transport.Transfer) error {
	err := p.Initiator.Post(t)
	p.done("post", err)
	return err
}

func (p pointedInitiator) Poll(done []transport.Completion) (int, error) {
	n, err := p.Initiator.Poll(done)
	p.at("completion", n)
	return n, err
}

func (p pointedInitiator) Close() error {
	p.at("close", 1)
	return p.Initiator.Close()
}

type pointedTarget struct {
	transport.Target
	*watch
}

func (p pointedTarget) Allocate(size int64) (transport.Memory, error) {
	return allocate(p.Target, size)
}

func (p pointedTarget) Free(m transport.Memory) error {
	return p.Target.(transport.Allocator).Free(m)
}

func (p pointedTarget) Register(m transport.Memory) (transport.Region, error) {
	r, err := p.Target.Register(m)
	p.done("register", err)
	return r, err
}

func (p pointedTarget) Advertise(regions ...transport.Region) (transport.Advertisement, error) {
	ad, err := p.Target.Advertise(regions...)
	p.done("advertise", err)
	return ad, err
}

func (p pointedTarget) Notifications(ctx context.Context, notices []transport.Notice) (int, error) {
	n, err := p.Target.Notifications(ctx, notices)
	p.at("notice", n)
	return n, err
}

func (p pointedTarget) Close() error {
	p.at("close", 1)
	return p.Target.Close()
}

// layers is how many transfers a request of the tests' model has: one for each of the 28
// layers of qwen3-0.6b.
const layers = 28

// afterRequests is the point at which a producer has measured n requests and is in the
// next one: its first transfer is posted, pushing, or has arrived, pulling. It holds for
// runs without warm-up and with one worker, which starts a request when the one before
// was checked.
func afterRequests(n int64, direction string) point {
	name := "post"
	if direction == "pull" {
		name = "notice"
	}
	return point{"producer", name, n*layers + 1}
}
