//go:build !linux

package rdma

// stayNear does nothing here.
func stayNear(family, string) []int { return nil }
