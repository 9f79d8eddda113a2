// Package ucx is a thin binding of UCX: what transport/rdma needs of it and no
// more. A Worker is one connection's UCX context, worker and endpoint with the
// queue of its transfers, and a thread that alone calls UCX for it. Methods wait for
// that thread and are called one at a time, unless they say otherwise.
//
// The binding is the only C in the project. It is there in builds with cgo and
// the tag ucx, and finds libucp when it is first used, so that such a build also
// runs where UCX is not installed.
package ucx

import (
	"errors"
	"fmt"
	"time"
)

// ErrNotBuilt is returned by a build without the binding.
var ErrNotBuilt = errors.New("built without ucx")

// ErrNotFound is returned where libucp cannot be loaded.
var ErrNotFound = errors.New("libucp not found")

// Error is what a call of UCX returned.
type Error struct {
	Call    string // what was called, or the setting that was refused
	Status  int    // ucs_status_t
	Message string // UCX's words for it
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s (%d)", e.Call, e.Message, e.Status) }

// The statuses that callers tell apart; see ucs_status_t in UCX's headers.
const (
	StatusNoResource  = -2
	StatusIO          = -3
	StatusNoMemory    = -4
	StatusNoDevice    = -14
	StatusUnreachable = -6
)

// Setting is a configuration variable of UCX, without the UCX_ before its name.
type Setting struct{ Name, Value string }

// Options is what a worker is made with.
type Options struct {
	Settings   []Setting
	Slots      int           // transfers outstanding at a time, of either side
	Window     int           // operations handed to UCX and not complete at a time
	PeerErrors bool          // ask UCX to notice that the peer is gone; not every lane can
	Spin       time.Duration // how long to look for something to do before sleeping
	Processors []int         // that the thread is to keep to, if they are this process's; none: any
	Bind       Bind          // what the thread does before it calls UCX
}

// Bind is a call of the CUDA driver's that binds a thread to a context: UCX calls the
// driver for GPU memory, which fails, or crashes, on a thread that has none. The zero
// Bind is none.
type Bind struct {
	Function uintptr // cuCtxSetCurrent, in C
	Context  uintptr // its argument
}

// MemoryType is where memory lives, numbered as ucs_memory_type_t.
type MemoryType uint32

// The types that are used here.
const (
	HostMemory MemoryType = 0
	CUDAMemory MemoryType = 1
)

// MemoryTypes is a set of types: bit 1<<t of each.
type MemoryTypes uint64

// Has reports whether a type is in the set.
func (s MemoryTypes) Has(t MemoryType) bool { return s>>t&1 != 0 }

// Op is how a transfer's bytes are moved.
type Op uint32

// The operations, numbered as in worker.h.
const (
	Put           Op = iota + 1 // one-sided write
	ActiveMessage               // messages that the target places
	Get                         // one-sided read
)

// Kind says what an event tells.
type Kind uint32

// The kinds, numbered as in worker.h.
const (
	Local     Kind = iota + 1 // a write's source may be reused
	Delivered                 // every byte is visible at its destination
	Failed                    // a transfer came to nothing
	Written                   // the peer's write is in place here
	Read                      // the peer has read what it asked for
	Greeted                   // the peer's greeting came
	Ended                     // the endpoint failed
	Violation                 // the peer sent what the protocol does not allow
	Broken                    // UCX gave up; the worker does nothing any more
	Idle                      // after Stop: UCX holds nothing
)

// Event is something that happened. The layout is that of kvb_event in worker.h.
type Event struct {
	At     int64 // ns, CLOCK_MONOTONIC
	ID     uint64
	Bytes  uint64
	Slot   uint32
	Status int32
	Kind   Kind
	Look   uint32 // how often the thread had looked for something to do
}

// Piece is a contiguous part of a transfer. The layout is that of kvb_piece in
// worker.h. Local is an address; Remote is an address for Put and Get, and an
// offset in the peer's region for ActiveMessage.
type Piece struct{ Local, Remote, Length uint64 }
