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

// The layouts that events and pieces have on either side of the binding must agree.
var (
	_ [C.sizeof_struct_kvb_event]byte = [unsafe.Sizeof(Event{})]byte{}
	_ [C.sizeof_struct_kvb_piece]byte = [unsafe.Sizeof(Piece{})]byte{}
)

// The types of memory have UCX's numbers.
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

// Load finds UCX. It returns an error that wraps ErrNotBuilt or ErrNotFound where there is none.
func Load() error { return load() }

// Version returns the version of the library that was found, such as 1.13.1.
func Version() (string, error) {
	if err := load(); err != nil {
		return "", err
	}
	return C.GoString(C.version_string()), nil
}

// StatusText returns UCX's words for a status.
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

// opens is more file descriptors than UCX 1.13.1 takes for a first worker, its threads
// and the files that it looks into.
const opens = 32

// ready finds UCX, and makes sure of file descriptors for what it opens: where there are
// none UCX ends the process by an assertion.
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

// Worker is one connection's share of UCX, and the thread that alone calls it.
type Worker struct {
	w           *C.kvb_worker
	ring        *C.struct_kvb_ring
	bell        *os.File // rings for events where Wait listens
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

// arena is memory of C's for the time of a call.
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

// settings returns a copy of settings.
func (a *arena) settings(list []Setting) *C.struct_kvb_setting {
	settings := make([]C.struct_kvb_setting, len(list))
	for i, s := range list {
		settings[i] = C.struct_kvb_setting{name: a.text(s.Name), value: a.text(s.Value)}
	}
	return copied(a, settings)
}

// copied returns a copy of a slice in C's memory.
func copied[T any](a *arena, s []T) *T {
	p := C.calloc(C.size_t(max(1, len(s))), C.size_t(unsafe.Sizeof(*new(T))))
	*a = append(*a, p)
	copy(unsafe.Slice((*T)(p), len(s)), s)
	return (*T)(p)
}

// ringSize is how many events wait at most, before the worker waits too.
const ringSize = C.KVB_RING

// Placed reports whether the thread keeps to Options.Processors.
func (w *Worker) Placed() bool { return C.kvb_worker_placed(w.w) != 0 }

// Wait waits until there are events. It reports false once Interrupt was called.
func (w *Worker) Wait() bool {
	conn, err := w.bell.SyscallConn()
	if err != nil { // closed: the worker is gone
		return false
	}
	// The bell is not read: each ring is an edge to the runtime's poller. Its file may
	// have been closed, which ends the wait too.
	_ = conn.Read(func(uintptr) bool {
		if w.interrupted.Load() || w.waiting() > 0 {
			return true
		}
		atomic.StoreUint32((*uint32)(&w.ring.listening), 1)
		return w.interrupted.Load() || w.waiting() > 0 // which came between
	})
	return !w.interrupted.Load()
}

// waiting is how many events there are.
func (w *Worker) waiting() uint32 {
	return atomic.LoadUint32((*uint32)(&w.ring.put)) - atomic.LoadUint32((*uint32)(&w.ring.taken))
}

// Interrupt ends Wait for good.
func (w *Worker) Interrupt() {
	w.interrupted.Store(true)
	if conn, err := w.bell.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { // as the worker's thread does it
			one := [8]byte{1}
			_, _ = syscall.Write(int(fd), one[:])
		})
	}
}

// Events takes events that wait, up to the length of into. One goroutine may call it
// and Wait.
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

// Address returns what the peer's Connect needs.
func (w *Worker) Address() ([]byte, error) {
	var address unsafe.Pointer
	var size C.size_t
	if err := check("ucp_worker_get_address", C.kvb_worker_address(w.w, &address, &size)); err != nil {
		return nil, err
	}
	defer C.free(address)
	return C.GoBytes(address, C.int(size)), nil
}

// Connect makes the endpoint to the worker with that address, which must be one
// that Address returned: UCX does not check it.
func (w *Worker) Connect(address []byte) error {
	if len(address) == 0 {
		return errors.New("empty worker address")
	}
	copied := C.CBytes(address)
	defer C.free(copied)
	return check("ucp_ep_create", C.kvb_worker_connect(w.w, copied))
}

// Greet sends the peer a greeting, which it has as an event. Once each side has the
// other's, UCX has finished connecting them.
func (w *Worker) Greet() { C.kvb_greet(w.w) }

// Stop posts no more, and nothing that happens after it is an event, but Idle. What UCX
// holds goes on, and the peer is answered. It reports false where Events have to be
// taken before it is called again, so that all that happened before it is told.
func (w *Worker) Stop() (told bool) { return C.kvb_stop(w.w) == 0 }

