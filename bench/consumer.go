package bench

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"kvbench/internal/control"
	"kvbench/internal/hostinfo"
	"kvbench/internal/units"
	"kvbench/transport"
)

// Limits bound the runs that a consumer accepts.
type Limits struct {
	MemoryBytes int64 // bytes of one run; 0 means four fifths of the available memory
	Sessions    int   // concurrent runs; 0 means 1
}

// Consumer serves runs.
type Consumer struct {
	Transports []transport.Transport
	Control    control.Options
	Limits     Limits
	Device     string // this side's transport.Config.Device
	GPU        int    // this side's transport.Config.GPU
	Host       func(local net.Addr) hostinfo.Host
	// Log receives one line for each event worth showing a person. It may be called
	// concurrently.
	Log func(format string, args ...any)

	runs occupancy
}

// Serve accepts producers on l until the context ends or, if once is set, until one run
// has ended. It then returns that run's error.
func (c *Consumer) Serve(ctx context.Context, l net.Listener, once bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	places := make(chan struct{}, max(1, c.Limits.Sessions))
	var greeting greeters
	var wg sync.WaitGroup
	defer wg.Wait()
	var ended error
	var once1 sync.Once
	for {
		nc, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				wg.Wait()
				return ended
			}
			c.Log("accept: %v", err)
			time.Sleep(50 * time.Millisecond)
			continue
		}
		leave, ok := greeting.enter(nc.RemoteAddr())
		if !ok {
			nc.Close()
			continue
		}
		wg.Go(func() {
			ran, err := c.serveConn(ctx, nc, places, leave)
			if err != nil && !ran { // a session logs its own end
				c.Log("%s: %v", nc.RemoteAddr(), err)
			}
			if once && ran {
				once1.Do(func() {
					ended = err
					cancel()
				})
			}
		})
	}
}

// greeters counts the connections that are not yet authenticated, so that silent
// strangers hold few of this host's resources and one address leaves room for producers
// at others.
type greeters struct {
	mu     sync.Mutex
	all    int
	byHost map[string]int
}

const (
	mostGreeters        = 1024
	mostGreetersOneHost = 64
)

// enter counts a connection, and leave removes it from the count. ok is false if there is
// no room.
func (g *greeters) enter(addr net.Addr) (leave func(), ok bool) {
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		host = addr.String()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all >= mostGreeters || g.byHost[host] >= mostGreetersOneHost {
		return nil, false
	}
	if g.byHost == nil {
		g.byHost = make(map[string]int)
	}
	g.all++
	g.byHost[host]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.all--
		if g.byHost[host]--; g.byHost[host] == 0 {
			delete(g.byHost, host)
		}
	}, true
}

// busyPatience is how long a producer waits for a place before the consumer refuses it.
const busyPatience = 2 * time.Second

// serveConn authenticates one producer and serves its run. ran reports whether the run
// started.
func (c *Consumer) serveConn(ctx context.Context, nc net.Conn, places chan struct{}, greeted func()) (ran bool, err error) {
	conn, err := control.Accept(ctx, nc, c.Control)
	greeted()
	if err != nil {
		return false, err
	}
	defer conn.Close()
	var plan Plan
	if err := conn.Expect(kindPlan, &plan, setupTimeout); err != nil {
		return false, peerEnd("producer", " before it sent its plan", err)
	}
	// A finished run takes a moment to free everything, so a producer that comes right
	// after it waits instead of failing.
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	case <-time.After(busyPatience):
		return false, refuse(conn, control.Refuse("busy", "the consumer serves %s already, its limit: wait, or start it with a higher --max-sessions", units.Count(cap(places), "run")))
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	defer c.runs.enter()()
	s := &session{consumer: c, side: side{plan: plan, conn: conn}}
	defer s.close()
	t, err := s.prepare(ctx)
	if err != nil {
		var limit *MemoryError
		code := "plan"
		if errors.As(err, &limit) {
			code = "memory"
		}
		return false, refuse(conn, control.Refuse(code, "the consumer refuses the plan: %v", err))
	}
	c.Log("%s: run %x: %s %s, %s, %d at a time", nc.RemoteAddr(), plan.RunID, plan.Transport, plan.Direction, units.Count(len(plan.Specs), "context"), plan.Workers)
	if err := s.run(ctx, t); err != nil {
		return true, err
	}
	c.Log("%s: run %x: done", nc.RemoteAddr(), plan.RunID)
	return true, nil
}

func refuse(conn *control.Conn, r *control.Refusal) error {
	if err := conn.Refuse(r); err != nil {
		return errors.Join(r, err)
	}
	return r
}
