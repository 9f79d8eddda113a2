package model

// ReuseThreshold is the ratio of bandwidth to compute, in bytes a FLOP, above which
// fetching a cached prefix beats computing it again (Mooncake, FAST '25, section 2):
//
//	B/G > 2·d·s / (gqa·(a·p·d + b·d²))
//
// d is the model width, p the prefix in tokens, gqa query heads for each KV head, s bytes
// an element, a and b the paper's constants of attention and of the matrices (4 and 22 for
// LLaMA's shapes). B and G are achieved rates: with a peak FLOP/s as G the threshold is
// higher than necessary.
func ReuseThreshold(width, prefixTokens, gqa, elementBytes, a, b float64) float64 {
	return 2 * width * elementBytes / (gqa * (a*prefixTokens*width + b*width*width))
}

// ShippedBytes is the bytes to move if hitShare of a request's blocks are already at the
// decode node: (1-h)·S. A share outside 0..1 counts as the nearer end.
func ShippedBytes(bytes int64, hitShare float64) int64 {
	return int64(float64(bytes)*(1-min(1, max(0, hitShare))) + 0.5)
}
