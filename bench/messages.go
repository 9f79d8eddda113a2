package bench

import (
	"time"

	"kvbench/internal/hostinfo"
	"kvbench/model"
	"kvbench/payload"
	"kvbench/results"
	"kvbench/transport"
)

// The kinds of a run's messages, in the order of their first use. P is the producer, C
// the consumer.
const (
	kindPlan       = "plan"        // P: Plan
	kindAccept     = "accept"      // C: accept
	kindRegion     = "region"      // the target of a worker: region
	kindJoined     = "joined"      // C, pulling: a worker is connected, and the next may dial
	kindReady      = "ready"       // C: all workers are connected
	kindPhase      = "phase"       // P: phase
	kindPhaseReady = "phase_ready" // C: phaseReady
	kindRequest    = "request"     // P, pulling: request
	kindChecked    = "checked"     // C: checked
	kindPhaseEnd   = "phase_end"   // P: phaseEnd
	kindPhaseDone  = "phase_done"  // C: phaseDone
	kindBye        = "bye"         // P: the run is done
)

type accept struct {
	Address transport.Address `json:"address"`
	Host    hostinfo.Host     `json:"host"`
	Build   string            `json:"build"`
}

type region struct {
	Worker        int                     `json:"worker"`
	Advertisement transport.Advertisement `json:"advertisement"`
}

type ready struct {
	Setup    results.Setup `json:"setup"` // the consumer's
	CopyRate float64       `json:"copy_bytes_per_second"`
}

// phaseKind is the purpose of a stretch of requests.
type phaseKind string

const (
	calibratePhase phaseKind = "calibrate"
	measurePhase   phaseKind = "measure" // warm-up included
	probePhase     phaseKind = "probe"   // a separate connection, with another number of streams
)

type phase struct {
	Kind      phaseKind   `json:"kind"`
	Cell      int         `json:"cell"`
	Calibrate calibration `json:"calibrate"`
	Probe     probe       `json:"probe"`
	// Pace is the prefill of one layer; 0 makes every layer ready at once.
	Pace time.Duration `json:"pace_ns"`
}

type phaseReady struct {
	Address transport.Address `json:"address,omitempty"` // of a probe's listener
	Failed  string            `json:"failed,omitempty"`  // why there is no listener
}

type request struct {
	Worker int    `json:"worker"`
	ID     uint64 `json:"id"`
	Warmup bool   `json:"warmup"`
	// Due is when the request should start, from the start of the stage. A negative value
	// starts it at once. The first request of a stage sets the stage's start.
	Due time.Duration `json:"due_ns"`
}

type checked struct {
	Worker int    `json:"worker"`
	ID     uint64 `json:"id"`
	payload.Verdict
}

type phaseEnd struct {
	Abort bool `json:"abort"` // give up on requests in flight
}

type phaseDone struct {
	CPUSeconds *float64       `json:"cpu_seconds"` // null if another run shared the process
	Path       transport.Path `json:"path"`
	Record     *Record        `json:"record,omitempty"`  // pulling
	Samples    []model.Sample `json:"samples,omitempty"` // pulling, calibration or probe
	Failed     string         `json:"failed,omitempty"`  // failure of a probe, or of an aborted worker
}
