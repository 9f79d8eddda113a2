// Package nvml asks NVIDIA's management library what joins two GPUs. It has the
// calls that this takes and no more.
//
// The library, libnvidia-ml.so.1, comes with the driver and is loaded at run time, as
// internal/cudadrv loads the driver: building needs neither NVIDIA's headers nor cgo.
// Builds for other systems than Linux on amd64 and arm64, and builds with the tag
// static, compile and answer ErrNotBuilt.
//
// Constants and structs are those of nvml.h as of API version 13. NVML changes nothing
// here: every call reads.
//
// The package is called by transport/cuda and by the command line. Its tests run
// against the library in internal/cudadrv/testdouble.
package nvml
