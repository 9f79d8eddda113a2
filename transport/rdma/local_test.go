package rdma

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"kvbench/internal/ucx"
	"kvbench/transport"
)

// pairOver connects two endpoints of this process, with size bytes of memory on each
// side. local is the initiator's region, and far the target's as the initiator knows it.
func pairOver(t *testing.T, cfg transport.Config, size int) (in *initiator, tg *target, local, region transport.Region, far transport.RemoteRegion) {
	t.Helper()
	l, err := New().Listen(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan transport.Target, 1)
	go func() {
		tg, err := l.AcceptTarget(t.Context())
		if err != nil {
			t.Error(err)
		}
		accepted <- tg
	}()
	dialled, err := New().Dial(t.Context(), l.Address(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	served := <-accepted
	if served == nil {
		t.FailNow()
	}
	t.Cleanup(func() { dialled.Close(); served.Close() })
	var ad transport.Advertisement
	var remote []transport.RemoteRegion
	if local, err = dialled.Register(transport.HostBytes(make([]byte, size))); err == nil {
		region, err = served.Register(transport.HostBytes(make([]byte, size)))
	}
	if err == nil {
		ad, err = served.Advertise(region)
	}
	if err == nil {
		remote, err = dialled.Import(ad)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dialled.(*initiator), served.(*target), local, region, remote[0]
}

// ended waits for the end of a connection and returns why, as its caller is told.
func ended(t *testing.T, c *connection) error {
	t.Helper()
	select {
	case <-c.dead:
	case <-time.After(patience):
		t.Fatal("the connection goes on")
	}
	return transport.Ended(c.Err())
}

// isLocal complains unless an error says that this side ended the connection.
func isLocal(t *testing.T, err error, texts ...string) {
	t.Helper()
	if !errors.Is(err, transport.ErrLocal) || errors.Is(err, transport.ErrPeer) || strings.Contains(err.Error(), transport.ErrPeer.Error()) {
		t.Errorf("%v, want that this side ended it", err)
	}
	says(t, err, texts...)
}

// TestWrongLaneAfterTheFirstTransfer: the side that finds it has ended the connection, and
// the other has lost its peer, with its reason.
func TestWrongLaneAfterTheFirstTransfer(t *testing.T) {
	needUCX(t)
	for _, finder := range []string{"initiator", "target"} {
		t.Run(finder, func(t *testing.T) {
			in, tg, local, _, far := pairOver(t, transport.Config{Lane: "tcp"}, 4096)
			finds, hears := in.connection, tg.connection
			if finder == "target" {
				finds, hears = hears, finds
			}
			shm, _ := familyOf("shm")
			finds.engine.do(func() { finds.family = shm }) // to which tcp does not belong
			if err := in.Post(transport.Transfer{ID: 1, Op: transport.Write, Local: local, Remote: far, Descriptors: []transport.Descriptor{{Length: 4096}}}); err != nil {
				t.Fatal(err)
			}
			isLocal(t, ended(t, finds), "wrong lane: asked for lane shm", "tcp/")
			err := ended(t, hears)
			if !errors.Is(err, transport.ErrPeer) {
				t.Errorf("the %s has ended it, and the other side says %v", finder, err)
			}
			says(t, err, "it says: wrong lane")
			if finder == "target" {
				return // its notice and the completion race
			}
			var done [1]transport.Completion
			if n, _ := in.Poll(done[:]); n != 1 {
				t.Fatalf("%d completions", n)
			}
			isLocal(t, done[0].Err, "wrong lane")
		})
	}
}

// TestNoticesThatNobodyTakes: a target that does not look at its notices has itself to blame.
func TestNoticesThatNobodyTakes(t *testing.T) {
	conn, peer := listening(t, nil)
	conn.engine = &engine{}
	conn.readBack = true
	tg := &target{connection: conn, notices: notices{some: make(chan struct{}, 1), list: make([]transport.Notice, maxNotices)}}
	tg.happened(ucx.Event{Kind: ucx.Written, ID: 1})
	isLocal(t, transport.Ended(conn.Err()), "1048576 notices that nobody took")
	if m := heard(t, peer); !m.Ending || !strings.Contains(m.Reason, "notices that nobody took") {
		t.Errorf("the peer is told %+v", m)
	}
	close(conn.dead)
	into := make([]transport.Notice, maxNotices)
	if n, err := tg.Notifications(context.Background(), into); n != maxNotices || err != nil {
		t.Errorf("%d notices, %v; want those that fitted", n, err)
	}
	_, err := tg.Notifications(context.Background(), into)
	isLocal(t, err, "notices that nobody took")
}
