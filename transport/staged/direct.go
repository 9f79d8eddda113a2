package staged

import (
	"context"

	"kvbench/transport"
)

// ability is what a side tells the other of the transport below: whether it can move
// GPU memory by itself there. Both must, so that each says so before they connect: the
// two hosts may have different libraries, drivers and devices.
type ability struct {
	Direct bool   `json:"direct,omitempty"`
	Why    string `json:"why_not_direct,omitempty"` // why not, where it might have been
}

// ability asks the transport below.
func (t Transport) ability(ctx context.Context, cfg transport.Config) ability {
	mover, ok := t.inner.(transport.DirectMover)
	if !ok {
		return ability{}
	}
	if err := mover.CheckDirect(ctx, cfg); err != nil {
		return ability{Why: bounded(err.Error())}
	}
	return ability{Direct: true}
}

// abilities are those of both sides of a connection.
type abilities struct{ own, peer ability }

// direct reports whether the memory moves directly.
func (a abilities) direct() bool { return a.own.Direct && a.peer.Direct }

// config is what the inner connection is made with.
func (a abilities) config(cfg transport.Config) transport.Config {
	if a.direct() {
		cfg.Memory = transport.CUDAMemory
		return cfg
	}
	return innerConfig(cfg)
}

// reason is why the memory is staged: this side's, the peer's, or both.
func (a abilities) reason() string {
	own, theirs := a.own.Why, bounded(a.peer.Why)
	switch {
	case a.own.Direct && theirs == "":
		return "the peer cannot move GPU memory directly, and does not say why"
	case theirs == "" || theirs == own:
		return own
	case own == "":
		return "the peer: " + theirs
	}
	return own + "; the peer: " + theirs
}

// bounded cuts a text that goes into a result.
func bounded(s string) string { return s[:min(len(s), maxReason)] }
