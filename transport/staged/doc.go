// Package staged moves GPU memory over another transport. If that transport can move
// GPU memory directly at both sides (transport.DirectMover), this package only sets up
// the inner connection. Otherwise the memory is staged: it moves in chunks through
// pinned host memory at both ends. In a WRITE, chunk k is copied to the host while
// chunk k-1 is on the wire and chunk k-2 is copied to the device (the pipeline of
// docs/model.md). A READ runs the other way round.
//
// Each side has a ring of places for chunks, registered once with the inner transport.
// A place has the same number at both sides and belongs to the initiator. It is in use
// from the start of a chunk until the chunk's bytes have left the destination's ring.
// So the staging memory is bounded for regions of any size, and each side's device
// memory is accessed only by its own copies. A chunk packs the bytes of many
// descriptors: the wire carries one range, and each copy is one driver call.
//
// A socket beside the inner connection carries the ranges of each chunk, the notices
// that a chunk was staged or has landed, and the end of a READ. A transfer is delivered
// when all its bytes are in the destination's device memory.
//
// The package relies only on the inner transport's contract. When a connection is made,
// each stage is timed alone, for the model's prediction.
package staged
