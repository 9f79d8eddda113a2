package bench

import (
	"errors"
	"fmt"

	"kvbench/internal/hostmem"
	"kvbench/transport"
)

// memory is one worker's. A request is written into its view and looked at there,
// always outside what is timed.
type memory struct {
	transport.Memory
	// view is the memory itself where Go may touch it, and otherwise host memory of
	// the same size, which load and fetch keep in step with it.
	view   []byte
	copier transport.Copier // nil where view is the memory itself
	own    *hostmem.Buffer  // what is not the endpoint's; nil where all is
	free   func() error     // gives back what is; nil where nothing is
}

// makeMemory is what the endpoint makes, where it has its own way, or the host's.
func (s *side) makeMemory(e transport.Endpoint) (*memory, error) {
	m := &memory{}
	var err error
	if a, ok := e.(transport.Allocator); ok && s.span > 0 {
		if m.Memory, err = a.Allocate(s.span); err == nil {
			m.free = func() error { return a.Free(m.Memory) }
		}
		switch {
		case errors.Is(err, transport.ErrUnsupported): // any memory does
		case err != nil:
			return nil, err
		case m.Kind == transport.HostMemory:
			m.view = m.Bytes
			return m, nil
		default:
			return m, s.shadow(m, e)
		}
	}
	if s.plan.Memory != transport.HostMemory && s.span > 0 {
		return nil, fmt.Errorf("transport %s makes no %s memory: %w", s.plan.Transport, s.plan.Memory, transport.ErrUnsupported)
	}
	if m.own, err = hostmem.Alloc(s.span, hostmem.Options{HugePages: s.plan.HugePages, Lock: s.plan.Lock}); err != nil {
		return nil, err
	}
	m.view = m.own.Bytes
	m.Memory = transport.HostBytes(m.view)
	return m, nil
}

// shadow gives device memory its view.
func (s *side) shadow(m *memory, e transport.Endpoint) (err error) {
	var ok bool
	if m.copier, ok = e.(transport.Copier); !ok {
		return fmt.Errorf("transport %s gives no access to the %s memory that it makes: %w", s.plan.Transport, m.Kind, transport.ErrUnsupported)
	}
	if m.own, err = hostmem.Alloc(s.span, hostmem.Options{}); err == nil {
		m.view = m.own.Bytes
	}
	return err
}

// load brings the view's bytes into the memory.
func (m *memory) load() error {
	if m.copier == nil {
		return nil
	}
	return m.copier.CopyIn(m.Memory, 0, m.view)
}

// fetch brings the memory's bytes into the view.
func (m *memory) fetch() error {
	if m.copier == nil {
		return nil
	}
	return m.copier.CopyOut(m.Memory, 0, m.view)
}

// close gives the memory back, after the connections that used it have ended.
func (m *memory) close() (err error) {
	m.view = nil
	if m.free != nil {
		err = m.free()
	}
	if m.own != nil {
		err = errors.Join(err, m.own.Close())
	}
	return err
}
