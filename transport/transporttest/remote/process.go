package remote

import (
	"context"
	"errors"
	"fmt"
	"net/rpc"
	"os"
	"os/exec"
	"time"

	"kvbench/transport"
	"kvbench/transport/transporttest"
)

// Transport is a transport in a child process.
type Transport struct {
	client *rpc.Client
	cmd    *exec.Cmd
	name   string
	can    transport.Capabilities
	// ahead is added to a time of the child's clock to convert it to this process's
	// clock.
	ahead time.Duration
}

var _ transport.Transport = (*Transport)(nil)

// Start starts cmd, which calls Serve, and returns its transport.
func Start(cmd *exec.Cmd) (*Transport, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t := &Transport{client: rpc.NewClient(stdio{out, in}), cmd: cmd}
	who, err := t.call("Identify", Request{})
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	own, err := epoch()
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	t.name, t.can, t.ahead = who.Name, who.Capabilities, time.Duration(who.Epoch-own)
	return t, nil
}

// Close ends the child.
func (t *Transport) Close() error {
	return errors.Join(t.client.Close(), t.cmd.Wait())
}

// Process returns the child, for tests that stop or kill it.
func (t *Transport) Process() *os.Process { return t.cmd.Process }

// call calls a method of the child.
func (t *Transport) call(method string, in Request) (Response, error) {
	var out Response
	if err := t.client.Call("Child."+method, in, &out); err != nil {
		return out, fmt.Errorf("call %s of the child process: %w", method, err)
	}
	return out, out.Failure.err()
}

// callWithin calls a method of the child with the context's deadline.
func (t *Transport) callWithin(ctx context.Context, method string, in Request) (Response, error) {
	if err := ctx.Err(); err != nil {
		return Response{}, err
	}
	if at, ok := ctx.Deadline(); ok {
		in.Deadline = max(time.Until(at), 1)
	}
	return t.call(method, in)
}

// Name implements transport.Transport.
func (t *Transport) Name() string { return t.name }

// Capabilities implements transport.Transport.
func (t *Transport) Capabilities() transport.Capabilities { return t.can }

// Probe implements transport.Transport.
func (t *Transport) Probe(ctx context.Context) error {
	_, err := t.callWithin(ctx, "Probe", Request{})
	return err
}

// Listen implements transport.Transport.
func (t *Transport) Listen(ctx context.Context, cfg transport.Config) (transport.Listener, error) {
	out, err := t.callWithin(ctx, "Listen", Request{Config: cfg})
	if err != nil {
		return nil, err
	}
	return &listener{remoteObject{t, out.Object}, out.Address}, nil
}

// Dial implements transport.Transport.
func (t *Transport) Dial(ctx context.Context, addr transport.Address, cfg transport.Config) (transport.Initiator, error) {
	out, err := t.callWithin(ctx, "Dial", Request{Address: addr, Config: cfg})
	if err != nil {
		return nil, err
	}
	return &initiator{endpoint{remoteObject{t, out.Object}}}, nil
}

// DialTarget implements transport.Transport.
func (t *Transport) DialTarget(ctx context.Context, addr transport.Address, cfg transport.Config) (transport.Target, error) {
	out, err := t.callWithin(ctx, "DialTarget", Request{Address: addr, Config: cfg})
	if err != nil {
		return nil, err
	}
	return &target{endpoint{remoteObject{t, out.Object}}}, nil
}

// Alloc is an Allocator of the child's memory.
func (t *Transport) Alloc(size int) (transporttest.Buffer, error) {
	out, err := t.call("Alloc", Request{Count: size})
	if err != nil {
		return nil, err
	}
	m := out.Memory
	if m.Kind == transport.HostMemory {
		m.Bytes, m.Pointer, m.Length = nil, uintptr(out.Object), int64(size)
	}
	return &buffer{remoteObject{t, out.Object}, m}, nil
}
