package staged

import "kvbench/transport"

const (
	// chunkBytes is the size of a place in the ring: copies of it run at the full rate
	// of a PCIe link, and its fill and drain are short beside a request.
	chunkBytes = 4 << 20
	// chunkPieces bounds the ranges of a chunk, and so its table and the copies of a call.
	chunkPieces = 4096
	// ringPlaces is how many chunks are under way: enough for one in each stage, one
	// waiting between, and the acknowledgement's way back.
	ringPlaces = 8
	ringBytes  = ringPlaces * chunkBytes
)

// piece is a range of a region.
type piece struct{ offset, length int64 }

// cutter cuts a transfer into chunks, in the order of its descriptors, which may be
// cut. The chunks of a transfer have about equal sizes.
type cutter struct {
	descs []transport.Descriptor
	limit int64 // bytes of a chunk
	next  int
	done  int64 // bytes of descs[next] that earlier chunks have
}

func newCutter(t *transport.Transfer, bytes int64) cutter {
	chunks := max(1, (bytes+chunkBytes-1)/chunkBytes)
	return cutter{descs: t.Descriptors, limit: (bytes + chunks - 1) / chunks}
}

// each calls f with the parts of descriptors that make up the next chunk and returns
// the chunk's bytes.
func (c *cutter) each(f func(local, remote, length int64)) (bytes int64) {
	for pieces := 0; c.next < len(c.descs) && bytes < c.limit && pieces < chunkPieces; {
		d := &c.descs[c.next]
		n := min(d.Length-c.done, c.limit-bytes)
		if n > 0 {
			f(d.Local+c.done, d.Remote+c.done, n)
			pieces++
		}
		bytes += n
		if c.done += n; c.done == d.Length {
			c.next++
			c.done = 0
		}
	}
	return bytes
}

// more reports whether there is another chunk. Descriptors without bytes make none.
func (c *cutter) more() bool {
	for c.next < len(c.descs) && c.descs[c.next].Length == c.done {
		c.next++
		c.done = 0
	}
	return c.next < len(c.descs)
}

// count is the number of chunks of a transfer: at least one, which may be empty.
func (c cutter) count() int {
	n := 0
	for c.more() {
		c.each(func(int64, int64, int64) {})
		n++
	}
	return max(1, n)
}
