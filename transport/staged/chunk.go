package staged

import "kvbench/transport"

const (
	// chunkBytes is the size of a place in the ring. Copies of this size run at the
	// full rate of a PCIe link, and its fill and drain times are short compared with a
	// request.
	chunkBytes = 4 << 20
	// chunkPieces is the most ranges of a chunk. It bounds the chunk's table and the
	// copies of one call.
	chunkPieces = 4096
	// ringPlaces is the most chunks in flight: enough for one in each stage, one
	// waiting between stages, and one with its acknowledgement on the way back.
	ringPlaces = 8
	ringBytes  = ringPlaces * chunkBytes
)

// piece is a range of a region.
type piece struct{ offset, length int64 }

// cutter cuts a transfer into chunks of about equal size, in the order of its
// descriptors. A descriptor may be cut.
type cutter struct {
	descs []transport.Descriptor
	limit int64 // most bytes of a chunk
	next  int
	done  int64 // bytes of descs[next] that went into earlier chunks
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

// more reports whether there is another chunk. Descriptors without bytes are skipped.
func (c *cutter) more() bool {
	for c.next < len(c.descs) && c.descs[c.next].Length == c.done {
		c.next++
		c.done = 0
	}
	return c.next < len(c.descs)
}

// count returns the number of chunks of a transfer: at least one, which may be empty.
func (c cutter) count() int {
	n := 0
	for c.more() {
		c.each(func(int64, int64, int64) {})
		n++
	}
	return max(1, n)
}
