package bench

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"

	"kvbench/internal/control"
	"kvbench/transport"
	"kvbench/transport/tcp"
)

// TestConsumerEndsInSetUp: a producer says what the consumer was at when it was lost, in
// words and not in names of messages.
func TestConsumerEndsInSetUp(t *testing.T) {
	// As far as a data connection, of which the consumer says no more.
	accepted := func(s *session) error {
		tr, err := s.prepare(context.Background())
		if err != nil {
			return err
		}
		s.via, s.host = tr, "127.0.0.1"
		l, err := s.listen(context.Background(), 1)
		if err != nil {
			return err
		}
		defer l.Close()
		if err := s.conn.Send(kindAccept, accept{Address: l.Address()}); err != nil {
			return err
		}
		return s.acceptWorker(context.Background(), l)
	}
	for name, c := range map[string]struct {
		script func(*session) error
		want   error
		says   string
	}{
		"before its answer": {func(*session) error { return nil }, control.ErrClosed,
			"the consumer went away before it answered the plan: peer closed"},
		"refusing": {func(s *session) error { return s.conn.Refuse(control.Refuse("plan", "not this one")) }, control.ErrRefused,
			"not this one"},
		"after its answer": {accepted, control.ErrClosed,
			"the consumer went away while it made its memory and connections ready: peer closed"},
		"giving up": {func(s *session) error {
			return errors.Join(accepted(s), s.conn.Refuse(control.Refuse(failedCode, "out of luck")))
		}, control.ErrRefused,
			"the consumer gave up while it made its memory and connections ready: out of luck"},
		"out of turn": {func(s *session) error { return s.conn.Send("dance", nil) }, control.ErrFrame,
			`got "dance" where "accept" was due: not a kvbench control frame; use the same kvbench on both hosts`},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			over := []transport.Transport{tcp.New()}
			var wg sync.WaitGroup
			defer wg.Wait()
			wg.Go(func() {
				nc, err := l.Accept()
				if err != nil {
					t.Error(err)
					return
				}
				conn, err := control.Accept(context.Background(), nc, control.Options{})
				if err != nil {
					t.Error(err)
					return
				}
				s := &session{consumer: &Consumer{Transports: over, Host: noHost}, side: side{conn: conn}}
				defer s.close() // after the channel, as when its process dies
				defer conn.Close()
				if err := errors.Join(conn.Expect(kindPlan, &s.plan, patience), c.script(s)); err != nil {
					t.Error(err)
				}
			})
			p := &Producer{Connect: l.Addr().String(), Transports: over, Host: noHost}
			_, err = p.Run(t.Context(), planOf(Push, spec(t)), Load{Requests: 1})
			if !errors.Is(err, c.want) || !strings.HasPrefix(err.Error(), c.says) {
				t.Errorf("error %q, want one that begins with %q", err, c.says)
			}
		})
	}
}

// TestProducerEndsInSetUp is the same the other way round.
func TestProducerEndsInSetUp(t *testing.T) {
	for name, c := range map[string]struct {
		plan, data bool // as far as these
		says       string
	}{
		"before its plan":          {false, false, "the producer went away before it sent its plan: peer closed"},
		"after it":                 {true, false, "the producer went away while it made its memory and connections ready: peer closed"},
		"with its data connection": {true, true, "the producer went away"}, // the consumer may be ready by then
	} {
		t.Run(name, func(t *testing.T) {
			logged := make(chan error, 8)
			b := newBed(t, tcp.New(), func(c *Consumer) {
				c.Log = func(_ string, args ...any) {
					if err, ok := args[len(args)-1].(error); ok {
						logged <- err
					}
				}
			})
			conn, err := control.Dial(t.Context(), b.addr, control.Options{})
			if err != nil {
				t.Fatal(err)
			}
			plan := planOf(Push, spec(t))
			var a accept
			var in transport.Initiator
			if c.plan {
				if err := errors.Join(conn.Send(kindPlan, plan), conn.Expect(kindAccept, &a, patience)); err != nil {
					t.Fatal(err)
				}
			}
			if c.data {
				if in, err = tcp.New().Dial(t.Context(), a.Address, plan.Config); err != nil {
					t.Fatal(err)
				}
			}
			conn.Close()
			if in != nil {
				in.Close()
			}
			if err := <-logged; !errors.Is(err, control.ErrClosed) || !strings.HasPrefix(err.Error(), c.says) {
				t.Errorf("error %q, want one that begins with %q", err, c.says)
			}
		})
	}
}

// TestPathsOutliveTheRun: of a run whose consumer is stopped in the middle, what both ends
// counted until then is known still. The warm-up alone moves four layers of 64 KiB, of which no
// segment holds more than one.
func TestPathsOutliveTheRun(t *testing.T) {
	b := newBed(t, tcp.New())
	p := b.producer()
	p.Observe = func(at Progress) {
		if at.Stage == "measure" {
			b.stop()
		}
	}
	o, err := p.Run(t.Context(), planOf(Push, spec(t)), Load{Requests: 1000, Warmup: 1})
	if err == nil {
		t.Fatal("the run went on without its consumer")
	}
	if o.PeerPath.Lane == "" || runtime.GOOS == "linux" && o.Path.Counters.Packets < 4 {
		t.Errorf("the producer's path is %+v, the consumer's %+v", o.Path, o.PeerPath)
	}
}
