// Package nvml finds the link between two GPUs through NVIDIA's management library. It has
// only the calls that this needs.
//
// The library, libnvidia-ml.so.1, comes with the driver and is loaded at run time, as
// internal/cudadrv loads the driver: building needs neither NVIDIA's headers nor cgo. In
// builds for systems other than Linux on amd64 and arm64, and in builds with the tag
// static, Open returns ErrNotBuilt.
//
// Constants and structs follow nvml.h of API version 13. The package changes nothing: every
// call reads.
//
// transport/cuda and the command line call this package. Its tests run against the library
// in internal/cudadrv/testdouble.
package nvml
