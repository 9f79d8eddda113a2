package tcp_test

import (
	"testing"

	"kvbench/transport"
	"kvbench/transport/tcp"
	"kvbench/transport/transporttest"
)

func TestConformance(t *testing.T) {
	for i, c := range []struct {
		name string
		cfg  transport.Config
	}{
		{"OneStream", transport.Config{}},
		{"ThreeStreams", transport.Config{Streams: 3}},
		{"SmallBuffers", transport.Config{Streams: 2, SocketBuffer: 16 << 10}},
		{"BusyPoll", transport.Config{BusyPoll: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			transporttest.Run(t, transporttest.Subject{Listener: tcp.New(), Config: c.cfg, Part: i + 1})
		})
	}
}
