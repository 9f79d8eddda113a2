//go:build !(ucx && cgo && linux)

package ucx

import (
	"fmt"
	"unsafe"
)

// Built reports whether this build has the binding.
const Built = false

// Load returns ErrNotBuilt, as do all functions below that return an error.
func Load() error { return ErrNotBuilt }

// Version returns ErrNotBuilt.
func Version() (string, error) { return "", ErrNotBuilt }

// StatusText returns the number of a status.
func StatusText(status int) string { return fmt.Sprint("status ", status) }

// Survey returns ErrNotBuilt.
func Survey() (string, error) { return "", ErrNotBuilt }

// TypesOf returns ErrNotBuilt.
func TypesOf([]Setting) (MemoryTypes, error) { return 0, ErrNotBuilt }

// Worker is never created in this build.
type Worker struct{}

// NewWorker returns ErrNotBuilt.
func NewWorker(Options) (*Worker, error) { return nil, ErrNotBuilt }

// Memory is registered memory.
type Memory struct {
	Address uintptr
	Length  int64
	Key     []byte
}

// Pointer returns nil.
func (Memory) Pointer() unsafe.Pointer { return nil }

// Remote is the peer's memory.
type Remote struct{}

// The methods of a worker, which is never created.

func (*Worker) Address() ([]byte, error)                                 { return nil, ErrNotBuilt }
func (*Worker) Connect([]byte) error                                     { return ErrNotBuilt }
func (*Worker) Greet()                                                   {}
func (*Worker) Stop() bool                                               { return true }
func (*Worker) Placed() bool                                             { return false }
func (*Worker) Wait() bool                                               { return false }
func (*Worker) Interrupt()                                               {}
func (*Worker) Events([]Event) int                                       { return 0 }
func (*Worker) Settle() bool                                             { return true }
func (*Worker) Retire()                                                  {}
func (*Worker) Disconnect() bool                                         { return true }
func (*Worker) Abandon()                                                 {}
func (*Worker) Free() bool                                               { return false }
func (*Worker) Map(uintptr, int64, MemoryType) (Memory, error)           { return Memory{}, ErrNotBuilt }
func (*Worker) Allocate(int64) (Memory, error)                           { return Memory{}, ErrNotBuilt }
func (*Worker) Unmap(Memory) error                                       { return ErrNotBuilt }
func (*Worker) OpenRegion(uint32, Memory)                                {}
func (*Worker) CloseRegion(uint32)                                       {}
func (*Worker) Import([]byte) (Remote, error)                            { return Remote{}, ErrNotBuilt }
func (*Worker) Direct(Remote, uint64) bool                               { return false }
func (*Worker) Pieces(slot, count int) []Piece                           { return nil }
func (*Worker) Fill(int, Op, uint64, int64, int, Memory, Remote, uint32) {}
func (*Worker) Submit(int)                                               {}
func (*Worker) Moved() uint64                                            { return 0 }
func (*Worker) Describe() string                                         { return "" }

// Clock returns 0.
func Clock() int64 { return 0 }
