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
	"sync"
	"time"
	"unsafe"
)

// Built reports whether this build has the binding.
const Built = true

// The layouts that events and pieces have on either side of the binding must agree.
var (
	_ [C.sizeof_struct_kvb_event]byte = [unsafe.Sizeof(Event{})]byte{}
	_ [C.sizeof_struct_kvb_piece]byte = [unsafe.Sizeof(Piece{})]byte{}
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

// Worker is one connection's share of UCX.
type Worker struct{ w *C.kvb_worker }

// NewWorker makes a worker for the thread that calls it.
func NewWorker(o Options) (*Worker, error) {
	if err := load(); err != nil {
		return nil, err
	}
	settings := (*[1 << 16]C.struct_kvb_setting)(C.calloc(C.size_t(max(1, len(o.Settings))), C.sizeof_struct_kvb_setting))
	defer C.free(unsafe.Pointer(settings))
	for i, s := range o.Settings {
		name, value := C.CString(s.Name), C.CString(s.Value)
		defer C.free(unsafe.Pointer(name))
		defer C.free(unsafe.Pointer(value))
		settings[i] = C.struct_kvb_setting{name: name, value: value}
	}
	options := (*C.struct_kvb_options)(C.calloc(1, C.sizeof_struct_kvb_options))
	defer C.free(unsafe.Pointer(options))
	*options = C.struct_kvb_options{settings: &settings[0], setting_count: C.size_t(len(o.Settings)), slots: C.uint32_t(o.Slots), window: C.uint32_t(o.Window)}
	if o.PeerErrors {
		options.peer_errors = 1
	}
	w := new(Worker)
	var what *C.char
	if status := C.kvb_worker_new(options, &w.w, &what); status != 0 {
		return nil, check(C.GoString(what), status)
	}
	return w, nil
}

// Address returns what the peer's Connect needs.
func (w *Worker) Address() ([]byte, error) {
	var address unsafe.Pointer
	var size C.size_t
	if err := check("ucp_worker_get_address", C.kvb_worker_address(w.w, &address, &size)); err != nil {
		return nil, err
	}
	defer C.kvb_worker_address_free(w.w, address)
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

// Stop posts no more and gives no more events. What UCX holds goes on, and the
// peer is answered, as long as Progress is called.
func (w *Worker) Stop() { C.kvb_stop(w.w) }

// Idle reports whether UCX holds nothing.
func (w *Worker) Idle() bool { return C.kvb_idle(w.w) != 0 }

// Disconnect ends the endpoint, after which no memory is touched. The worker must
// be idle or have PeerErrors: UCX aborts the process where an endpoint ends that
// still has something to send and cannot be told that its peer is gone. It reports
// false where UCX does not let the endpoint end: the worker is to be abandoned.
// Otherwise Progress still answers the peer, which may need that to end its own.
func (w *Worker) Disconnect() bool { return C.kvb_worker_disconnect(w.w) != 0 }

// Abandon lets go of the peer's memory where Disconnect cannot be had, and leaves
// the rest of the worker to the end of the process. Nothing but Unmap may follow.
func (w *Worker) Abandon() { C.kvb_worker_abandon(w.w) }

// Free lets go of a worker whose memory has been unmapped. The worker is gone after it.
func (w *Worker) Free() { C.kvb_worker_free(w.w) }

// Memory is registered memory.
type Memory struct {
	handle  unsafe.Pointer
	start   unsafe.Pointer // of memory that UCX allocated
	Address uintptr
	Length  int64
	Key     []byte // what the peer's Import needs
}

// Pointer is where memory that Allocate returned begins.
func (m Memory) Pointer() unsafe.Pointer { return m.start }

// Map registers length bytes at address, which stay where they are until Unmap.
func (w *Worker) Map(address uintptr, length int64) (Memory, error) {
	return w.register("ucp_mem_map", address, length)
}

// Allocate returns memory that UCX made, in the place that its lanes like best.
func (w *Worker) Allocate(length int64) (Memory, error) {
	return w.register("ucp_mem_map with allocation", 0, length)
}

func (w *Worker) register(call string, address uintptr, length int64) (Memory, error) {
	var m C.struct_kvb_memory
	if err := check(call, C.kvb_map(w.w, C.uint64_t(address), C.uint64_t(length), &m)); err != nil {
		return Memory{}, err
	}
	defer C.kvb_key_free(m.key)
	if address == 0 {
		address = uintptr(m.start)
	}
	return Memory{handle: m.handle, start: m.start, Address: address, Length: length, Key: C.GoBytes(m.key, C.int(m.key_size))}, nil
}

// Unmap ends a registration, and frees the memory if Allocate made it.
func (w *Worker) Unmap(m Memory) error { return check("ucp_mem_unmap", C.kvb_unmap(w.w, m.handle)) }

// OpenRegion lets the peer's active messages write to memory, by number.
func (w *Worker) OpenRegion(number uint32, m Memory) {
	C.kvb_region_open(w.w, C.uint32_t(number), C.uint64_t(m.Address), C.uint64_t(m.Length))
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
	return C.kvb_direct(r.key, C.uint64_t(address)) != 0
}

// Pieces returns room for the pieces of a transfer, or nil where memory is out.
// Any thread may call it for a slot that is not submitted.
func (w *Worker) Pieces(slot, count int) []Piece {
	p := C.kvb_slot_pieces(w.w, C.uint32_t(slot), C.uint32_t(max(1, count)))
	if p == nil {
		return nil
	}
	return unsafe.Slice((*Piece)(unsafe.Pointer(p)), count)
}

// Fill says what a slot's pieces are to do. Any thread may call it for a slot
// that is not submitted. The region is used by ActiveMessage and the remote
// memory by Put and Get.
func (w *Worker) Fill(slot int, op Op, id uint64, bytes int64, pieces int, local Memory, remote Remote, region uint32) {
	C.kvb_slot_fill(w.w, C.uint32_t(slot), C.uint32_t(op), C.uint64_t(id), C.uint64_t(bytes), C.uint32_t(pieces), local.handle, remote.key, C.uint32_t(region))
}

// Submit posts a slot. It is the worker's until an event says Delivered or Failed.
func (w *Worker) Submit(slot int) { C.kvb_slot_submit(w.w, C.uint32_t(slot)) }

// Progress moves things on until there are events, which it stores, or Wake is
// called. It spins for up to spin and then sleeps for up to sleep.
func (w *Worker) Progress(events []Event, spin, sleep time.Duration) int {
	return int(C.kvb_progress(w.w, (*C.struct_kvb_event)(unsafe.Pointer(&events[0])), C.int(len(events)), C.int64_t(spin), C.int64_t(sleep)))
}

// Wake ends Progress. Any thread may call it.
func (w *Worker) Wake() { C.kvb_wake(w.w) }

// Moved grows while anything moves. Any thread may call it.
func (w *Worker) Moved() uint64 { return uint64(C.kvb_moved(w.w)) }

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
	if err := load(); err != nil {
		return "", err
	}
	text := C.kvb_survey()
	if text == nil {
		return "", errors.New("UCX cannot list its lanes")
	}
	defer C.free(unsafe.Pointer(text))
	return C.GoString(text), nil
}

// Clock returns CLOCK_MONOTONIC in ns, by which events are timed.
func Clock() int64 { return int64(C.kvb_now()) }
