//go:build !full

package testenv

// Full is true in the long run (build tag full), which tests every permutation of
// configurations, random moments in place of named ones, and long series.
const Full = false
