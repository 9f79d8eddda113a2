package tcp

import (
	"errors"

	"golang.org/x/sys/unix"
)

// kernelView holds the kernel's counters for a socket.
type kernelView struct {
	unix.TCPInfo
	sendBuffer, receiveBuffer int
}

// tcpInfo returns the kernel's counters for the stream's socket, or nil if the socket
// is closed.
func (s *stream) tcpInfo() *kernelView {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return nil
	}
	var view kernelView
	var errInfo error
	err = raw.Control(func(fd uintptr) {
		var info *unix.TCPInfo
		if info, errInfo = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); errInfo == nil {
			view.TCPInfo = *info
		}
		view.sendBuffer, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF)
		view.receiveBuffer, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF)
	})
	if errors.Join(err, errInfo) != nil {
		return nil
	}
	return &view
}

// keepStats stores the kernel's counters of a socket that is about to be closed.
func (s *stream) keepStats() {
	if view := s.tcpInfo(); view != nil {
		s.last.Store(view)
	}
}

func (s *stream) kernelStats(st *StreamStats) {
	info := s.tcpInfo()
	if info == nil {
		info = s.last.Load()
	}
	if info == nil {
		return
	}
	st.SendBufferBytes, st.ReceiveBufferBytes = info.sendBuffer, info.receiveBuffer
	st.AckedBytes, st.ReceivedBytes = info.Bytes_acked, info.Bytes_received
	st.DataSegmentsSent = info.Data_segs_out
	st.Retransmits, st.RTTMicroseconds = info.Total_retrans, info.Rtt
	st.MSS, st.CongestionWindow = info.Snd_mss, info.Snd_cwnd
	if info.Busy_time > 0 {
		st.ReceiveWindowLimited = float64(info.Rwnd_limited) / float64(info.Busy_time)
		st.SendBufferLimited = float64(info.Sndbuf_limited) / float64(info.Busy_time)
	}
}

// acknowledged returns the number of bytes that the peer's kernel has acknowledged.
func (s *stream) acknowledged() int64 {
	info := s.tcpInfo()
	if info == nil {
		return 0
	}
	return int64(info.Bytes_acked)
}

// tcpClose is the state of a connection that the kernel has given up: TCP_CLOSE of
// include/net/tcp_states.h. A connection that only the peer has closed is in another
// state.
const tcpClose = 7

// givenUp reports whether the kernel gave up the connection, after a reset or because
// the peer's host did not answer.
func (s *stream) givenUp() bool {
	info := s.tcpInfo()
	return info != nil && info.State == tcpClose
}
