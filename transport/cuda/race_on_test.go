//go:build race

package cuda_test

const raceDetector = true
