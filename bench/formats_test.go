package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"testing"
	"time"

	"kvbench/internal/hostinfo"
	"kvbench/internal/testenv"
	"kvbench/payload"
	"kvbench/transport"
	"kvbench/transport/tcp"
)

// tcpRun makes a run over TCP between a consumer and a producer in this process.
func tcpRun(t *testing.T, plan Plan, load Load) *Outcome {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	transports := []transport.Transport{tcp.New()}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		c := &Consumer{Transports: transports, Host: hostinfo.Gather, Log: t.Logf}
		served <- c.Serve(ctx, l, true)
	}()
	p := &Producer{Connect: l.Addr().String(), Transports: transports, Host: hostinfo.Gather, SharesHost: true}
	outcome, err := p.Run(ctx, plan, load)
	if err != nil {
		cancel() // a consumer that was never reached waits for nobody
	}
	if err := errors.Join(err, <-served); err != nil {
		t.Fatal(err)
	}
	return outcome
}

// TestFormatsOnTheWire moves every format in every layout, checks each byte that
// arrived, and holds the bytes that the kernel counted on the sockets against the
// shape's arithmetic and the protocol's own headers.
// Outside the long run it moves a few layers, each format in one layout, and each shape in
// one direction.
func TestFormatsOnTheWire(t *testing.T) {
	t.Parallel()
	layouts := []struct {
		name   string
		layout payload.Layout
	}{
		{"contiguous", payload.Layout{}},
		{"paged", payload.Layout{Paged: true, Fragmentation: 1}},
		{"paged runs", payload.Layout{Paged: true, Fragmentation: 0.3, BlockTokens: 32}},
		{"paged heads", payload.Layout{Paged: true, Fragmentation: 1, HeadMajor: true}},
	}
	formats := []string{
		"fp16", "bf16", "fp8", "fp8-token-head", "int8", "int8-g64", "int4", "int4-g32", "nvfp4", "mxfp4", "kivi2",
		"spectrum:0.5", "spectrum:0.8", "pdtrim:4/64/0-3", "ratio:0.3",
	}
	few := func(s payload.Spec) payload.Spec {
		if s.Layers == nil && !s.Layout.CrossLayer && !testenv.Full { // a cross-layer block holds all layers
			s.Layers = []int{0, 1, 2, 3, 4}
		}
		return s
	}
	for i, y := range layouts {
		t.Run(y.name, func(t *testing.T) {
			for j, f := range formats {
				if j%len(layouts) != i && !testenv.Full {
					continue
				}
				format, err := payload.ParseFormat(f)
				if err != nil {
					t.Fatal(err)
				}
				moveAndCount(t, few(payload.Spec{Geometry: preset(t, "qwen3-0.6b"), Tokens: 150, Format: format, Layout: y.layout}), Push)
			}
		})
	}
	for i, c := range []struct {
		name string
		spec payload.Spec
	}{
		{"latent", payload.Spec{Geometry: preset(t, "deepseek-v3"), Tokens: 40, TP: 8}},
		{"windows", payload.Spec{Geometry: preset(t, "gpt-oss-120b"), Tokens: 300, Layout: payload.Layout{Paged: true, Fragmentation: 0.5}}},
		{"replicated", payload.Spec{Geometry: preset(t, "qwen3-235b-a22b"), Tokens: 33, TP: 8}},
		{"cross-layer", payload.Spec{Geometry: preset(t, "qwen3-0.6b"), Tokens: 100, Layout: payload.Layout{Paged: true, CrossLayer: true, Fragmentation: 1}}},
		{"split heads", payload.Spec{Geometry: preset(t, "qwen3-0.6b"), Tokens: 50, TP: 4, TPDecode: 2, Layout: payload.Layout{Paged: true, Fragmentation: 1}}},
		{"some layers", payload.Spec{Geometry: preset(t, "qwen3-0.6b"), Tokens: 64, Layers: []int{0, 1, 27}}},
		{"state", payload.Spec{Geometry: preset(t, "qwen3-next-80b"), Tokens: 64, State: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for j, direction := range directions {
				if j == i%len(directions) || testenv.Full {
					moveAndCount(t, few(c.spec), direction)
				}
			}
		})
	}
}

func preset(t *testing.T, name string) payload.Geometry {
	t.Helper()
	g, err := payload.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func moveAndCount(t *testing.T, s payload.Spec, d Direction) {
	t.Helper()
	name := fmt.Sprintf("%s %s %s", s.Geometry.Model, s.Format, d)
	const requests = 2
	o := tcpRun(t, Plan{RunID: 11, Transport: "tcp", Direction: d, Memory: transport.HostMemory, Workers: 1, Specs: []payload.Spec{s}, Verify: payload.VerifyFull}, Load{Requests: requests})
	c := o.Cells[0]
	if c.Verify.Checked == 0 || c.Verify.Mismatched != 0 || c.Record.Requests != requests {
		t.Errorf("%s: verification %+v of %d requests", name, c.Verify, c.Record.Requests)
	}
	shape, err := s.Shape()
	if err != nil {
		t.Fatal(err)
	}
	pair, _ := shape.Pair(0, 0)
	if c.Record.Bytes != requests*pair.Bytes {
		t.Errorf("%s: %d bytes recorded, shape says %d a request", name, c.Record.Bytes, pair.Bytes)
	}
	// The sender of the payload: the producer, whichever side initiates.
	var st tcp.StreamStats
	for _, st = range o.Path.Details["streams"].([]tcp.StreamStats) {
	}
	if st.SentPayloadBytes != requests*pair.Bytes {
		t.Errorf("%s: %d payload bytes sent, shape says %d a request", name, st.SentPayloadBytes, pair.Bytes)
	}
	if st.SentHeaderBytes == 0 {
		t.Errorf("%s: no headers counted", name)
	}
	if runtime.GOOS != "linux" {
		return
	}
	// The kernel's own count: payload, frame headers, the greeting of 64 bytes and
	// the SYN. Its last acknowledgement can lag behind by the last frame's header.
	want := st.SentPayloadBytes + st.SentHeaderBytes + 64 + 1
	if got := int64(st.AckedBytes); got > want || got < want-64 {
		t.Errorf("%s: the kernel saw %d bytes acknowledged, payload and headers are %d", name, got, want)
	}
}
