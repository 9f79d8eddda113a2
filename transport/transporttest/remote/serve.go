package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"sync"

	"kvbench/transport"
	"kvbench/transport/transporttest"
)

// Serve answers the calls that arrive on stdin until it ends. The child process runs
// it.
func Serve(t transport.Transport, alloc transporttest.Allocator) error {
	s := rpc.NewServer()
	if err := s.RegisterName("Child", &Child{transport: t, alloc: alloc, objects: make(map[uint64]any)}); err != nil {
		return err
	}
	s.ServeConn(stdio{os.Stdin, os.Stdout})
	return nil
}

// stdio is a connection over two pipes.
type stdio struct {
	io.Reader
	io.WriteCloser
}

// Child is the service. Its methods have the form that net/rpc requires. An error
// travels in the response.
type Child struct {
	transport transport.Transport
	alloc     transporttest.Allocator

	mu      sync.Mutex
	last    uint64
	objects map[uint64]any
}

// add numbers an object, unless err is set.
func (c *Child) add(out *Response, object any, err error) error {
	if out.Failure = failure(err); err != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	c.objects[c.last] = object
	out.Object = c.last
	return nil
}

// object returns the receiver of a call. A wrong number is a bug in this package.
func object[T any](c *Child, in Request) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.objects[in.Object].(T)
	if !ok {
		panic(fmt.Sprintf("object %d is a %T", in.Object, c.objects[in.Object]))
	}
	return o
}

func (in Request) context() (context.Context, context.CancelFunc) {
	if in.Deadline == 0 {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), in.Deadline)
}

// Identify returns the transport's name and capabilities, and this process's epoch.
func (c *Child) Identify(_ Request, out *Response) (err error) {
	out.Name, out.Capabilities = c.transport.Name(), c.transport.Capabilities()
	out.Epoch, err = epoch()
	return err
}

// Probe calls Transport.Probe.
func (c *Child) Probe(in Request, out *Response) error {
	ctx, cancel := in.context()
	defer cancel()
	out.Failure = failure(c.transport.Probe(ctx))
	return nil
}

// Listen calls Transport.Listen.
func (c *Child) Listen(in Request, out *Response) error {
	ctx, cancel := in.context()
	defer cancel()
	l, err := c.transport.Listen(ctx, in.Config)
	if err == nil {
		out.Address = l.Address()
	}
	return c.add(out, l, err)
}

// Dial calls Transport.Dial.
func (c *Child) Dial(in Request, out *Response) error {
	ctx, cancel := in.context()
	defer cancel()
	i, err := c.transport.Dial(ctx, in.Address, in.Config)
	return c.add(out, i, err)
}

// DialTarget calls Transport.DialTarget.
func (c *Child) DialTarget(in Request, out *Response) error {
	ctx, cancel := in.context()
	defer cancel()
	t, err := c.transport.DialTarget(ctx, in.Address, in.Config)
	return c.add(out, t, err)
}

// AcceptTarget calls Listener.AcceptTarget.
func (c *Child) AcceptTarget(in Request, out *Response) error {
	ctx, cancel := in.context()
	defer cancel()
	t, err := object[transport.Listener](c, in).AcceptTarget(ctx)
	return c.add(out, t, err)
}

// AcceptInitiator calls Listener.AcceptInitiator.
func (c *Child) AcceptInitiator(in Request, out *Response) error {
	ctx, cancel := in.context()
	defer cancel()
	i, err := object[transport.Listener](c, in).AcceptInitiator(ctx)
	return c.add(out, i, err)
}

// Close calls Close of a listener or an endpoint.
func (c *Child) Close(in Request, out *Response) error {
	out.Failure = failure(object[io.Closer](c, in).Close())
	return nil
}

// Register calls Endpoint.Register.
func (c *Child) Register(in Request, out *Response) error {
	var err error
	if in.Memory.Kind == transport.HostMemory {
		in.Memory = c.hostMemory(in)
	}
	out.Region, err = object[transport.Endpoint](c, in).Register(in.Memory)
	out.Failure = failure(err)
	return nil
}

// hostMemory returns this process's memory for a description from the other process.
// The description holds the buffer's number as its address.
func (c *Child) hostMemory(in Request) transport.Memory {
	if in.Memory.Pointer == 0 {
		return in.Memory
	}
	return object[transporttest.Buffer](c, Request{Object: uint64(in.Memory.Pointer)}).Memory()
}

// Deregister calls Endpoint.Deregister.
func (c *Child) Deregister(in Request, out *Response) error {
	out.Failure = failure(object[transport.Endpoint](c, in).Deregister(in.Region))
	return nil
}

// Path calls Endpoint.Path.
func (c *Child) Path(in Request, out *Response) (err error) {
	out.Path, err = json.Marshal(object[transport.Endpoint](c, in).Path())
	return err
}

// Import calls Initiator.Import.
func (c *Child) Import(in Request, out *Response) error {
	var err error
	out.Remote, err = object[transport.Initiator](c, in).Import(in.Ad)
	out.Failure = failure(err)
	return nil
}

// Post calls Initiator.Post.
func (c *Child) Post(in Request, out *Response) error {
	out.Failure = failure(object[transport.Initiator](c, in).Post(in.Transfer))
	return nil
}

// Poll calls Initiator.Poll.
func (c *Child) Poll(in Request, out *Response) error {
	done := make([]transport.Completion, in.Count)
	n, err := object[transport.Initiator](c, in).Poll(done)
	for _, d := range done[:n] {
		var f Failure
		if d.Err != nil {
			f, d.Err = *failure(d.Err), nil // gob does not encode interfaces
		}
		out.Failures = append(out.Failures, f)
		out.Completions = append(out.Completions, d)
	}
	out.Failure = failure(err)
	return nil
}

// Wait calls Initiator.Wait.
func (c *Child) Wait(in Request, out *Response) error {
	ctx, cancel := in.context()
	defer cancel()
	out.Failure = failure(object[transport.Initiator](c, in).Wait(ctx))
	return nil
}

// Advertise calls Target.Advertise.
func (c *Child) Advertise(in Request, out *Response) error {
	var err error
	out.Ad, err = object[transport.Target](c, in).Advertise(in.Regions...)
	out.Failure = failure(err)
	return nil
}

// Notifications calls Target.Notifications.
func (c *Child) Notifications(in Request, out *Response) error {
	ctx, cancel := in.context()
	defer cancel()
	notices := make([]transport.Notice, in.Count)
	n, err := object[transport.Target](c, in).Notifications(ctx, notices)
	out.Notices, out.Failure = notices[:n], failure(err)
	return nil
}

// Alloc allocates memory.
func (c *Child) Alloc(in Request, out *Response) error {
	b, err := c.alloc(in.Count)
	if err == nil {
		out.Memory = b.Memory()
	}
	return c.add(out, b, err)
}

// ReadAt reads memory.
func (c *Child) ReadAt(in Request, out *Response) error {
	out.Bytes = make([]byte, in.Count)
	n, err := object[transporttest.Buffer](c, in).ReadAt(out.Bytes, in.Offset)
	if errors.Is(err, io.EOF) && n == in.Count {
		err = nil
	}
	out.Bytes, out.Failure = out.Bytes[:n], failure(err)
	return nil
}

// WriteAt writes memory.
func (c *Child) WriteAt(in Request, out *Response) error {
	_, err := object[transporttest.Buffer](c, in).WriteAt(in.Bytes, in.Offset)
	out.Failure = failure(err)
	return nil
}

// Free frees memory.
func (c *Child) Free(in Request, out *Response) error {
	out.Failure = failure(object[transporttest.Buffer](c, in).Free())
	return nil
}
