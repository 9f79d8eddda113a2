// Package payload computes the layout of a request's KV cache from the geometry of a
// model's layers (from a Hugging Face config.json or a preset), the size of an element
// in each wire format, the blocks in memory, and the split over tensor and pipeline
// parallel ranks. The results are the bytes and descriptors of a transfer (Spec.Shape,
// closed form, no lists) and the start of each byte range on both sides (Spec.Pair,
// real lists).
//
// It owns the sizes: no other package multiplies heads by dimensions. It is pure
// arithmetic and reads only the config it is given. The command line, the analytic
// model and the benchmark call it; it calls none of them.
package payload
