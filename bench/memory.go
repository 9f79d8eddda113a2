package bench

import (
	"errors"
	"fmt"

	"kvbench/internal/hostmem"
	"kvbench/transport"
)

// memory is one worker's memory. Requests are written and checked in view, always outside
// the timed path.
type memory struct {
	transport.Memory
	// view is the memory itself if Go may touch it. Otherwise it is host memory of the
	// same size, and load and fetch copy between the two.
	view   []byte
	copier transport.Copier // nil if view is the memory itself
	own    *hostmem.Buffer  // memory not made by the endpoint; nil if there is none
	free   func() error     // frees the endpoint's memory; nil if there is none
}

// makeMemory makes memory with the endpoint's allocator if it has one, otherwise with the
// host's.
func (s *side) makeMemory(e transport.Endpoint) (*memory, error) {
	m := &memory{}
	var err error
	if a, ok := e.(transport.Allocator); ok && s.span > 0 {
		if m.Memory, err = a.Allocate(s.span); err == nil {
			m.free = func() error { return a.Free(m.Memory) }
		}
		switch {
		case errors.Is(err, transport.ErrUnsupported): // the endpoint takes any memory
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

// shadow makes the view of device memory.
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

// load copies the view into the memory.
func (m *memory) load() error {
	if m.copier == nil {
		return nil
	}
	return m.copier.CopyIn(m.Memory, 0, m.view)
}

// fetch copies the memory into the view.
func (m *memory) fetch() error {
	if m.copier == nil {
		return nil
	}
	return m.copier.CopyOut(m.Memory, 0, m.view)
}

// close frees the memory. The connections that used it must have ended.
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
