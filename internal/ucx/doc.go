// Package ucx is a thin binding of UCX, with only the parts that transport/rdma needs.
// A Worker holds one connection's UCX context, worker and endpoint, the queue of its
// transfers, and a thread. Only this thread calls UCX. Methods wait for the thread and
// must be called one at a time, unless documented otherwise.
//
// The binding is the only C in the project. It is part of builds with cgo and the tag
// ucx, and loads libucp on first use. So such a build also runs on hosts without UCX.
package ucx

import (
	"errors"
	"fmt"
	"time"
)

// ErrNotBuilt is returned by a build without the binding.
var ErrNotBuilt = errors.New("built without ucx")

// ErrNotFound is returned if libucp cannot be loaded.
var ErrNotFound = errors.New("libucp not found")

// Error is an error status of UCX.
type Error struct {
	Call    string // the function that was called, or the setting that was refused
	Status  int    // ucs_status_t
	Message string // UCX's message
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s (%d)", e.Call, e.Message, e.Status) }

// The statuses that callers distinguish; see ucs_status_t in UCX's headers.
const (
	StatusNoResource  = -2
	StatusIO          = -3
	StatusNoMemory    = -4
	StatusNoDevice    = -14
	StatusUnreachable = -6
)

// Setting is a configuration variable of UCX, without the prefix UCX_.
type Setting struct{ Name, Value string }

// Options holds the parameters of a worker.
type Options struct {
	Settings   []Setting
	Slots      int           // transfers outstanding at a time, on either side
	Window     int           // operations inside UCX and incomplete at a time
	PeerErrors bool          // request peer error handling from UCX; not every lane supports it
	Spin       time.Duration // how long to poll before sleeping
	Processors []int         // CPUs that the thread keeps to, if this process may use them; none: any
	Bind       Bind          // the thread's first call, before any call of UCX
}

// Bind is a call of the CUDA driver that binds a thread to a context. UCX calls the
// driver for GPU memory, which fails or crashes on a thread without a context. The zero
// Bind means no call.
type Bind struct {
	Function uintptr // cuCtxSetCurrent, in C
	Context  uintptr // its argument
}

// MemoryType is a kind of memory, numbered as ucs_memory_type_t.
type MemoryType uint32

// The memory types in use.
const (
	HostMemory MemoryType = 0
	CUDAMemory MemoryType = 1
)

// MemoryTypes is a set of types: bit 1<<t of each.
type MemoryTypes uint64

// Has reports whether a type is in the set.
func (s MemoryTypes) Has(t MemoryType) bool { return s>>t&1 != 0 }

// Op is the UCX operation that moves a transfer's bytes.
type Op uint32

// The operations, numbered as in worker.h.
const (
	Put           Op = iota + 1 // one-sided write
	ActiveMessage               // messages that the target places
	Get                         // one-sided read
)

// Kind is the kind of an event.
type Kind uint32

// The kinds, numbered as in worker.h.
const (
	Local     Kind = iota + 1 // a write's source may be reused
	Delivered                 // every byte is visible at its destination
	Failed                    // a transfer failed
	Written                   // the peer's write is in place at this side
	Read                      // the peer's read is complete
	Greeted                   // the peer's greeting has arrived
	Ended                     // the endpoint failed
	Violation                 // the peer broke the protocol
	Broken                    // a UCX call aborted; the worker does nothing any more
	Idle                      // after Stop: UCX holds nothing
)

// Event is one event of a worker. The layout matches kvb_event in worker.h.
type Event struct {
	At     int64 // ns, CLOCK_MONOTONIC
	ID     uint64
	Bytes  uint64
	Slot   uint32
	Status int32
	Kind   Kind
	Look   uint32 // how often the thread had looked for something to do
}

// Piece is a contiguous part of a transfer. The layout matches kvb_piece in worker.h.
// Local is an address. Remote is an address for Put and Get, and an offset in the
// peer's region for ActiveMessage.
type Piece struct{ Local, Remote, Length uint64 }
