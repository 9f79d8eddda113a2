// Package payload computes the composition of a request's KV cache: the geometry of a
// model's layers (from a Hugging Face config.json or a preset), the bytes of an element in
// each wire format, the layout of blocks in memory, and the shares of tensor and pipeline
// parallel ranks. From these it derives the bytes and descriptors of a transfer
// (Spec.Shape, closed form, no lists) and the start of each byte range on both sides
// (Spec.Pair, real lists).
//
// It owns the sizes: no other package multiplies heads by dimensions. It is pure arithmetic
// and reads only the config that it is given. The command line, the analytic model and the
// benchmark call it; it calls none of them.
package payload
