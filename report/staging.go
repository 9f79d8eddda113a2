package report

import (
	"fmt"
	"strings"

	"kvbench/internal/units"
	"kvbench/results"
	"kvbench/transport"
)

// stagingNotes list the rate of each stage of a staged path, in the direction of the data;
// there are none for other paths.
func stagingNotes(t results.Transport) []string {
	here, there := t.Staging, t.Consumer.Staging
	if here == nil || there == nil {
		return nil
	}
	wire := here.Wire
	if wire.Chunks == 0 {
		wire = there.Wire
	}
	var stages []string
	for _, s := range []struct {
		name string
		transport.StageTime
	}{{"device to host", here.ToHost}, {"wire", wire}, {"host to device", there.FromHost}} {
		stages = append(stages, fmt.Sprintf("%s %s in %s (alone %s)", s.name, units.Rate(s.BytesPerSecond), units.Seconds(s.Seconds), units.Rate(s.AloneBandwidth)))
	}
	return []string{fmt.Sprintf("staged in chunks of up to %s: %s", units.BinaryBytes(here.ChunkBytes), strings.Join(stages, ", "))}
}
