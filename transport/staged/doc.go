// Package staged moves GPU memory over another transport. Where that can move GPU memory
// by itself at both sides of a connection (transport.DirectMover), it does, and this
// package only brings the two together. Otherwise the memory is staged: it moves in
// chunks, through pinned host memory at either end. For a WRITE the copy of chunk k to
// the host goes beside the wire of chunk k-1 and the copy of chunk k-2 to the device
// (the pipeline of docs/model.md); a READ runs the other way round.
//
// Each side has a ring of places for chunks, registered with the inner transport once.
// A place is the same at both sides and belongs to the initiator: it is taken when a
// chunk begins and free when its bytes have left the destination's ring. So the memory
// is bounded whatever the regions, and device memory is touched by its own side's
// copies alone. A chunk holds the bytes of many descriptors, packed: the wire carries
// one range, and each copy is one call of the driver's.
//
// A socket beside the inner connection carries which ranges a chunk has, that a chunk
// was staged or has landed, and that a READ is done. A transfer is delivered when all
// its bytes are in the destination's device memory.
//
// The inner transport is known by its contract only. When a connection is made the
// stages are timed one by one, each alone, for the model's prediction.
package staged
