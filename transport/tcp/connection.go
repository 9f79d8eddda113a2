package tcp

import (
	"errors"
	"sync"

	"kvbench/internal/hostinfo"
	"kvbench/transport"
)

// connection holds the streams, the regions and the first error of an initiator or a
// target.
type connection struct {
	cfg     transport.Config
	streams []*stream
	regions regionTable

	mu      sync.Mutex
	err     error
	wg      sync.WaitGroup
	closing chan struct{} // closed when the connection begins to end
	stopped chan struct{} // closed when its goroutines have ended
	dead    chan struct{} // closed once every outstanding transfer is completed
}

func newConnection(cfg transport.Config, streams []*stream) *connection {
	return &connection{
		cfg: cfg, streams: streams,
		closing: make(chan struct{}), stopped: make(chan struct{}), dead: make(chan struct{}),
	}
}

// run starts a goroutine. If f returns an error, the connection ends.
func (c *connection) run(f func() error) {
	c.wg.Go(func() {
		if err := f(); err != nil {
			c.fail(err)
		}
	})
}

// supervise calls last when the connection's goroutines have ended.
func (c *connection) supervise(last func()) {
	go func() {
		c.wg.Wait()
		close(c.stopped)
		last()
		close(c.dead)
	}()
}

// fail ends the connection. The first error is kept.
func (c *connection) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	close(c.closing)
	for _, s := range c.streams {
		s.shut()
	}
}

// Err returns the error that ended the connection, or nil.
func (c *connection) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close implements transport.Endpoint. After it returns, registered memory is no longer
// accessed.
func (c *connection) Close() error {
	c.fail(transport.ErrClosed)
	<-c.dead
	return nil
}

// Register implements transport.Endpoint.
func (c *connection) Register(m transport.Memory) (transport.Region, error) {
	if err := c.Err(); err != nil {
		return transport.Region{}, err
	}
	return c.regions.register(m)
}

// Deregister implements transport.Endpoint.
func (c *connection) Deregister(r transport.Region) error { return c.regions.deregister(r) }

// moved returns the bytes that the streams have moved, as far as this side can count
// them. On Linux the bytes that the peer's kernel acknowledged are included.
func (c *connection) moved() int64 {
	var n int64
	for _, s := range c.streams {
		n += s.progress.Load() + s.acknowledged()
	}
	return n
}

// Path implements transport.Endpoint.
func (c *connection) Path() transport.Path {
	device := hostinfo.DeviceOf(hostinfo.PathAddr(c.streams[0].conn)).Name
	p := transport.Path{Lane: "tcp", Device: device, Details: map[string]any{}}
	if device != "" {
		p.Lane += "/" + device
	}
	var stats []StreamStats
	for _, s := range c.streams {
		st := s.stats()
		stats = append(stats, st)
		p.Counters.Packets += int64(st.DataSegmentsSent)
		p.Counters.Retransmits += int64(st.Retransmits)
		p.Counters.ReceiveWindowLimited = max(p.Counters.ReceiveWindowLimited, st.ReceiveWindowLimited)
	}
	p.Details["streams"] = stats
	return p
}

// refusal returns the abort code for err, and false if the peer needs none.
func refusal(err error) (abortCode, bool) {
	switch {
	case errors.Is(err, transport.ErrRegion):
		return abortRegion, true
	case errors.Is(err, transport.ErrBounds):
		return abortBounds, true
	case errors.Is(err, transport.ErrProtocol):
		return abortProtocol, true
	}
	return 0, false
}
