//go:build !race

package rdma_test

const underRace = false
