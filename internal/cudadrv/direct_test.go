package cudadrv_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"kvbench/internal/cudadrv/testdouble"
)

// allocForRDMA is a child that makes memory for a NIC, and says how much of the device
// is in use where that fails.
func allocForRDMA() error {
	_, c, err := firstDevice()
	if err != nil {
		return err
	}
	b, err := c.AllocForRDMA(1 << 20)
	if err != nil {
		// With memory for one, another shows that nothing is left of it.
		again, errAgain := c.AllocForRDMA(1 << 20)
		if errAgain == nil {
			errAgain = again.Free()
		}
		return errors.Join(err, errAgain)
	}
	want := bytes.Repeat([]byte("kv"), 1<<19)
	if _, err := b.WriteAt(want, 0); err != nil {
		return err
	}
	if err := expect(b, want); err != nil {
		return err
	}
	fmt.Println("works")
	return b.Free()
}

func TestAllocForRDMA(t *testing.T) {
	if out, ok := child(t, "rdma"); !ok || out != "works" {
		t.Error(out)
	}
	testdouble.Only(t)
	const want = "prepare memory of CUDA device 0 for RDMA: cuPointerSetAttribute: CUDA_ERROR_NOT_SUPPORTED (801): operation not supported"
	if out, ok := child(t, "rdma", "CUDA_DOUBLE_FAIL=cuPointerSetAttribute:1:801", "CUDA_DOUBLE_MEMORY=1048576"); ok || out != want {
		t.Errorf("refused: got %q, want %q", out, want)
	}
}

func TestBinding(t *testing.T) {
	function, handle := context(t).Binding()
	if function == 0 || handle == 0 {
		t.Errorf("function %#x, context %#x", function, handle)
	}
}
