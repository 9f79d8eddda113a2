//go:build !race

package staged_test

const raceDetector = false
