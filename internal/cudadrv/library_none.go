//go:build !linux || !(amd64 || arm64) || static

package cudadrv

func openLibrary(string) (uintptr, error) { return 0, ErrNotBuilt }

func findSymbol(uintptr, string) uintptr { return 0 }

//go:uintptrescapes
func callC(uintptr, ...uintptr) Result { return notInitialized }

func openHandleFunc(uintptr) func(*DevicePointer, ipcMemHandle, uint32) int32 { return nil }
