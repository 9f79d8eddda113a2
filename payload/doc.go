// Package payload knows what a request's KV cache is made of: the geometry of a
// model's layers (from a Hugging Face config.json or a preset), what one element
// costs in each wire format, how blocks lie in memory, and how tensor and
// pipeline parallel ranks share them out. From these it says how many bytes and
// descriptors a transfer takes (Spec.Shape, closed form, no lists) and where each
// byte range starts on both sides (Spec.Pair, real lists).
//
// It owns the sizes: no other package multiplies heads by dimensions. It is pure
// arithmetic and reads nothing but the config it is given. The command line, the
// analytic model and the benchmark call it; it calls none of them.
package payload
