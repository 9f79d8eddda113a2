package tcp_test

import (
	"testing"

	"kvbench/transport"
	"kvbench/transport/tcp"
	"kvbench/transport/transporttest"
)

func TestConformance(t *testing.T) {
	for name, cfg := range map[string]transport.Config{
		"OneStream":    {},
		"ThreeStreams": {Streams: 3},
		"SmallBuffers": {Streams: 2, SocketBuffer: 16 << 10},
		"BusyPoll":     {BusyPoll: true},
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, transporttest.Subject{Listener: tcp.New(), Config: cfg})
		})
	}
}
