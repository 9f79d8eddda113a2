//go:build ucx && cgo && linux

package ucx

/*
#cgo CFLAGS: -O2 -Wall
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "lib.h"
#include "worker.h"

static const char *status_string(int status) { return kvb_lib.ucs_status_string((ucs_status_t)status); }
static const char *version_string(void) { return kvb_lib.ucp_get_version_string(); }
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Built reports whether this build has the binding.
const Built = true

// The layouts of events and pieces must match on both sides of the binding.
var (
	_ [C.sizeof_struct_kvb_event]byte = [unsafe.Sizeof(Event{})]byte{}
	_ [C.sizeof_struct_kvb_piece]byte = [unsafe.Sizeof(Piece{})]byte{}
)

// The memory types must have UCX's numbers.
var (
	_ [HostMemory]byte = [C.UCS_MEMORY_TYPE_HOST]byte{}
	_ [CUDAMemory]byte = [C.UCS_MEMORY_TYPE_CUDA]byte{}
)

var load = sync.OnceValue(func() error {
	var why [512]C.char
	if C.kvb_load(&why[0], C.size_t(len(why))) != 0 {
		return fmt.Errorf("%w: %s", ErrNotFound, C.GoString(&why[0]))
	}
	return nil
})

// Load loads UCX. Its error wraps ErrNotFound.
func Load() error { return load() }

// Version returns the version of the loaded library, such as 1.13.1.
func Version() (string, error) {
	if err := load(); err != nil {
		return "", err
	}
	return C.GoString(C.version_string()), nil
}

// StatusText returns UCX's text for a status.
func StatusText(status int) string {
	if load() != nil {
		return fmt.Sprint("status ", status)
	}
	return C.GoString(C.status_string(C.int(status)))
}

func check(call string, status C.int) error {
	if status == 0 {
		return nil
	}
	return &Error{Call: call, Status: int(status), Message: StatusText(int(status))}
}

// opens is more file descriptors than UCX 1.13.1 opens for a first worker, its threads
// and the files that it reads.
const opens = 32

// ready loads UCX and checks that enough file descriptors are free. Without them UCX
// aborts the process in an assertion.
func ready() error {
	if err := load(); err != nil {
		return err
	}
	for i := range opens {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			return &Error{Call: "ucp_init", Status: StatusNoResource, Message: fmt.Sprintf("UCX needs %d file descriptors, and there are %d (ulimit -n): %v", opens, i, err)}
		}
		defer unix.Close(fd)
	}
	return nil
}

// Worker holds one connection's UCX objects and the only thread that calls UCX for
// them.
type Worker struct {
	w           *C.kvb_worker
	ring        *C.struct_kvb_ring
	bell        *os.File // eventfd that is written if Wait listens for events
	interrupted atomic.Bool
}

// NewWorker makes a worker and its thread.
func NewWorker(o Options) (*Worker, error) { return newWorker(o, 0) }

// newWorker is NewWorker with the longest time that a sleep of the thread lasts; 0 is the
// binding's own.
func newWorker(o Options, nap time.Duration) (*Worker, error) {
	if err := ready(); err != nil {
		return nil, err
	}
	var arena arena
	defer arena.free()
	processors := make([]C.int, len(o.Processors))
	for i, n := range o.Processors {
		processors[i] = C.int(n)
	}
	options := C.struct_kvb_options{
		settings: arena.settings(o.Settings), setting_count: C.size_t(len(o.Settings)),
		slots: C.uint32_t(o.Slots), window: C.uint32_t(o.Window), spin: C.int64_t(o.Spin), nap: C.int64_t(nap),
		processors: copied(&arena, processors), processor_count: C.size_t(len(processors)),
		bind: C.uintptr_t(o.Bind.Function), bind_to: C.uintptr_t(o.Bind.Context),
	}
	if o.PeerErrors {
		options.peer_errors = 1
	}
	w := new(Worker)
	var what *C.char
	if status := C.kvb_worker_new(copied(&arena, []C.struct_kvb_options{options}), &w.w, &what); status != 0 {
		return nil, check(C.GoString(what), status)
	}
	var fd C.int
	w.ring = C.kvb_worker_ring(w.w, &fd)
	w.bell = os.NewFile(uintptr(fd), "ucx events")
	return w, nil
}

// arena holds C memory for the duration of a call.
type arena []unsafe.Pointer

func (a *arena) free() {
	for _, p := range *a {
		C.free(p)
	}
}

func (a *arena) text(s string) *C.char {
	t := C.CString(s)
	*a = append(*a, unsafe.Pointer(t))
	return t
}

// settings returns a copy of a list in C memory.
func (a *arena) settings(list []Setting) *C.struct_kvb_setting {
	settings := make([]C.struct_kvb_setting, len(list))
	for i, s := range list {
		settings[i] = C.struct_kvb_setting{name: a.text(s.Name), value: a.text(s.Value)}
	}
	return copied(a, settings)
}

// copied returns a copy of a slice in C memory.
func copied[T any](a *arena, s []T) *T {
	p := C.calloc(C.size_t(max(1, len(s))), C.size_t(unsafe.Sizeof(*new(T))))
	*a = append(*a, p)
	copy(unsafe.Slice((*T)(p), len(s)), s)
	return (*T)(p)
}

// ringSize is the most events in the ring. If it is full, the worker waits.
const ringSize = C.KVB_RING

// Placed reports whether the thread keeps to Options.Processors.
func (w *Worker) Placed() bool { return C.kvb_worker_placed(w.w) != 0 }

// Wait waits until there are events. It returns false once Interrupt was called.
func (w *Worker) Wait() bool {
	conn, err := w.bell.SyscallConn()
	if err != nil { // closed: the worker is gone
		return false
	}
	// The bell is not read: the runtime's poller is edge-triggered, and each write is
	// an edge. If its file was closed, the wait ends too.
	_ = conn.Read(func(uintptr) bool {
		if w.interrupted.Load() || w.waiting() > 0 {
			return true
		}
		atomic.StoreUint32((*uint32)(&w.ring.listening), 1)
		return w.interrupted.Load() || w.waiting() > 0 // they may have come since the first check
	})
	return !w.interrupted.Load()
}

// waiting returns the number of waiting events.
func (w *Worker) waiting() uint32 {
	return atomic.LoadUint32((*uint32)(&w.ring.put)) - atomic.LoadUint32((*uint32)(&w.ring.taken))
}

// Interrupt ends Wait, now and for all later calls.
func (w *Worker) Interrupt() {
	w.interrupted.Store(true)
	if conn, err := w.bell.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { // write the eventfd, as the worker's thread does
			one := [8]byte{1}
			_, _ = syscall.Write(int(fd), one[:])
		})
	}
}

// Events takes up to len(into) waiting events and returns their number. Only one
// goroutine may call Events and Wait.
func (w *Worker) Events(into []Event) int {
	n := w.waiting()
	full := n == ringSize
	taken := uint32(w.ring.taken)
	n = min(n, uint32(len(into)))
	for i := range n {
		into[i] = *(*Event)(unsafe.Pointer(&w.ring.events[(taken+i)%ringSize]))
	}
	atomic.StoreUint32((*uint32)(&w.ring.taken), taken+n)
	if full {
		C.kvb_wake(w.w)
	}
	return int(n)
}

// Address returns the worker's address for the peer's Connect.
func (w *Worker) Address() ([]byte, error) {
	var address unsafe.Pointer
	var size C.size_t
	if err := check("ucp_worker_get_address", C.kvb_worker_address(w.w, &address, &size)); err != nil {
		return nil, err
	}
	defer C.free(address)
	return C.GoBytes(address, C.int(size)), nil
}

// Connect creates the endpoint to the worker with that address. The address must come
// from Address, because UCX does not check it.
func (w *Worker) Connect(address []byte) error {
	if len(address) == 0 {
		return errors.New("empty worker address")
	}
	copied := C.CBytes(address)
	defer C.free(copied)
	return check("ucp_ep_create", C.kvb_worker_connect(w.w, copied))
}

// Greet sends the peer a greeting, which arrives as an event. Once each side has the
// other's greeting, UCX has finished connecting them.
func (w *Worker) Greet() { C.kvb_greet(w.w) }

// Stop stops posting. Nothing after it becomes an event, except Idle. UCX's operations
// in flight continue, and the peer is still answered. If Stop returns false, the caller
// must take Events and call it again, so that no earlier event is lost.
func (w *Worker) Stop() (told bool) { return C.kvb_stop(w.w) == 0 }

// Settle lets UCX finish the operations that do not need the peer, and reports whether
// UCX then holds nothing.
func (w *Worker) Settle() bool { return C.kvb_settle(w.w) != 0 }

// Disconnect ends the endpoint of a stopped worker. After it no memory is accessed. The
// worker must be idle or have PeerErrors, because UCX aborts the process if an endpoint
// ends with data to send and no error handling. Disconnect returns false if UCX does
// not end the endpoint. Then the caller must call Abandon or Retire. After success the
// peer is still answered, which it may need to end its endpoint.
func (w *Worker) Disconnect() bool { return C.kvb_worker_disconnect(w.w) != 0 }

// Abandon frees the keys of the peer's memory if the peer is gone and Disconnect is
// impossible or has failed. Only Unmap, and Free or Retire, may follow.
func (w *Worker) Abandon() { C.kvb_worker_abandon(w.w) }

// Retire ends the thread instead of Free, and leaves the rest of the worker until the
// process ends. No goroutine may be in Wait, and no call may follow.
func (w *Worker) Retire() {
	C.kvb_worker_retire(w.w)
	w.bell.Close()
}

// Free frees a worker with no mapped memory. An abandoned worker must not have
// PeerErrors: its operations end without a message to the peer. Free returns false if
// UCX has aborted, before the call or in it; then it acted as Retire. No goroutine may
// be in Wait, and no call may follow.
func (w *Worker) Free() bool {
	done := C.kvb_worker_free(w.w) != 0
	w.bell.Close()
	return done
}

// Memory is registered memory.
type Memory struct {
	handle  unsafe.Pointer
	start   unsafe.Pointer // start of memory that UCX allocated
	kind    MemoryType
	Address uintptr
	Length  int64
	Key     []byte // for the peer's Import
}

// Pointer returns the start of memory from Allocate.
func (m Memory) Pointer() unsafe.Pointer { return m.start }

// Map registers length bytes of a type at address. The memory must not move until
// Unmap.
func (w *Worker) Map(address uintptr, length int64, kind MemoryType) (Memory, error) {
	return w.register("ucp_mem_map", address, length, kind)
}

// Allocate returns memory that UCX allocates in a place that suits its lanes.
func (w *Worker) Allocate(length int64) (Memory, error) {
	return w.register("ucp_mem_map with allocation", 0, length, HostMemory)
}

func (w *Worker) register(call string, address uintptr, length int64, kind MemoryType) (Memory, error) {
	var m C.struct_kvb_memory
	if err := check(call, C.kvb_map(w.w, C.uint64_t(address), C.uint64_t(length), C.uint32_t(kind), &m)); err != nil {
		return Memory{}, err
	}
	defer C.kvb_key_free(m.key)
	if address == 0 {
		address = uintptr(m.start)
	}
	return Memory{handle: m.handle, start: m.start, kind: kind, Address: address, Length: length, Key: C.GoBytes(m.key, C.int(m.key_size))}, nil
}

// Unmap ends a registration, and frees the memory if it came from Allocate.
func (w *Worker) Unmap(m Memory) error { return check("ucp_mem_unmap", C.kvb_unmap(w.w, m.handle)) }

// OpenRegion lets the peer's active messages write to host memory under a region
// number.
func (w *Worker) OpenRegion(number uint32, m Memory) {
	C.kvb_region_open(w.w, C.uint32_t(number), C.uint64_t(m.Address), C.uint64_t(m.Length), m.handle)
}

// CloseRegion ends the access that OpenRegion gave.
func (w *Worker) CloseRegion(number uint32) { C.kvb_region_close(w.w, C.uint32_t(number)) }

// Remote is the peer's memory.
type Remote struct{ key unsafe.Pointer }

// Import opens the peer's memory with its key. The key must come from the peer's Map or
// Allocate, because UCX does not check it.
func (w *Worker) Import(key []byte) (Remote, error) {
	if len(key) == 0 {
		return Remote{}, errors.New("empty memory key")
	}
	copied := C.CBytes(key)
	defer C.free(copied)
	var r Remote
	return r, check("ucp_ep_rkey_unpack", C.kvb_import(w.w, copied, &r.key))
}

// Direct reports whether this CPU can store to the peer's memory at address.
func (w *Worker) Direct(r Remote, address uint64) bool {
	return C.kvb_direct(w.w, r.key, C.uint64_t(address)) != 0
}

// Pieces returns an array for the pieces of a transfer, or nil if memory is out. Pieces
// and Fill need a slot that is not submitted. They return at once and may run
// concurrently with any other method.
func (w *Worker) Pieces(slot, count int) []Piece {
	p := C.kvb_slot_pieces(w.w, C.uint32_t(slot), C.uint32_t(max(1, count)))
	if p == nil {
		return nil
	}
	return unsafe.Slice((*Piece)(unsafe.Pointer(p)), count)
}

// Fill sets the operation of a slot's pieces. ActiveMessage uses the region, and Put
// and Get use the remote memory.
func (w *Worker) Fill(slot int, op Op, id uint64, bytes int64, pieces int, local Memory, remote Remote, region uint32) {
	C.kvb_slot_fill(w.w, C.uint32_t(slot), C.uint32_t(op), C.uint64_t(id), C.uint64_t(bytes), C.uint32_t(pieces), local.handle, C.uint32_t(local.kind), remote.key, C.uint32_t(region))
}

// Submit posts a slot and returns at once. Any goroutine may call it. The slot belongs
// to the worker until its Delivered or Failed event.
func (w *Worker) Submit(slot int) { C.kvb_slot_submit(w.w, C.uint32_t(slot)) }

// Moved returns a counter that grows while any data moves. It may run concurrently with
// any other method.
func (w *Worker) Moved() uint64 { return uint64(C.kvb_moved(w.w)) }

// counts are what a worker's thread has done since it started.
type counts struct {
	looks uint64 // times that it gave UCX a few turns
	dozes uint64 // sleeps that have begun
	naps  uint64 // sleeps that lasted until their time was over
}

// counts may be called beside any other.
func (w *Worker) counts() counts {
	c := C.kvb_worker_counts(w.w)
	return counts{uint64(c.looks), uint64(c.dozes), uint64(c.naps)}
}

// Describe returns what UCX says of the endpoint and its lanes.
func (w *Worker) Describe() string {
	text := C.kvb_describe(w.w)
	if text == nil {
		return ""
	}
	defer C.free(unsafe.Pointer(text))
	return C.GoString(text)
}

// Survey returns UCX's description of this host's lanes.
func Survey() (string, error) {
	if err := ready(); err != nil {
		return "", err
	}
	text := C.kvb_survey()
	if text == nil {
		return "", errors.New("UCX cannot list its lanes")
	}
	defer C.free(unsafe.Pointer(text))
	return C.GoString(text), nil
}

// TypesOf returns the memory types that UCX supports with these settings. It creates a
// UCX context for that, which opens the devices.
func TypesOf(settings []Setting) (MemoryTypes, error) {
	if err := ready(); err != nil {
		return 0, err
	}
	var arena arena
	defer arena.free()
	var types C.uint64_t
	var what *C.char
	if status := C.kvb_memory_types(arena.settings(settings), C.size_t(len(settings)), &types, &what); status != 0 {
		return 0, check(C.GoString(what), status)
	}
	return MemoryTypes(types), nil
}

// Clock returns CLOCK_MONOTONIC in ns, the clock of the events.
func Clock() int64 { return int64(C.kvb_now()) }
