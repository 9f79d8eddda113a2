package bench

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// timer is a kernel timer read through the runtime's poller. Like time.Sleep and unlike
// nanosleep, a read leaves the processor to other goroutines, such as those that the last
// post made ready.
type timer struct {
	file *os.File // nil until the first sleep
	fd   int
	read [8]byte
}

func (t *timer) sleep(d time.Duration) error {
	if t.file == nil {
		fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
		if err != nil {
			return fmt.Errorf("make a timer: %w", err)
		}
		t.file, t.fd = os.NewFile(uintptr(fd), "timerfd"), fd
	}
	once := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if err := unix.TimerfdSettime(t.fd, 0, &once, nil); err != nil {
		return fmt.Errorf("set a timer: %w", err)
	}
	if _, err := t.file.Read(t.read[:]); err != nil {
		return fmt.Errorf("await a timer: %w", err)
	}
	return nil
}

func (t *timer) close() error {
	if t.file == nil {
		return nil
	}
	return t.file.Close()
}
