//go:build !full

package testenv

// Full reports whether this is the long run (build tag full): every permutation of
// configurations, random moments in place of named ones, long series.
const Full = false
