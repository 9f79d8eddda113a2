package staged

import (
	"slices"
	"testing"

	"kvbench/transport"
)

// cutUp lists the chunks of a transfer as their pieces' local offsets, remote offsets
// and lengths.
func cutUp(descs ...transport.Descriptor) (chunks [][][3]int64, counted int) {
	t := &transport.Transfer{Descriptors: descs}
	var bytes int64
	for _, d := range descs {
		bytes += d.Length
	}
	cut := newCutter(t, bytes)
	counted = cut.count()
	for cut.more() {
		var chunk [][3]int64
		cut.each(func(local, remote, length int64) { chunk = append(chunk, [3]int64{local, remote, length}) })
		chunks = append(chunks, chunk)
	}
	return chunks, counted
}

func TestCut(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		descs []transport.Descriptor
		want  [][][3]int64
	}{
		"nothing":         {nil, nil},
		"only empty ones": {[]transport.Descriptor{{Local: 1, Remote: 2}, {Local: 3, Remote: 4}}, nil},
		"one byte":        {[]transport.Descriptor{{Local: 5, Remote: 6, Length: 1}}, [][][3]int64{{{5, 6, 1}}}},
		"one chunk, packed": {
			[]transport.Descriptor{{Local: 0, Remote: 100, Length: 10}, {Local: 50, Remote: 0}, {Local: 20, Remote: 300, Length: 7}},
			[][][3]int64{{{0, 100, 10}, {20, 300, 7}}},
		},
		"exactly full": {[]transport.Descriptor{{Length: 4 * mib}}, [][][3]int64{{{0, 0, 4 * mib}}}},
		// 4 MiB and a byte are two chunks of equal size, but for the odd byte.
		"cut in two": {
			[]transport.Descriptor{{Local: 0, Remote: 8, Length: 4*mib + 1}},
			[][][3]int64{{{0, 8, 2*mib + 1}}, {{2*mib + 1, 2*mib + 9, 2 * mib}}},
		},
		// 3 and 6 MiB are 9, three chunks of 3: the second descriptor is cut.
		"cut across": {
			[]transport.Descriptor{{Local: 0, Remote: 0, Length: 3 * mib}, {Local: 10 * mib, Remote: 20 * mib, Length: 6 * mib}},
			[][][3]int64{{{0, 0, 3 * mib}}, {{10 * mib, 20 * mib, 3 * mib}}, {{13 * mib, 23 * mib, 3 * mib}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, counted := cutUp(c.descs...)
			if !slices.EqualFunc(got, c.want, slices.Equal) || counted != max(1, len(c.want)) {
				t.Errorf("%d chunks counted, %v; want %v", counted, got, c.want)
			}
		})
	}
}

// TestCutManyPieces: a table holds so many pieces and no more.
func TestCutManyPieces(t *testing.T) {
	descs := make([]transport.Descriptor, 2*chunkPieces+1)
	for i := range descs {
		descs[i] = transport.Descriptor{Local: int64(2 * i), Remote: int64(i), Length: 1}
	}
	got, counted := cutUp(descs...)
	if counted != 3 || len(got) != 3 || len(got[0]) != chunkPieces || len(got[1]) != chunkPieces || len(got[2]) != 1 {
		t.Errorf("%d counted, %d chunks", counted, len(got))
	}
}
