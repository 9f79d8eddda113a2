package cudadrv_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"kvbench/internal/cudadrv"
	"kvbench/internal/cudadrv/testdouble"
)

const (
	ipcSize   = 3 << 20
	ipcOffset = 1<<20 + 512 // beyond ipcPiece: a copy's two sides must not overlap
	ipcPiece  = 100_000
)

// givenHandle reads a child's handle from stdin.
func givenHandle() (handle [cudadrv.HandleSize]byte) {
	var text string
	fmt.Fscanln(os.Stdin, &text)
	hex.Decode(handle[:], []byte(text))
	return handle
}

// importMemory is a child: it opens the memory whose handle stdin gives, copies a
// piece of it to the front, says so, and keeps it open until stdin ends.
func importMemory() error {
	_, c, err := firstDevice()
	if err != nil {
		return err
	}
	handle := givenHandle()
	base, err := c.OpenHandle(handle)
	if err != nil {
		return err
	}
	again, err := c.OpenHandle(handle)
	if err != nil || again != base {
		return fmt.Errorf("second open: %#x after %#x, %w", again, base, err)
	}
	if err := c.CloseHandle(again); err != nil {
		return err
	}
	if err := copyOnce(c, base, base+ipcOffset, ipcPiece); err != nil {
		return err
	}
	fmt.Println("copied")
	io.Copy(io.Discard, os.Stdin)
	return c.CloseHandle(base)
}

// TestImport opens memory in a second process. That all 64 bytes of the handle
// arrive, passed by value, is checked by the test double.
func TestImport(t *testing.T) {
	c := context(t)
	content := noise(ipcSize, 3)
	b := alloc(t, c, content)
	x, err := c.Export(b.Pointer + ipcOffset)
	if err != nil {
		t.Fatal(err)
	}
	if x.Offset != ipcOffset || x.Size < ipcSize {
		t.Errorf("exported %d bytes, memory at %d of them; want %d at %d", x.Size, x.Offset, ipcSize, ipcOffset)
	}
	peer := startImport(t, x)
	copy(content, content[ipcOffset:ipcOffset+ipcPiece])
	if err := expect(b, content); err != nil {
		t.Error(err)
	}
	if !testdouble.Real() {
		if err := b.Free(); err == nil || !strings.Contains(err.Error(), "CUDA_ERROR_ILLEGAL_STATE") {
			t.Errorf("Free of memory that another process has open: %v", err)
		}
	}
	peer.stdin.Close()
	if err := peer.Wait(); err != nil {
		t.Errorf("second process: %v", err)
	}
}

type importer struct {
	*exec.Cmd
	stdin io.WriteCloser
}

// startImport starts the child and returns when it has copied.
func startImport(t *testing.T, x cudadrv.Exported) importer {
	t.Helper()
	cmd := testdouble.Command(childVar + "=import")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in, hex.EncodeToString(x.Handle[:]))
	said := make([]byte, len("copied\n"))
	if _, err := io.ReadFull(out, said); err != nil || string(said) != "copied\n" {
		rest, _ := io.ReadAll(out)
		t.Fatalf("second process said %q, %v", append(said, rest...), err)
	}
	return importer{cmd, in}
}

func TestOpenOwnHandle(t *testing.T) {
	c := context(t)
	x, err := c.Export(alloc(t, c, noise(64, 1)).Pointer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.OpenHandle(x.Handle); !errors.Is(err, cudadrv.InvalidContext) {
		t.Errorf("a handle opened in the process that made it: %v", err)
	}
	if testdouble.Real() {
		return // what a driver says of the following is not documented
	}
	var never [cudadrv.HandleSize]byte
	if _, err := c.OpenHandle(never); !errors.Is(err, cudadrv.InvalidHandle) {
		t.Errorf("a handle of zeros: %v", err)
	}
	if _, err := c.Export(0x1000); err == nil {
		t.Error("an address that is no device memory was exported")
	}
}

// readNeighbour is a child: it opens the memory whose handle stdin gives, and copies the
// page that follows on its first byte.
func readNeighbour() error {
	_, c, err := firstDevice()
	if err != nil {
		return err
	}
	base, err := c.OpenHandle(givenHandle())
	if err != nil {
		return err
	}
	own, err := c.Alloc(neighbour)
	if err != nil {
		return err
	}
	got := make([]byte, neighbour)
	if err := copyOnce(c, own.Pointer, base+neighbour, neighbour); err != nil {
		return err
	}
	if _, err := own.ReadAt(got, 0); err != nil {
		return err
	}
	fmt.Printf("%s\n", bytes.TrimRight(got, "\x00"))
	return c.CloseHandle(base)
}

// neighbour is how far apart the double lays two bytes of memory.
const neighbour = 4096

// TestHandleOpensItsBlock: a handle of small memory opens what lies beside it, and one of
// exportable memory does not.
func TestHandleOpensItsBlock(t *testing.T) {
	testdouble.Only(t)
	c := context(t)
	for name, tc := range map[string]struct {
		alloc func(int64) (*cudadrv.Buffer, error)
		want  string
	}{
		"small":      {c.Alloc, "secret"},
		"exportable": {c.AllocExportable, ""},
	} {
		shared, err := tc.alloc(1)
		if err != nil {
			t.Fatal(err)
		}
		defer shared.Free()
		alloc(t, c, []byte("secret"))
		x, err := c.Export(shared.Pointer)
		if err != nil {
			t.Fatal(err)
		}
		cmd := testdouble.Command(childVar + "=neighbour")
		cmd.Stdin = strings.NewReader(hex.EncodeToString(x.Handle[:]) + "\n")
		if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != tc.want {
			t.Errorf("%s: read %q beside it, %v; want %q", name, out, err, tc.want)
		}
	}
}