// Settle lets UCX end what ends without the peer, and reports whether it then holds
// nothing.
func (w *Worker) Settle() bool { return C.kvb_settle(w.w) != 0 }

// Disconnect ends the endpoint of a stopped worker, after which no memory is touched.
// The worker must be idle or have PeerErrors: UCX aborts the process where an endpoint
// ends that still has something to send and cannot be told that its peer is gone. It
// reports false where UCX does not let the endpoint end: the worker is to be abandoned.
// Otherwise the peer is still answered, which may need that to end its own.
func (w *Worker) Disconnect() bool { return C.kvb_worker_disconnect(w.w) != 0 }

// Abandon lets go of the peer's memory where Disconnect cannot be had and the peer is gone.
// Nothing but Unmap, and Free or Retire, may follow.
func (w *Worker) Abandon() { C.kvb_worker_abandon(w.w) }

// Retire ends the thread in place of Free, and leaves the rest of the worker to the
// end of the process. Nobody may be in Wait, and nothing may follow.
func (w *Worker) Retire() {
	C.kvb_worker_retire(w.w)
	w.bell.Close()
}

// Free lets go of a worker whose memory has been unmapped. One that was abandoned must not
// have PeerErrors; what UCX still holds of it ends without a word to the peer. It reports
// false where UCX has given up, before or in it, and it was Retire. Nobody may be in Wait,
// and nothing may follow.
func (w *Worker) Free() bool {
	done := C.kvb_worker_free(w.w) != 0
	w.bell.Close()
	return done
}

// Memory is registered memory.
type Memory struct {
	handle  unsafe.Pointer
	start   unsafe.Pointer // of memory that UCX allocated
	kind    MemoryType
	Address uintptr
	Length  int64
	Key     []byte // what the peer's Import needs
}

// Pointer is where memory that Allocate returned begins.
func (m Memory) Pointer() unsafe.Pointer { return m.start }

// Map registers length bytes of a type at address, which stay where they are until Unmap.
func (w *Worker) Map(address uintptr, length int64, kind MemoryType) (Memory, error) {
	return w.register("ucp_mem_map", address, length, kind)
}

// Allocate returns memory that UCX made, in the place that its lanes like best.
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

// Unmap ends a registration, and frees the memory if Allocate made it.
func (w *Worker) Unmap(m Memory) error { return check("ucp_mem_unmap", C.kvb_unmap(w.w, m.handle)) }

// OpenRegion lets the peer's active messages write to host memory, by number.
func (w *Worker) OpenRegion(number uint32, m Memory) {
	C.kvb_region_open(w.w, C.uint32_t(number), C.uint64_t(m.Address), C.uint64_t(m.Length), m.handle)
}

// CloseRegion ends that.
func (w *Worker) CloseRegion(number uint32) { C.kvb_region_close(w.w, C.uint32_t(number)) }

// Remote is the peer's memory.
type Remote struct{ key unsafe.Pointer }

// Import makes the peer's memory known by its key, which must be one that Map
// returned: UCX does not check it.
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

// Pieces returns room for the pieces of a transfer, or nil where memory is out. Like
// Fill it is for a slot that is not submitted, returns at once and may be called
// beside any other.
func (w *Worker) Pieces(slot, count int) []Piece {
	p := C.kvb_slot_pieces(w.w, C.uint32_t(slot), C.uint32_t(max(1, count)))
	if p == nil {
		return nil
	}
	return unsafe.Slice((*Piece)(unsafe.Pointer(p)), count)
}

// Fill says what a slot's pieces are to do. The region is used by ActiveMessage and
// the remote memory by Put and Get.
func (w *Worker) Fill(slot int, op Op, id uint64, bytes int64, pieces int, local Memory, remote Remote, region uint32) {
	C.kvb_slot_fill(w.w, C.uint32_t(slot), C.uint32_t(op), C.uint64_t(id), C.uint64_t(bytes), C.uint32_t(pieces), local.handle, C.uint32_t(local.kind), remote.key, C.uint32_t(region))
}

// Submit posts a slot, at once and from any goroutine. The slot is the worker's until
// an event says Delivered or Failed.
func (w *Worker) Submit(slot int) { C.kvb_slot_submit(w.w, C.uint32_t(slot)) }

// Moved grows while anything moves. It may be called beside any other.
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

// Survey returns what UCX says of this host's lanes.
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

// TypesOf returns the types of memory that UCX takes with these settings. It makes a
// context for that, which opens the devices.
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

// Clock returns CLOCK_MONOTONIC in ns, by which events are timed.
func Clock() int64 { return int64(C.kvb_now()) }
