package staged

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kvbench/transport"
)

// pipeWords are words over one end of a pipe.
type pipeWords struct {
	*json.Encoder
	*json.Decoder
}

func (w pipeWords) Send(v any) error    { return w.Encode(v) }
func (w pipeWords) Receive(v any) error { return w.Decode(v) }

// TestEachSideHasItsTime: a peer has PeerTimeout for its own part, whatever the other side
// took for its part before.
func TestEachSideHasItsTime(t *testing.T) {
	const patience = 10 * time.Second
	for name, c := range map[string]struct {
		target, initiator time.Duration // that their copies take
		want              [2]bool       // whether the target and the initiator meet
	}{
		"both together take longer": {9 * time.Second, 9 * time.Second, [2]bool{true, true}},
		"the target":                {11 * time.Second, 0, [2]bool{false, false}},
		"the initiator":             {0, 11 * time.Second, [2]bool{false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				var wg sync.WaitGroup
				var errs [2]error
				there, here := net.Pipe()
				for i, socket := range []net.Conn{there, here} {
					k := &connection{cfg: transport.Config{PeerTimeout: patience}, socket: socket}
					w := pipeWords{json.NewEncoder(socket), json.NewDecoder(socket)}
					wg.Go(func() {
						errs[i] = k.introduce(t.Context(), func() error {
							if i == 0 {
								return k.offerRing(w, func() (transport.Advertisement, error) {
									time.Sleep(c.target)
									return nil, nil
								})
							}
							return k.takeRing(w, func(transport.Advertisement) error {
								time.Sleep(c.initiator)
								return nil
							})
						})
						if errs[i] != nil {
							socket.Close()
						}
					})
				}
				wg.Wait()
				for i, met := range c.want {
					if (errs[i] == nil) != met {
						t.Errorf("side %d: %v", i, errs[i])
					}
				}
				if c.want[0] {
					if took := time.Since(begin); took != c.target+c.initiator {
						t.Errorf("met after %v, want %v", took, c.target+c.initiator)
					}
				} else if !errors.Is(errors.Join(errs[:]...), os.ErrDeadlineExceeded) {
					t.Errorf("errors %v, want a deadline that ends", errs)
				}
				there.Close()
				here.Close()
			})
		})
	}
}
