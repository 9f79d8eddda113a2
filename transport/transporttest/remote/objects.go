package remote

import (
	"context"
	"encoding/json"

	"kvbench/transport"
)

// remoteObject is an object in the child.
type remoteObject struct {
	t  *Transport
	id uint64
}

func (o remoteObject) call(method string, in Request) (Response, error) {
	in.Object = o.id
	return o.t.call(method, in)
}

func (o remoteObject) callWithin(ctx context.Context, method string, in Request) (Response, error) {
	in.Object = o.id
	return o.t.callWithin(ctx, method, in)
}

// Close implements transport.Listener and transport.Endpoint.
func (o remoteObject) Close() error {
	_, err := o.call("Close", Request{})
	return err
}

type listener struct {
	remoteObject
	addr transport.Address
}

func (l *listener) Address() transport.Address { return l.addr }

func (l *listener) AcceptTarget(ctx context.Context) (transport.Target, error) {
	out, err := l.callWithin(ctx, "AcceptTarget", Request{})
	if err != nil {
		return nil, err
	}
	return &target{endpoint{remoteObject{l.t, out.Object}}}, nil
}

func (l *listener) AcceptInitiator(ctx context.Context) (transport.Initiator, error) {
	out, err := l.callWithin(ctx, "AcceptInitiator", Request{})
	if err != nil {
		return nil, err
	}
	return &initiator{endpoint{remoteObject{l.t, out.Object}}}, nil
}

type endpoint struct{ remoteObject }

func (e endpoint) Register(m transport.Memory) (transport.Region, error) {
	out, err := e.call("Register", Request{Memory: m})
	return out.Region, err
}

func (e endpoint) Deregister(r transport.Region) error {
	_, err := e.call("Deregister", Request{Region: r})
	return err
}

// Path returns an error in Details and leaves the lane empty, because the suite and a
// reader notice that.
func (e endpoint) Path() (p transport.Path) {
	out, err := e.call("Path", Request{})
	if err == nil {
		err = json.Unmarshal(out.Path, &p)
	}
	if err != nil {
		return transport.Path{Details: map[string]any{"error": err.Error()}}
	}
	return p
}

type initiator struct{ endpoint }

func (i *initiator) Import(ad transport.Advertisement) ([]transport.RemoteRegion, error) {
	out, err := i.call("Import", Request{Ad: ad})
	return out.Remote, err
}

func (i *initiator) Post(t transport.Transfer) error {
	_, err := i.call("Post", Request{Transfer: t})
	return err
}

func (i *initiator) Poll(done []transport.Completion) (int, error) {
	out, err := i.call("Poll", Request{Count: len(done)})
	for n, c := range out.Completions {
		if f := out.Failures[n]; f.Text != "" {
			c.Err = &f
		}
		c.Local += i.t.ahead
		c.Delivered += i.t.ahead
		done[n] = c
	}
	return len(out.Completions), err
}

func (i *initiator) Wait(ctx context.Context) error {
	_, err := i.callWithin(ctx, "Wait", Request{})
	return err
}

type target struct{ endpoint }

func (t *target) Advertise(regions ...transport.Region) (transport.Advertisement, error) {
	out, err := t.call("Advertise", Request{Regions: regions})
	return out.Ad, err
}

func (t *target) Notifications(ctx context.Context, notices []transport.Notice) (int, error) {
	out, err := t.callWithin(ctx, "Notifications", Request{Count: len(notices)})
	for n, notice := range out.Notices {
		notice.At += t.t.ahead
		notices[n] = notice
	}
	return len(out.Notices), err
}

type buffer struct {
	remoteObject
	memory transport.Memory
}

func (b *buffer) Memory() transport.Memory { return b.memory }

func (b *buffer) ReadAt(p []byte, off int64) (int, error) {
	out, err := b.call("ReadAt", Request{Count: len(p), Offset: off})
	return copy(p, out.Bytes), err
}

func (b *buffer) WriteAt(p []byte, off int64) (int, error) {
	if _, err := b.call("WriteAt", Request{Bytes: p, Offset: off}); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (b *buffer) Free() error {
	_, err := b.call("Free", Request{})
	return err
}
