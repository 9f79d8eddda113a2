package tcp

import "kvbench/transport"

// cursor is a position in a descriptor list: offset bytes into descriptor index.
type cursor struct {
	index  int
	offset int64
}

// cut divides a descriptor list of total bytes into len(at)-1 parts of equal size. It
// stores the start of each part in at, and the end of the list in the last entry. A
// descriptor of zero bytes moves nothing and may fall to either neighbouring part.
func cut(descs []transport.Descriptor, total int64, at []cursor) {
	parts := int64(len(at) - 1)
	share, rest := total/parts, total%parts
	var start, passed int64 // bytes before the part, and before descriptor index
	index := 0
	for part := range parts {
		for index < len(descs) && passed+descs[index].Length <= start {
			passed += descs[index].Length
			index++
		}
		at[part] = cursor{index, start - passed}
		start += share
		if part < rest {
			start++
		}
	}
	at[parts] = cursor{len(descs), 0}
}

// nextRange returns the descriptor bytes at c, at most limit of them and not beyond
// end, and moves c past them. It returns false if none are left.
func nextRange(descs []transport.Descriptor, c *cursor, end cursor, limit int64) (transport.Descriptor, bool) {
	for c.index < len(descs) && (c.index < end.index || c.index == end.index && c.offset < end.offset) {
		d := descs[c.index]
		length := d.Length - c.offset
		if c.index == end.index {
			length = end.offset - c.offset
		}
		if length == 0 {
			*c = cursor{c.index + 1, 0}
			continue
		}
		length = min(length, limit)
		r := transport.Descriptor{Local: d.Local + c.offset, Remote: d.Remote + c.offset, Length: length}
		c.offset += length
		if c.offset == d.Length {
			*c = cursor{c.index + 1, 0}
		}
		return r, true
	}
	return transport.Descriptor{}, false
}

// frameWriter builds the frames of one stream.
type frameWriter struct {
	stream *stream
	head   [headerSize + maxRanges*rangeSize]byte
}

// sendPart sends the descriptors between from and to as frames with header h. If source
// is set, each frame carries the bytes of its ranges (a WRITE). If not, it carries only
// the ranges (a READ request).
func (w *frameWriter) sendPart(h header, descs []transport.Descriptor, from, to cursor, source []byte) error {
	at := from
	d, more := nextRange(descs, &at, to, maxTransferBytes)
	for {
		w.stream.out.reset()
		w.stream.out.add(w.head[:1]) // reserves the header's place until its length is fixed
		h.ranges, h.bytes = 0, 0
		for more && h.ranges < maxRanges {
			putRange(w.head[headerSize+rangeSize*int(h.ranges):], d.Remote, d.Length)
			if source != nil {
				w.stream.out.add(source[d.Local : d.Local+d.Length])
			}
			h.ranges++
			h.bytes += uint64(d.Length)
			d, more = nextRange(descs, &at, to, maxTransferBytes)
		}
		if !more {
			h.flags |= flagLast
		}
		h.put(w.head[:])
		size := headerSize + rangeSize*int(h.ranges)
		w.stream.out.setFirst(w.head[:size])
		payload := int64(h.bytes)
		if source == nil {
			payload = 0
		}
		if err := w.stream.flush(payload, int64(size)); err != nil {
			return err
		}
		if !more {
			return nil
		}
	}
}

const maxTransferBytes = 1 << 62
