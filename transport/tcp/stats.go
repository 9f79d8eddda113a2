package tcp

// StreamStats is what one stream's socket says of itself, as it goes into a result.
type StreamStats struct {
	LocalAddress         string `json:"local_address"`
	RemoteAddress        string `json:"remote_address"`
	SentPayloadBytes     int64  `json:"sent_payload_bytes"`
	SentHeaderBytes      int64  `json:"sent_header_bytes"`
	ReceivedPayloadBytes int64  `json:"received_payload_bytes"`
	ReceivedHeaderBytes  int64  `json:"received_header_bytes"`

	// The rest comes from the kernel, where it tells (Linux).
	SendBufferBytes    int    `json:"send_buffer_bytes,omitempty"`
	ReceiveBufferBytes int    `json:"receive_buffer_bytes,omitempty"`
	AckedBytes         uint64 `json:"acked_bytes,omitempty"`    // this side's bytes that the peer's kernel has, handshake included
	ReceivedBytes      uint64 `json:"received_bytes,omitempty"` // the peer's bytes that this kernel has
	DataSegmentsSent   uint32 `json:"data_segments_sent,omitempty"`
	Retransmits        uint32 `json:"retransmits"`
	RTTMicroseconds    uint32 `json:"rtt_us,omitempty"`
	MSS                uint32 `json:"mss_bytes,omitempty"`
	CongestionWindow   uint32 `json:"cwnd_segments,omitempty"`
	// Shares of the time with data to send, 0 to 1, in which the receiver's
	// window, or this side's send buffer, was what held it back.
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
