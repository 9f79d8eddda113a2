//go:build race

package cudadrv_test

const raceDetector = true
