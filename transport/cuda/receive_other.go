//go:build !linux

package cuda

// receiver is empty: without the driver no connection is made on this system.
type receiver struct{}

// receive reads up to len(b) bytes.
func (i *inbox) receive(b []byte) (int, error) { return i.from.Read(b) }
