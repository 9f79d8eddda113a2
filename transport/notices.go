package transport

import "context"

// TakeNotices implements Target.Notifications over a queue of notices. It is for
// implementations. ended must be closed once the connection has ended and no more notices
// will be queued. TakeNotices then returns the queued notices and, after them, why().
func TakeNotices(ctx context.Context, into []Notice, queue <-chan Notice, ended <-chan struct{}, why func() error) (int, error) {
	if len(into) == 0 {
		return 0, nil
	}
	if n := takeQueued(into, queue); n > 0 {
		return n, nil
	}
	select {
	case into[0] = <-queue:
		return 1 + takeQueued(into[1:], queue), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-ended:
		// Notices queued before the end still count.
		if n := takeQueued(into, queue); n > 0 {
			return n, nil
		}
		return 0, why()
	}
}

// takeQueued takes queued notices without waiting.
func takeQueued(into []Notice, queue <-chan Notice) int {
	for n := range into {
		select {
		case into[n] = <-queue:
		default:
			return n
		}
	}
	return len(into)
}
