// Package transporttest holds the conformance suite of transport.Transport. An
// implementation's test calls Run. FirstFailure runs the suite on a broken transport, to
// show that the suite notices.
package transporttest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"kvbench/internal/testenv"
	"kvbench/transport"
)

// Subject is a transport under test.
type Subject struct {
	// Listener and Dialer are the two sides' transports. Dialer may be nil if one value
	// serves both.
	Listener, Dialer transport.Transport
	// All has every body run for every operation with either side dialling, and with the
	// most bytes and rounds. The long run always does. Otherwise a body runs once for each
	// operation, once with either side dialling.
	All bool
	// Part is for a transport that is tested in several configurations: they are numbered
	// from 1, and in each a body runs once. Parts 1 and 2 have both operations and either
	// side dialling for each body, and the first four have every permutation. 0 is a
	// transport with one configuration.
	Part int
	// Only is the one operation that Config leaves the transport; 0 leaves all.
	Only transport.Op
	// ListenerMemory and DialerMemory allocate the memory of the two sides. A nil
	// ListenerMemory means HostMemory, and a nil DialerMemory means ListenerMemory.
	ListenerMemory, DialerMemory Allocator
	// Config is the configuration of both sides. The suite sets its MaxOutstanding.
	Config transport.Config
	// Require is the subject's name in KVBENCH_REQUIRE. Empty means the listener's name.
	Require string
	// Patience is the longest that one case may take before it counts as hung. 0 means
	// two minutes, a hundred times the duration of a case on a busy machine.
	Patience time.Duration
}

func (s Subject) withDefaults() Subject {
	if s.Dialer == nil {
		s.Dialer = s.Listener
	}
	if s.ListenerMemory == nil {
		s.ListenerMemory = HostMemory
	}
	if s.DialerMemory == nil {
		s.DialerMemory = s.ListenerMemory
	}
	if s.Patience == 0 {
		s.Patience = 2 * time.Minute
	}
	if s.Require == "" {
		s.Require = s.Listener.Name()
	}
	s.All = s.All || testenv.Full
	s.Config.MaxOutstanding = outstanding
	return s
}

// available returns an error if the listener's transport cannot be used here as
// configured.
func (s Subject) available(ctx context.Context) error {
	if err := s.Listener.Probe(ctx); err != nil {
		return err
	}
	if c, ok := s.Listener.(transport.Checker); ok {
		return c.Check(ctx, s.Config)
	}
	return nil
}

// outstanding is the suite's Config.MaxOutstanding.
const outstanding = 64

// Run runs every case of the suite on a transport. If the transport cannot be used here,
// the test is skipped with the reason, or fails if KVBENCH_REQUIRE (a list with commas)
// names it.
func Run(t *testing.T, s Subject) {
	t.Helper()
	s = s.withDefaults()
	if err := s.available(t.Context()); err != nil {
		if !errors.Is(err, transport.ErrUnavailable) {
			t.Errorf("Probe or Check: %v does not wrap ErrUnavailable", err)
		}
		testenv.Skip(t, s.Require, fmt.Sprintf("not available here: %v", err))
	}
	for _, c := range cases(s) {
		t.Run(c.name, func(t *testing.T) {
			for _, message := range c.run(s) {
				t.Error(message)
			}
		})
	}
}

// FirstFailure runs the cases until one fails, and returns its name and messages. The
// name is empty if the transport conforms.
func FirstFailure(s Subject) (name string, complaints []string) {
	s = s.withDefaults()
	for _, c := range cases(s) {
		if complaints := c.run(s); len(complaints) > 0 {
			return c.name, complaints
		}
	}
	return "", nil
}

// testCase is one case for an operation and a dialling side.
type testCase struct {
	name string
	permutation
	body func(*check)
}

// run runs a case under a watchdog and returns its messages.
func (c testCase) run(s Subject) []string {
	k := &check{Subject: s, permutation: c.permutation}
	ctx, cancel := context.WithTimeout(context.Background(), s.Patience)
	defer cancel()
	k.ctx = ctx
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer k.cleanUp()
		c.body(k)
	}()
	if !k.ended(done, s.Patience+time.Second) {
		// Closing the connections may end the case.
		go k.closeAll()
		k.ended(done, s.Patience)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.messages
}

// ended waits for a case. If it takes longer than patience, ended reports an error and
// returns false.
func (k *check) ended(done <-chan struct{}, patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		buf := make([]byte, 64<<10)
		k.errorf("still running after %v more; goroutines:\n%s", patience, buf[:runtime.Stack(buf, true)])
		return false
	}
}

// check is the context of one case: the subject and the messages of its failures.
type check struct {
	Subject
	permutation
	ctx context.Context

	mu       sync.Mutex
	messages []string
	cleanups []func()
	frees    []func() // free memory, after the cleanups
}

func (k *check) errorf(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.messages) < 10 {
		k.messages = append(k.messages, fmt.Sprintf(format, args...))
	}
}

// fatalf reports a failure and ends the case.
func (k *check) fatalf(format string, args ...any) {
	k.errorf(format, args...)
	runtime.Goexit()
}

// must ends the case on an error.
func (k *check) must(err error, doing string) {
	if err != nil {
		k.fatalf("%s: %v", doing, err)
	}
}

// wants reports a failure unless err wraps want.
func (k *check) wants(err, want error, doing string) {
	if !errors.Is(err, want) {
		k.errorf("%s: got error %v, want one that wraps %q", doing, err, want)
	}
}

// cleanup registers f for the end of the case. If the case hangs, another goroutine
// calls f.
func (k *check) cleanup(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cleanups = append(k.cleanups, f)
}

func (k *check) cleanUp() {
	for _, f := range k.frees {
		defer f() // last first; defer runs all of them even if one ends the goroutine
	}
	k.closeAll()
}

// closeAll closes connections and listeners, last first.
func (k *check) closeAll() {
	k.mu.Lock()
	all := k.cleanups
	k.cleanups = nil
	k.mu.Unlock()
	for _, f := range all {
		defer f()
	}
}
