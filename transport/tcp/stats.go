package tcp

// StreamStats holds the counters of one stream's socket, as stored in a result.
type StreamStats struct {
	LocalAddress         string `json:"local_address"`
	RemoteAddress        string `json:"remote_address"`
	SentPayloadBytes     int64  `json:"sent_payload_bytes"`
	SentHeaderBytes      int64  `json:"sent_header_bytes"`
	ReceivedPayloadBytes int64  `json:"received_payload_bytes"`
	ReceivedHeaderBytes  int64  `json:"received_header_bytes"`

	// The fields below come from the kernel, on Linux only.
	SendBufferBytes    int    `json:"send_buffer_bytes,omitempty"`
	ReceiveBufferBytes int    `json:"receive_buffer_bytes,omitempty"`
	AckedBytes         uint64 `json:"acked_bytes,omitempty"`    // bytes that the peer's kernel has acknowledged, handshake included
	ReceivedBytes      uint64 `json:"received_bytes,omitempty"` // bytes that this kernel has received
	DataSegmentsSent   uint32 `json:"data_segments_sent,omitempty"`
	Retransmits        uint32 `json:"retransmits"`
	RTTMicroseconds    uint32 `json:"rtt_us,omitempty"`
	MSS                uint32 `json:"mss_bytes,omitempty"`
	CongestionWindow   uint32 `json:"cwnd_segments,omitempty"`
	// Fractions of the time with data to send, 0 to 1, during which the receiver's
	// window or this side's send buffer limited the stream.
	ReceiveWindowLimited float64 `json:"receive_window_limited,omitempty"`
	SendBufferLimited    float64 `json:"send_buffer_limited,omitempty"`
}

func (s *stream) stats() StreamStats {
	st := StreamStats{
		LocalAddress:         s.conn.LocalAddr().String(),
		RemoteAddress:        s.conn.RemoteAddr().String(),
		SentPayloadBytes:     s.sent.payload.Load(),
		SentHeaderBytes:      s.sent.overhead.Load(),
		ReceivedPayloadBytes: s.received.payload.Load(),
		ReceivedHeaderBytes:  s.received.overhead.Load(),
	}
	s.kernelStats(&st)
	return st
}
