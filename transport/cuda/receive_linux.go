package cuda

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// receiver calls recvmsg without the allocation that net.UnixConn.ReadMsgUnix makes for
// the sender's name. An acknowledgement is received in every WRITE.
type receiver struct {
	raw     syscall.RawConn
	try     func(fd uintptr) bool
	message unix.Msghdr
	part    unix.Iovec
	control []byte
	n       int
	errno   syscall.Errno
}

// receive reads up to len(b) bytes and the file descriptors that came with them. It
// returns 0 bytes only if the peer has ended. The kernel leaves the bytes of a message
// with other descriptors for the next call.
func (i *inbox) receive(b []byte) (int, error) {
	r := &i.receiver
	if r.raw == nil {
		raw, err := i.from.SyscallConn()
		if err != nil {
			return 0, err
		}
		r.raw, r.try, r.control = raw, r.tryOnce, make([]byte, unix.CmsgSpace(4*maxCame))
	}
	r.part.Base = &b[0]
	r.part.SetLen(len(b))
	if err := r.raw.Read(r.try); err != nil {
		return 0, err
	}
	if r.errno != 0 {
		return 0, os.NewSyscallError("recvmsg", r.errno)
	}
	i.lost = i.lost || r.message.Flags&unix.MSG_CTRUNC != 0
	if r.message.Controllen == 0 {
		return r.n, nil
	}
	return r.n, i.takeIn(r.control[:r.message.Controllen])
}

// tryOnce calls recvmsg. It returns false if nothing has arrived yet.
func (r *receiver) tryOnce(fd uintptr) bool {
	for {
		r.message = unix.Msghdr{Iov: &r.part, Control: &r.control[0]}
		r.message.SetIovlen(1)
		r.message.SetControllen(len(r.control))
		n, _, errno := unix.Syscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&r.message)), unix.MSG_CMSG_CLOEXEC)
		r.n, r.errno = int(n), errno
		if errno != unix.EINTR {
			return errno != unix.EAGAIN
		}
	}
}

// takeIn keeps the file descriptors of a control message.
func (i *inbox) takeIn(control []byte) error {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue // another kind of message, without file descriptors
		}
		for _, fd := range fds {
			i.came = append(i.came, os.NewFile(uintptr(fd), "descriptor of the peer"))
		}
	}
	return nil
}
