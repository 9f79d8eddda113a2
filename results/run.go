package results

import (
	"kvbench/internal/hostinfo"
	"kvbench/payload"
	"kvbench/transport"
)

// Schema names the form of a run record. A change that breaks readers must change it.
const Schema = "kvbench.run/1"

// Run is the record of one run. Times are nanoseconds or seconds, sizes bytes, rates bytes
// a second, according to the suffix of each key.
type Run struct {
	Schema  string `json:"schema"`
	Version string `json:"version"` // of kvbench
	ID      string `json:"id"`
	Started string `json:"started"` // RFC 3339, producer's clock
	// Complete is false for a run that ended early. Incomplete is then the reason, and the
	// cells hold the measurements until then.
	Complete   bool   `json:"complete"`
	Incomplete string `json:"incomplete,omitempty"`

	Config    map[string]string `json:"config"` // every flag, resolved; no secrets
	Producer  Side              `json:"producer"`
	Consumer  Side              `json:"consumer"`
	Transport Transport         `json:"transport"`
	Link      *Link             `json:"link"` // assumed by the spec prediction; null without one
	Fit       *Fit              `json:"fit"`  // null if nothing was calibrated
	Cells     []Cell            `json:"cells"`
	// Streams is the trial of more streams; absent if there was none.
	Streams *StreamProbe `json:"stream_probe,omitempty"`
}

// Side is one host's part.
type Side struct {
	Host       hostinfo.Host `json:"host"`
	CPUSeconds *float64      `json:"cpu_seconds"` // of the process, in measured phases, counted as in CellCPU; null if unknown
	Setup      Setup         `json:"setup"`
	// CopyBytesPerSecond is one core's rate of copying memory, measured just before the
	// run.
	CopyBytesPerSecond float64 `json:"copy_bytes_per_second"`
}

// Setup is the work done once, outside every measurement.
type Setup struct {
	MemoryBytes     int64   `json:"memory_bytes"`
	AllocateSeconds float64 `json:"allocate_seconds"` // includes first touch and fill
	RegisterSeconds float64 `json:"register_seconds"`
	ConnectSeconds  float64 `json:"connect_seconds"`
}

// Transport describes the path of the data.
type Transport struct {
	Name    string `json:"name"`
	Streams int    `json:"streams"` // connections of one request
	// BusyPoll reports whether the threads that move data spin.
	BusyPoll bool `json:"busy_poll,omitempty"`
	// Memory is the memory that held the KV cache; empty in older records means host.
	Memory transport.MemoryKind `json:"memory,omitempty"`
	// GPUPath is Staged or Direct for GPU memory, and empty for host memory.
	GPUPath string `json:"gpu_path,omitempty"`
	transport.Path
	// Consumer is the other end's view of the same path.
	Consumer transport.Path `json:"consumer"`
}

// The ways to move GPU memory.
const (
	Staged = "staged" // through pinned host memory
	Direct = "direct" // by the transport itself
)

// Link is the link that the spec prediction assumed.
type Link struct {
	Name           string  `json:"name"`
	BytesPerSecond float64 `json:"bytes_per_second"`
	MTU            int     `json:"mtu"`
	FramingFactor  float64 `json:"framing_factor"`
	FramingBasis   string  `json:"framing_basis"`
	AlphaSeconds   float64 `json:"alpha_seconds"`
	GammaSeconds   float64 `json:"gamma_seconds_per_descriptor"`
	Source         string  `json:"source"` // flag, or device
}

// Estimate is a value with its 95 % interval. A null bound is open.
type Estimate struct {
	Value float64  `json:"value"`
	Low   *float64 `json:"low"`
	High  *float64 `json:"high"`
}

// Fit is the result of calibration: a batch of transfers takes alpha + (transfers-1)·beta +
// gamma·descriptors + bytes/bandwidth seconds.
type Fit struct {
	Alpha     Estimate `json:"alpha_seconds"`
	Beta      Estimate `json:"beta_seconds_per_transfer"`
	Gamma     Estimate `json:"gamma_seconds_per_descriptor"`
	Bandwidth Estimate `json:"bandwidth_bytes_per_second"`

	// The held-out error, as a share: mean and greatest over batches of at least
	// ErrorFromBytes, a layer of the smallest request; and over all batches.
	MAPE           float64 `json:"mape"`
	Worst          float64 `json:"worst"`
	ErrorFromBytes int64   `json:"error_from_bytes"`
	MAPEAll        float64 `json:"mape_all"`
	WorstAll       float64 `json:"worst_all"`

	Points  int      `json:"points"`
	Notes   []string `json:"notes,omitempty"`
	Seconds float64  `json:"seconds"` // duration of the calibration
	// Source is the record that the calibration came from; empty if this run made it.
	Source string `json:"source,omitempty"`
	// Taken is the conditions of the calibration; absent in older records.
	Taken *Conditions `json:"taken,omitempty"`
	// Samples are the fitted batches, so that the fit can be repeated from the record.
	Samples []Sample `json:"samples"`
}

