//go:build !linux || !(amd64 || arm64) || static

package nvml

func openLibrary(string) (uintptr, error) { return 0, ErrNotBuilt }

func findSymbol(uintptr, string) uintptr { return 0 }

//go:uintptrescapes
func callC(uintptr, ...uintptr) uintptr { return uintptr(uninitialized) }
