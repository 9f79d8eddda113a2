package tcp_test

import (
	"errors"
	"testing"

	"kvbench/transport"
)

// TestPathOutlivesTheSockets: what the kernel counted is known still once a connection
// has ended, by this side's doing or the peer's. 8 MiB are at least 128 segments: none has more than 64 KiB.
func TestPathOutlivesTheSockets(t *testing.T) {
	const size, least = 8 << 20, 128
	for name, end := range map[string]func(*path){
		"closed here":      func(p *path) { p.in.Close() },
		"closed by a peer": func(p *path) { p.target.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, transport.Config{Streams: 2}, size)
			p.move(t, transport.Write, 1, []transport.Descriptor{{Length: size}})
			before := p.in.Path().Counters
			end(p)
			for err := error(nil); err == nil; { // until this side knows
				if _, err = p.in.Poll(p.done[:]); err == nil {
					err = p.in.Wait(t.Context())
				}
				if err != nil && !errors.Is(err, transport.ErrPeer) && !errors.Is(err, transport.ErrClosed) {
					t.Fatal(err)
				}
			}
			if after := p.in.Path().Counters; before.Packets < least || after.Packets < before.Packets || after.Retransmits < before.Retransmits {
				t.Errorf("%+v before the end, %+v after it", before, after)
			}
		})
	}
}
