//go:build race

package rdma_test

// underRace says that the race detector shadows all memory that is ever touched.
const underRace = true
