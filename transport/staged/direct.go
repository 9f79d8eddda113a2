package staged

import (
	"context"

	"kvbench/transport"
)

// ability is one side's report whether its inner transport can move GPU memory
// directly. The sides exchange it before they connect, because both must have the
// ability and their libraries, drivers and devices may differ.
type ability struct {
	Direct bool   `json:"direct,omitempty"`
	Why    string `json:"why_not_direct,omitempty"` // reason, if the transport has direct transfers but cannot use them
}

// ability checks the inner transport.
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

// abilities holds the abilities of both sides of a connection.
type abilities struct{ own, peer ability }

// direct reports whether the memory moves directly.
func (a abilities) direct() bool { return a.own.Direct && a.peer.Direct }

// config returns the configuration of the inner connection.
func (a abilities) config(cfg transport.Config) transport.Config {
	if a.direct() {
		cfg.Memory = transport.CUDAMemory
		return cfg
	}
	return innerConfig(cfg)
}

// reason returns why the memory is staged: this side's reason, the peer's, or both.
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

// bounded cuts a text to the length allowed in a result.
func bounded(s string) string { return s[:min(len(s), maxReason)] }
