package nvml

import (
	"fmt"
	"sync"
	"unsafe"

	"kvbench/internal/dynlib"
)

// libraryName is the name of the library in every Linux distribution.
const libraryName = "libnvidia-ml.so.1"

// Library is the loaded library. Its methods are safe for concurrent use, as NVML's calls
// are.
type Library struct {
	functions [symbolCount]uintptr
}

// Open loads the library and starts it, once a process and for its life: later calls return
// the first one's result. The error wraps ErrNotBuilt, ErrNoLibrary or ErrTooOld, or is an
// *Error of nvmlInit_v2.
var Open = sync.OnceValues(load)

func load() (*Library, error) {
	library, err := dynlib.Open(libraryName)
	if err != nil {
		return nil, noLibrary(err)
	}
	l := &Library{}
	for s := range symbolCount {
		l.functions[s] = dynlib.Find(library, symbols[s])
	}
	if err := l.call(symInit); err != nil {
		return nil, err
	}
	return l, nil
}

// call calls NVML. The directive keeps the memory of its pointer arguments in place for the
// call.
//
//go:uintptrescapes
func (l *Library) call(s symbol, args ...uintptr) error {
	if l.functions[s] == 0 {
		return fmt.Errorf("%w %s", ErrTooOld, symbols[s])
	}
	r := Result(uint32(callC(l.functions[s], args...)))
	if r == success {
		return nil
	}
	return &Error{Call: symbols[s], Result: r, Text: l.text(r)}
}

// text returns NVML's text for a result.
func (l *Library) text(r Result) string {
	if l.functions[symErrorString] == 0 {
		return ""
	}
	at := callC(l.functions[symErrorString], uintptr(r))
	if at == 0 {
		return ""
	}
	// The text is a constant of the library, outside Go's memory, and stays valid.
	return dynlib.String(*(**byte)(unsafe.Pointer(&at)))
}
