package transport_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kvbench/transport"
)

// queue is a Completions of a connection that can end.
type queue struct {
	*transport.Completions
	dead chan struct{}
	err  error
}

func newQueue(slots int) *queue {
	q := &queue{dead: make(chan struct{}), err: transport.ErrPeer}
	q.Completions = transport.NewCompletions(slots, q.dead)
	return q
}

func (q *queue) ended() error { return q.err }

// poll expects n completions and returns them.
func (q *queue) poll(t *testing.T, room, n int) []transport.Completion {
	t.Helper()
	done := make([]transport.Completion, room)
	got, err := q.Poll(done, q.ended)
	if got != n || err != nil {
		t.Fatalf("Poll = %d, %v, want %d", got, err, n)
	}
	return done[:got]
}

func delivered(id uint64) transport.Completion {
	return transport.Completion{ID: id, Stage: transport.Delivered}
}

// TestCompletionsSlots: each slot is taken once, and again when its transfer was
// delivered or never posted.
func TestCompletionsSlots(t *testing.T) {
	q := newQueue(3)
	taken := make(map[int]bool)
	for range 3 {
		slot, ok := q.Take()
		if !ok || slot < 0 || slot > 2 || taken[slot] {
			t.Fatalf("Take = %d, %v after %v", slot, ok, taken)
		}
		taken[slot] = true
	}
	if slot, ok := q.Take(); ok {
		t.Errorf("a fourth slot of three: %d", slot)
	}
	q.Return(1)
	if slot, ok := q.Take(); !ok || slot != 1 {
		t.Errorf("Take = %d, %v after slot 1 was returned", slot, ok)
	}
	q.Put(2, transport.Completion{ID: 7, Stage: transport.LocallyComplete})
	q.poll(t, 1, 1)
	if slot, ok := q.Take(); ok {
		t.Errorf("slot %d is free while its transfer is not delivered", slot)
	}
	q.Put(2, delivered(7))
	if _, ok := q.Take(); ok {
		t.Error("a slot is free before its completion was polled")
	}
	q.poll(t, 1, 1)
	if slot, ok := q.Take(); !ok || slot != 2 {
		t.Errorf("Take = %d, %v after slot 2 was delivered", slot, ok)
	}
}

// TestCompletionsOrder: what was put first is polled first, in as many calls as it takes.
func TestCompletionsOrder(t *testing.T) {
	q := newQueue(4)
	for id := range uint64(4) {
		slot, _ := q.Take()
		q.Put(slot, transport.Completion{ID: id, Stage: transport.LocallyComplete})
		q.Put(slot, delivered(id)) // both stages of every slot have room
	}
	var stages []transport.Completion
	for _, n := range []int{3, 3, 2} {
		stages = append(stages, q.poll(t, 3, n)...)
	}
	for i, c := range stages {
		if c.ID != uint64(i/2) || c.Stage != transport.Stage(1+i%2) {
			t.Errorf("completion %d is %+v", i, c)
		}
	}
	q.poll(t, 3, 0)
	if n, err := q.Poll(nil, q.ended); n != 0 || err != nil {
		t.Errorf("Poll without room = %d, %v", n, err)
	}
}

// TestCompletionsWait returns once there is something to poll, and takes nothing of it away.
func TestCompletionsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(2)
		slot, _ := q.Take()
		start := time.Now()
		time.AfterFunc(time.Second, func() { q.Put(slot, delivered(5)) })
		for range 3 { // the second and third have nothing to wait for
			if err := q.Wait(t.Context()); err != nil || time.Since(start) != time.Second {
				t.Errorf("Wait = %v after %v, want 1s", err, time.Since(start))
			}
		}
		if c := q.poll(t, 2, 1)[0]; c.ID != 5 {
			t.Errorf("polled %+v", c)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := q.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait = %v with nothing outstanding, want the context's error", err)
		}
		// What is there is there, whatever the context says.
		q.Put(slot, delivered(6))
		if err := q.Wait(ctx); err != nil {
			t.Errorf("Wait = %v with a completion", err)
		}
		q.poll(t, 1, 1)
	})
}

// TestCompletionsEnd: the end is told once nothing else is left to tell.
func TestCompletionsEnd(t *testing.T) {
	q := newQueue(2)
	for range 2 {
		slot, _ := q.Take()
		q.Put(slot, transport.Completion{ID: uint64(slot), Stage: transport.Delivered, Err: transport.ErrPeer})
	}
	close(q.dead)
	if err := q.Wait(t.Context()); err != nil {
		t.Errorf("Wait = %v", err)
	}
	q.poll(t, 1, 1)
	q.poll(t, 2, 1)
	for range 2 {
		if n, err := q.Poll(make([]transport.Completion, 1), q.ended); n != 0 || !errors.Is(err, transport.ErrPeer) {
			t.Errorf("Poll = %d, %v, want the reason of the end", n, err)
		}
		if err := q.Wait(t.Context()); err != nil {
			t.Errorf("Wait = %v, and Poll has something to say", err)
		}
	}
	if n, err := q.Poll(nil, q.ended); n != 0 || err != nil {
		t.Errorf("Poll without room = %d, %v", n, err)
	}
}

// TestCompletionsTogether: puts from many goroutines, with one that polls.
func TestCompletionsTogether(t *testing.T) {
	const slots, each = 8, 500
	q := newQueue(slots)
	var wg sync.WaitGroup
	posted := make(chan int, slots)
	for range slots {
		wg.Go(func() {
			for slot := range posted {
				q.Put(slot, delivered(uint64(slot)))
			}
		})
	}
	done := make([]transport.Completion, 3)
	for left, outstanding := slots*each, 0; left > 0 || outstanding > 0; {
		for left > 0 {
			slot, ok := q.Take()
			if !ok {
				break
			}
			posted <- slot
			left--
			outstanding++
		}
		if err := q.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		n, err := q.Poll(done, q.ended)
		if n == 0 || err != nil {
			t.Fatalf("Poll = %d, %v after Wait", n, err)
		}
		outstanding -= n
	}
	close(posted)
	wg.Wait()
	if n, _ := q.Poll(done, q.ended); n != 0 {
		t.Errorf("%d completions too many", n)
	}
}
