//go:build !linux

package cuda

// receiver has nothing: without the driver no connection is made here.
type receiver struct{}

// receive reads up to len(b) bytes.
func (i *inbox) receive(b []byte) (int, error) { return i.from.Read(b) }
