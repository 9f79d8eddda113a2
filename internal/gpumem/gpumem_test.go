package gpumem_test

import (
	"errors"
	"os"
	"testing"

	"kvbench/internal/cudadrv"
	"kvbench/internal/cudadrv/testdouble"
	"kvbench/internal/gpumem"
	"kvbench/transport"
)

func TestMain(m *testing.M) { os.Exit(testdouble.Main(m)) }

func TestOwned(t *testing.T) {
	testdouble.Need(t)
	registered := false
	o := gpumem.On(0, func(at cudadrv.DevicePointer, size int64) bool {
		if size != 4096 {
			t.Errorf("asked for %d bytes at %#x", size, at)
		}
		return registered
	})
	m, err := o.Allocate(4096)
	if err != nil {
		t.Fatal(err)
	}
	if m.Kind != transport.CUDAMemory || m.Device != 0 || m.Length != 4096 || m.Pointer == 0 {
		t.Errorf("%+v", m)
	}
	if err := o.CopyIn(m, 4000, []byte("the last ninety-six")); err != nil {
		t.Fatal(err)
	}
	var got [8]byte
	if err := o.CopyOut(m, 4004, got[:]); err != nil || string(got[:]) != "last nin" {
		t.Errorf("got %q, %v", got, err)
	}
	elsewhere := m
	elsewhere.Pointer += 64
	registered = true
	for name, c := range map[string]struct{ err, want error }{
		"in over the end":  {o.CopyIn(m, 4090, got[:]), transport.ErrBounds},
		"out over the end": {o.CopyOut(m, 4090, got[:]), transport.ErrBounds},
		"before it":        {o.CopyOut(m, -1, got[:]), transport.ErrBounds},
		"elsewhere":        {o.CopyIn(elsewhere, 0, got[:]), transport.ErrRegion},
		"free elsewhere":   {o.Free(elsewhere), transport.ErrRegion},
		"free in use":      {o.Free(m), transport.ErrBusy},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: error %v, want one that wraps %q", name, c.err, c.want)
		}
	}
	registered = false
	if err := o.Free(m); err != nil {
		t.Fatal(err)
	}
	if err := o.Free(m); !errors.Is(err, transport.ErrRegion) {
		t.Errorf("second Free: %v", err)
	}
	if m, err = o.Allocate(4096); err != nil {
		t.Fatal(err)
	}
	if err := o.FreeAll(); err != nil {
		t.Fatal(err)
	}
	if err := o.CopyOut(m, 0, got[:]); !errors.Is(err, transport.ErrRegion) {
		t.Errorf("CopyOut after FreeAll: %v", err)
	}
	if _, err := o.Allocate(4096); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Allocate after FreeAll: %v", err)
	}
	if _, err := gpumem.On(7, nil).Allocate(1); !errors.Is(err, cudadrv.ErrNoDevice) {
		t.Errorf("Allocate on a device that is not there: %v", err)
	}
}

// TestLeave: what a peer may yet touch is not freed, and of no more use here.
func TestLeave(t *testing.T) {
	testdouble.Need(t)
	o := gpumem.On(0, nil)
	m, err := o.Allocate(4096)
	if err != nil {
		t.Fatal(err)
	}
	o.Leave()
	d, err := cudadrv.Open()
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Context(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(o.Free(m), o.FreeAll()); err != nil {
		t.Error(err)
	}
	if err := gpumem.Check(c, m); err != nil {
		t.Errorf("the memory is gone: %v", err)
	}
	if _, err := o.Allocate(4096); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Allocate after Leave: %v", err)
	}
}

func TestCheck(t *testing.T) {
	testdouble.Need(t)
	d, err := cudadrv.Open()
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Context(0)
	if err != nil {
		t.Fatal(err)
	}
	o := gpumem.On(0, func(cudadrv.DevicePointer, int64) bool { return false })
	m, err := o.Allocate(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer o.FreeAll()
	for name, tc := range map[string]struct {
		change func(*transport.Memory)
		want   error
	}{
		"all of it":      {func(*transport.Memory) {}, nil},
		"a part":         {func(m *transport.Memory) { m.Pointer += 4000; m.Length = 96 }, nil},
		"over the end":   {func(m *transport.Memory) { m.Pointer += 4000; m.Length = 97 }, transport.ErrBounds},
		"nothing":        {func(m *transport.Memory) { m.Length = 0 }, transport.ErrBounds},
		"another device": {func(m *transport.Memory) { m.Device = 1 }, transport.ErrUnsupported},
	} {
		changed := m
		tc.change(&changed)
		if err := gpumem.Check(c, changed); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

func TestMadeBy(t *testing.T) {
	testdouble.Need(t)
	refused := errors.New("no")
	var asked int64
	o := gpumem.On(0, nil).MadeBy(func(c *cudadrv.Context, size int64) (*cudadrv.Buffer, error) {
		asked = size
		return nil, refused
	})
	if _, err := o.Allocate(4096); err != refused || asked != 4096 {
		t.Errorf("%v, asked for %d bytes", err, asked)
	}
}
