package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"kvbench/transport"
	"kvbench/transport/staged"
	"kvbench/transport/tcp"
)

// damaged returns the TCP transport, broken in one way:
//
//	middle  a byte between two stamps is wrong once it has arrived
//	stamp   a byte of a stamp is
//	drop    the initiator leaves out each transfer's last descriptor
//
// The first two spoil the memory of whoever receives: the target of a WRITE, the
// initiator of a READ.
func damaged(how string) []transport.Transport {
	broken := damagedTransport{tcp.New(), how}
	return []transport.Transport{broken, staged.Over(broken)}
}

type damagedTransport struct {
	transport.Transport
	how string
}

func (d damagedTransport) Listen(ctx context.Context, cfg transport.Config) (transport.Listener, error) {
	l, err := d.Transport.Listen(ctx, cfg)
	return damagedListener{l, d.how}, err
}

func (d damagedTransport) Dial(ctx context.Context, addr transport.Address, cfg transport.Config) (transport.Initiator, error) {
	in, err := d.Transport.Dial(ctx, addr, cfg)
	return &damagedInitiator{Initiator: in, how: d.how}, err
}

func (d damagedTransport) DialTarget(ctx context.Context, addr transport.Address, cfg transport.Config) (transport.Target, error) {
	t, err := d.Transport.DialTarget(ctx, addr, cfg)
	return &damagedTarget{Target: t, how: d.how}, err
}

type damagedListener struct {
	transport.Listener
	how string
}

func (d damagedListener) AcceptTarget(ctx context.Context) (transport.Target, error) {
	t, err := d.Listener.AcceptTarget(ctx)
	return &damagedTarget{Target: t, how: d.how}, err
}

func (d damagedListener) AcceptInitiator(ctx context.Context) (transport.Initiator, error) {
	in, err := d.Listener.AcceptInitiator(ctx)
	return &damagedInitiator{Initiator: in, how: d.how}, err
}

type damagedInitiator struct {
	transport.Initiator
	how string
	mem []byte
}

func (d *damagedInitiator) Register(m transport.Memory) (transport.Region, error) {
	d.mem = m.Bytes
	return d.Initiator.Register(m)
}

func (d *damagedInitiator) Post(t transport.Transfer) error {
	if d.how == "drop" {
		t.Descriptors = t.Descriptors[:len(t.Descriptors)-1]
	}
	return d.Initiator.Post(t)
}

func (d *damagedInitiator) Poll(done []transport.Completion) (int, error) {
	n, err := d.Initiator.Poll(done)
	spoil(d.mem, d.how, n)
	return n, err
}

type damagedTarget struct {
	transport.Target
	how string
	mem []byte
}

func (d *damagedTarget) Register(m transport.Memory) (transport.Region, error) {
	d.mem = m.Bytes
	return d.Target.Register(m)
}

func (d *damagedTarget) Notifications(ctx context.Context, notices []transport.Notice) (int, error) {
	n, err := d.Target.Notifications(ctx, notices)
	spoil(d.mem, d.how, n)
	return n, err
}

// spoil changes a byte of the first layer, which is in place when anything at
// all has been delivered. A request has fewer than 256 layers, so however they
// come the byte does not return to what it was.
func spoil(mem []byte, how string, delivered int) {
	place, ok := map[string]int{"stamp": 9, "middle": 1000}[how]
	if ok && len(mem) > place {
		mem[place] += byte(delivered)
	}
}

// TestDamageIsFound in two real processes: whoever does the damage, the run
// fails with 4, the record says what was wrong, and the consumer goes on.
func TestDamageIsFound(t *testing.T) {
	for _, c := range []struct {
		how       string
		direction string
		verify    string
		status    int
		broken    string // which of the two processes has the broken transport
	}{
		{"middle", "push", "full", exitCorrupt, "consumer"},
		{"middle", "pull", "full", exitCorrupt, "consumer"},
		{"stamp", "push", "stamp", exitCorrupt, "consumer"},
		{"stamp", "pull", "stamp", exitCorrupt, "consumer"},
		{"stamp", "push", "full", exitCorrupt, "consumer"},
		{"drop", "push", "stamp", exitCorrupt, "producer"},
		{"drop", "pull", "stamp", exitCorrupt, "consumer"},
		// What is not looked at is not found: the damage above is found by looking.
		{"middle", "push", "stamp", exitDone, "consumer"},
		{"stamp", "pull", "none", exitDone, "consumer"},
		{"none", "push", "full", exitDone, "consumer"},
	} {
		t.Run(strings.Join([]string{c.how, c.direction, c.verify}, " "), func(t *testing.T) {
			t.Parallel()
			broken := launch{env: []string{damage + "=" + c.how}}
			consumers, producers := launch{}, broken
			if c.broken == "consumer" {
				consumers, producers = broken, launch{}
			}
			serving, addr := consumers.consumer(t)
			out := filepath.Join(t.TempDir(), "run.json")
			args := with([]string{"producer", "--connect", addr}, small...)
			got := producers.start(t, with(args, "--direction", c.direction, "--verify", c.verify, "--out", out)...).end(patience)
			record := readRun(t, out)
			v := record.Cells[0].Verify
			if c.status == exitDone {
				got.want(t, exitDone)
				if !record.Complete || v.Mismatched != 0 {
					t.Errorf("complete %v, verification %+v", record.Complete, v)
				}
				return
			}
			got.want(t, exitCorrupt, "data arrived wrong", "blocks; request 1, transfer 0")
			if record.Complete || v.Mismatched == 0 || v.Checked < v.Mismatched || record.Cells[0].Verdict.Status != "fail" {
				t.Errorf("complete %v, verdict %q, verification %+v", record.Complete, record.Cells[0].Verdict.Status, v)
			}
			if !strings.Contains(got.stdout, "CORRUPT") {
				t.Errorf("the table does not say so:\n%s", got.stdout)
			}
			if again := kvbench(t, "check", out); again.status != exitCorrupt || !strings.Contains(again.stdout, "CORRUPT") {
				t.Errorf("check of the record: status %d\n%s%s", again.status, again.stdout, again.stderr)
			}
			serving.stderr.await(t, "data arrived wrong")
			kvbench(t, with([]string{"producer", "--connect", addr, "--verify", "none"}, small...)...).want(t, exitDone)
		})
	}
}

// TestDamageInLoopback: the status comes through where both processes are kvbench's own.
func TestDamageInLoopback(t *testing.T) {
	t.Parallel()
	broken := launch{env: []string{damage + "=middle"}}
	got := broken.start(t, with(with([]string{"loopback"}, small...), "--verify", "full")...).end(patience)
	got.want(t, exitCorrupt, "data arrived wrong", "damaged between its stamps")
	noneLeft(t)
}