// Conditions determine a calibration: it holds for runs under the same conditions.
type Conditions struct {
	Transport    string               `json:"transport"`
	Memory       transport.MemoryKind `json:"memory,omitempty"` // empty in older records means host
	GPUPath      string               `json:"gpu_path,omitempty"`
	Lane         string               `json:"lane"`
	Device       hostinfo.Device      `json:"device"` // the producer's
	Direction    string               `json:"direction"`
	Streams      int                  `json:"streams"`
	SocketBuffer int                  `json:"socket_buffer_bytes,omitempty"`
	BusyPoll     bool                 `json:"busy_poll,omitempty"`
	Verify       payload.Depth        `json:"verify"`
	Producer     string               `json:"producer"` // host names
	Consumer     string               `json:"consumer"`
}

// StreamProbe is the rates of connections with growing numbers of streams. They are timed
// after the cells, in a run that took longer than its link allows.
type StreamProbe struct {
	Bytes int64        `json:"bytes"` // of each batch: one transfer of one descriptor
	Rates []StreamRate `json:"rates"` // the run's own number of streams first
	// Note is the reason if there are no rates.
	Note string `json:"note,omitempty"`
}

// StreamRate is the rate of one number of streams, over a few batches.
type StreamRate struct {
	Streams int     `json:"streams"`
	Batches int     `json:"batches"`
	Goodput float64 `json:"goodput_bytes_per_second"` // median
	Slowest float64 `json:"slowest_bytes_per_second"`
	Fastest float64 `json:"fastest_bytes_per_second"`
}

// Sample is one timed calibration batch.
type Sample struct {
	Transfers   int     `json:"transfers"`
	Descriptors int     `json:"descriptors"`
	Bytes       int64   `json:"bytes"`
	Seconds     float64 `json:"seconds"`
}

// Cell is one measured combination: here, one context.
type Cell struct {
	ContextTokens int64 `json:"context_tokens"`
	Bytes         int64 `json:"bytes"`    // of one request
	KVBytes       int64 `json:"kv_bytes"` // of the whole model, as printed by kvbench shape
	Layers        int   `json:"layers"`   // transfers of one request
	Descriptors   int   `json:"descriptors"`
	// Transfers are the transfers of one request, in order. Equal consecutive transfers
	// share an entry. Absent in older records.
	Transfers   []Transfers `json:"transfers,omitempty"`
	Requests    int64       `json:"requests"` // measured, warm-up not counted
	Warmup      int64       `json:"warmup"`
	Concurrency int         `json:"concurrency"`
	// WorkingSetBytes is the distinct memory that holds one request's bytes; less than
	// Bytes if a pool is reused.
	WorkingSetBytes int64 `json:"working_set_bytes"`
	// Complete is false if the run ended before all requests did.
	Complete bool `json:"complete"`

	Goodput     float64 `json:"goodput_bytes_per_second"` // payload over the time with a request in flight
	BusySeconds float64 `json:"busy_seconds"`             // that time

	Latency   Latencies    `json:"latency"`
	Service50 Estimate     `json:"service_p50_seconds,omitzero"` // absent if nothing was measured
	Predicted Predictions  `json:"predicted"`
	Overlap   *Overlap     `json:"overlap,omitempty"` // under an emulated prefill
	Load      *Load        `json:"load,omitempty"`    // in an open loop
	Verdict   Verdict      `json:"verdict"`
	Verify    Verification `json:"verify"`
	CPU       CellCPU      `json:"cpu"`
}

// Transfers are consecutive transfers of the same size.
type Transfers struct {
	Count       int   `json:"count"`
	Bytes       int64 `json:"bytes"`       // of each
	Descriptors int   `json:"descriptors"` // of each
	// Layers is the number of layers that an emulated prefill makes for each of these
	// transfers, after the transfer before it is ready; 0 is 1.
	Layers int `json:"prefill_layers,omitempty"`
}

