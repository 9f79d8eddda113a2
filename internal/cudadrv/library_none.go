//go:build !linux || !(amd64 || arm64) || static

package cudadrv

//go:uintptrescapes
func callC(uintptr, ...uintptr) Result { return notInitialized }

func openHandleFunc(uintptr) func(*DevicePointer, ipcMemHandle, uint32) int32 { return nil }
