//go:build !linux

package hostinfo

func (h *Host) system() {}

// AvailableMemory returns 0: this system does not report it.
func AvailableMemory() int64 { return 0 }

func lineRate(string) float64 { return 0 }

func shapedRate(int) float64 { return 0 }
