package transport

import "context"

// Completions holds an initiator's slots, one for each transfer that may be outstanding,
// and the completions on their way to Poll. It is for implementations. Take, Poll and
// Wait follow the concurrency rules of Post, Poll and Wait; Put may be called from any
// goroutine.
type Completions struct {
	free []int // used only by Take, Return and Poll
	done chan slotCompletion
	dead <-chan struct{}
	// held is a completion that Wait took and Poll has not returned yet.
	held    slotCompletion
	holding bool
}

type slotCompletion struct {
	slot int
	Completion
}

// NewCompletions returns the queue of a connection with the given number of slots. dead
// must be closed once the connection has ended and every outstanding transfer was Put.
func NewCompletions(slots int, dead <-chan struct{}) *Completions {
	c := &Completions{free: make([]int, slots), done: make(chan slotCompletion, 2*slots), dead: dead}
	for i := range c.free {
		c.free[i] = slots - 1 - i
	}
	return c
}

// Take returns a free slot. ok is false if there is none (ErrQueueFull). A slot is free
// again when Poll has returned its Delivered completion, or after Return.
func (c *Completions) Take() (slot int, ok bool) {
	if len(c.free) == 0 {
		return 0, false
	}
	slot = c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	return slot, true
}

// Return frees a slot taken for a transfer that was not posted.
func (c *Completions) Return(slot int) { c.free = append(c.free, slot) }

// Put adds a completion: at most one of each stage per slot, Delivered last. It never
// blocks.
func (c *Completions) Put(slot int, e Completion) { c.done <- slotCompletion{slot, e} }

// Poll implements Initiator.Poll. ended returns why the connection ended.
func (c *Completions) Poll(done []Completion, ended func() error) (int, error) {
	n := 0
	for n < len(done) {
		e, ok := c.next()
		if !ok {
			break
		}
		if e.Stage != LocallyComplete {
			c.free = append(c.free, e.slot)
		}
		done[n] = e.Completion
		n++
	}
	if n > 0 || len(done) == 0 {
		return n, nil
	}
	select {
	case <-c.dead:
	default:
		return 0, nil
	}
	if len(c.done) > 0 { // put after the queue was found empty
		return c.Poll(done, ended)
	}
	return 0, ended()
}

// next takes a completion without waiting.
func (c *Completions) next() (slotCompletion, bool) {
	if c.holding {
		c.holding = false
		return c.held, true
	}
	select {
	case e := <-c.done:
		return e, true
	default:
		return slotCompletion{}, false
	}
}

// Wait implements Initiator.Wait.
func (c *Completions) Wait(ctx context.Context) error {
	if c.holding {
		return nil
	}
	select {
	case c.held = <-c.done:
		c.holding = true
		return nil
	default:
	}
	select {
	case c.held = <-c.done:
		c.holding = true
	case <-c.dead:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
