package cudadrv_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kvbench/internal/cudadrv"
	"kvbench/internal/cudadrv/testdouble"
)

// openDriver is a child: it opens the driver and prints what there is.
func openDriver() error {
	d, err := cudadrv.Open()
	if err != nil {
		return err
	}
	fmt.Println(d.Version(), d.Count())
	return nil
}

// openDevice is a child: it opens device 1.
func openDevice() error {
	d, err := cudadrv.Open()
	if err != nil {
		return err
	}
	_, err = d.Context(1)
	return err
}

// fillDevice is a child: it allocates until there is nothing left.
func fillDevice() error {
	_, c, err := firstDevice()
	if err != nil {
		return err
	}
	for {
		if _, err := c.Alloc(3 << 20); err != nil {
			return err
		}
	}
}

// nameDevice is a child: it prints the UUID of device 0.
func nameDevice() error {
	d, err := cudadrv.Open()
	if err != nil {
		return err
	}
	dev, err := d.Device(0)
	fmt.Println(dev.UUID)
	return err
}

func TestOpen(t *testing.T) {
	testdouble.Only(t)
	if out, ok := child(t, "open", "CUDA_DOUBLE_DEVICES=3", "CUDA_DOUBLE_DRIVER=12040"); !ok || out != "12.4 3" {
		t.Errorf("got %q", out)
	}
	if out, ok := child(t, "open", "CUDA_DOUBLE_DEVICES=3", "CUDA_VISIBLE_DEVICES=2,0"); !ok || out != "12.8 2" {
		t.Errorf("with two devices visible: got %q", out)
	}
}

// TestFailures provokes what users meet, and looks for the advice.
func TestFailures(t *testing.T) {
	testdouble.Only(t)
	old, broken := t.TempDir(), t.TempDir()
	if err := testdouble.Build(old, true); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(broken, "libcuda.so.1"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, child string
		env         []string
		want        []string
	}{
		{"driver does not load", "open", []string{"LD_LIBRARY_PATH=" + broken},
			[]string{"no CUDA driver: libcuda.so.1 not found or not loadable", "install NVIDIA's driver"}},
		{"no device", "open", []string{"CUDA_DOUBLE_DEVICES=0"},
			[]string{"no CUDA device", "nvidia-smi -L"}},
		{"hidden devices", "open", []string{"CUDA_VISIBLE_DEVICES="},
			[]string{"no CUDA device", `CUDA_VISIBLE_DEVICES="" hides`, "unset it"}},
		{"hidden device", "device", []string{"CUDA_VISIBLE_DEVICES=1"},
			[]string{"no CUDA device 1 among the 1 that this process sees", `CUDA_VISIBLE_DEVICES="1" hides`}},
		{"out of memory", "fill", []string{"CUDA_DOUBLE_MEMORY=10485760"},
			// 10 MiB less three times 3 MiB is 1 MiB.
			[]string{"allocate on CUDA device 0", "3145728 bytes, where 1048576 of 10485760 are free", "CUDA_ERROR_OUT_OF_MEMORY (2)", "nvidia-smi"}},
		{"old driver", "import", []string{"LD_LIBRARY_PATH=" + old, "CUDA_DOUBLE_DRIVER=10020"},
			[]string{"CUDA driver too old for cuIpcOpenMemHandle_v2", "it is of CUDA 10.2", "CUDA 11.0 or newer is needed"}},
		{"start fails", "open", []string{"CUDA_DOUBLE_FAIL=cuInit:1:803"},
			[]string{"start the CUDA driver", "cuInit: CUDA error 803"}},
		{"context fails", "device", []string{"CUDA_DOUBLE_FAIL=cuDevicePrimaryCtxRetain:0:2"},
			[]string{"start a context on CUDA device 1 (Test double 1)", "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, ok := child(t, c.child, c.env...)
			if ok {
				t.Errorf("succeeded: %s", out)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("got %q, want it to contain %q", out, want)
				}
			}
		})
	}
}

func TestDevices(t *testing.T) {
	testdouble.Only(t)
	d := context(t).Driver()
	// As libcuda/device.c makes them: "kvbench double", a zero, and the number.
	const uuid = "GPU-6b766265-6e63-6820-646f-75626c6500"
	for i := range 2 {
		got, err := d.Device(i)
		if err != nil {
			t.Fatal(err)
		}
		if got.Name != fmt.Sprint("Test double ", i) || got.UUID.String() != fmt.Sprintf("%s%02x", uuid, i) || got.PCIBusID != fmt.Sprintf("0000:1%d:00.0", i) {
			t.Errorf("device %d: %+v", i, got)
		}
		found, ok, err := d.ByUUID(got.UUID)
		if err != nil || !ok || found.Ordinal != i {
			t.Errorf("ByUUID of device %d: %+v, %v, %v", i, found, ok, err)
		}
		for j := range 2 {
			other, err := d.Device(j)
			if err != nil {
				t.Fatal(err)
			}
			if can, err := d.CanAccessPeer(got, other); err != nil || can != (i != j) {
				t.Errorf("CanAccessPeer(%d, %d): %v, %v", i, j, can, err)
			}
		}
	}
	if _, ok, err := d.ByUUID(cudadrv.UUID{}); ok || err != nil {
		t.Errorf("ByUUID of no device: %v, %v", ok, err)
	}
}

// TestMIG tells MIG instances apart, with a driver that can: the byte before the last is
// the instance's number.
func TestMIG(t *testing.T) {
	testdouble.Only(t)
	old := t.TempDir()
	if err := testdouble.Build(old, true); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want string
		env  []string
	}{
		{"GPU-6b766265-6e63-6820-646f-75626c650000", nil},
		{"MIG-6b766265-6e63-6820-646f-75626c650300", []string{"CUDA_DOUBLE_MIG=3"}},
		{"GPU-6b766265-6e63-6820-646f-75626c650000", []string{"CUDA_DOUBLE_MIG=3", "LD_LIBRARY_PATH=" + old}},
	} {
		if out, ok := child(t, "name", c.env...); !ok || out != c.want {
			t.Errorf("%q: got %q, want %s", c.env, out, c.want)
		}
	}
}

// TestAsOnADriver: these tests run where there is a driver and nothing else, and one
// older than CUDA 12.8, which does not take batches, is enough.
func TestAsOnADriver(t *testing.T) {
	testdouble.AsOnADriver(t, ".")
	testdouble.AsOnADriver(t, ".", "CUDA_DOUBLE_FAIL=cuMemcpyBatchAsync:0:801", "CUDA_DOUBLE_DRIVER=12040")
}