// CellCPU is the processor time of both processes over the cell's measured phase, without
// filling, checking and spinning until a layer or request starts.
type CellCPU struct {
	ProducerSeconds float64 `json:"producer_seconds"`
	// ConsumerSeconds is null if the process served another run at the same time.
	ConsumerSeconds *float64 `json:"consumer_seconds"`
}

// Latencies are the histograms of a cell.
type Latencies struct {
	Response   Latency `json:"response"`    // a request, from its intended start to delivery of its last layer
	Service    Latency `json:"service"`     // the same from its real start
	Layer      Latency `json:"layer"`       // a layer, from its earliest possible start (posted, and the one before delivered) to delivery
	FirstLayer Latency `json:"first_layer"` // the first layer, from the request's start
	Exposed    Latency `json:"exposed"`     // the part of a request after prefill ended
	Post       Latency `json:"post"`        // the call that posts a layer
	AckRTT     Latency `json:"ack_rtt"`     // push: from a layer's local completion to its acknowledgement; empty for pull
	Late       Latency `json:"late"`        // delay of waking up after a layer became ready in prefill, or after a request's due time
}

// Predictions are the expected times of a request. Each is null if there is no basis for
// it.
type Predictions struct {
	Spec *Prediction `json:"spec"`
	Fit  *Prediction `json:"fit"`
	// Staged is the pipeline of a staged path, from the rates that its stages reached
	// alone.
	Staged *Prediction `json:"staged,omitempty"`
}

// Overlap is the exposed time left after layer-wise overlap with an emulated prefill.
type Overlap struct {
	PrefillSeconds float64  `json:"prefill_seconds"`              // of a request
	Exposed50      Estimate `json:"exposed_p50_seconds,omitzero"` // absent if nothing was measured
	// Spec and Fit predict the exposed time. Their ratio is the measured p50 over the
	// prediction.
	Spec *Prediction `json:"spec"`
	Fit  *Prediction `json:"fit"`
}

// Load is the response times of an open loop, beside those that queueing theory predicts
// from the measured service times. A null response is unbounded, or no theory applies to
// the run.
type Load struct {
	Arrivals            string   `json:"arrivals"`
	ArrivalsPerSecond   float64  `json:"arrivals_per_second"`
	Utilization         float64  `json:"utilization"` // arrivals times mean time on the path
	Stable              bool     `json:"stable"`      // utilization below 1, and a worker for every prefill
	ResponseMeanSeconds float64  `json:"response_mean_seconds"`
	ResponseFCFSSeconds *float64 `json:"response_fcfs_seconds"` // M/G/1, first come first served
	ResponsePSSeconds   *float64 `json:"response_ps_seconds"`   // M/G/1, fair sharing
	// ResponseReplayedSeconds is the mean response of these very arrivals and service
	// times, one after another without a pause; 0 if requests shared the path.
	ResponseReplayedSeconds float64 `json:"response_replayed_seconds"`
	// Growth is the mean response of the last third of the requests over the mean response
	// of the first third: near 1 in a steady state, above 1 while a queue builds up.
	Growth float64 `json:"growth"`
	Note   string  `json:"note"`
}

// Prediction is one expected time, beside the measured p50: in Predictions, the service
// time of a request.
type Prediction struct {
	Seconds     float64 `json:"seconds"`
	SecondsLow  float64 `json:"seconds_low"`
	SecondsHigh float64 `json:"seconds_high"`
	// Ratio is measured over predicted, with its 95 % interval. If nothing was measured,
	// Ratio and Low are absent and High is null.
	Ratio float64  `json:"ratio,omitzero"`
	Low   float64  `json:"low,omitzero"`
	High  *float64 `json:"high"`
	// Vague is true if the prediction's interval is too wide for a verdict.
	Vague bool   `json:"vague,omitempty"`
	Note  string `json:"note,omitempty"`
}

// Verdict is the comparison of the measurement with the prediction.
type Verdict struct {
	Status    string  `json:"status"` // pass, fail or unchecked
	Against   string  `json:"against,omitempty"`
	Tolerance float64 `json:"tolerance,omitempty"`
	Reason    string  `json:"reason,omitempty"`
	Limiter   string  `json:"limiter,omitempty"`
	Evidence  string  `json:"evidence,omitempty"`
}

// Verification is the outcome of checking the received bytes.
type Verification struct {
	Mode payload.Depth `json:"mode"`
	payload.Verdict
}
