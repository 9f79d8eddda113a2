//go:build !linux

package tcp

// kernelView is empty: only Linux reports these counters.
type kernelView struct{}

func (s *stream) keepStats() {}

func (s *stream) kernelStats(*StreamStats) {}

func (s *stream) acknowledged() int64 { return 0 }

func (s *stream) givenUp() bool { return false }
