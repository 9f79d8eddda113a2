package transport

import "context"

// TakeNotices implements Target.Notifications over a queue of notices, for
// implementations. ended is closed once the connection has ended and no more will be
// queued; why is then the reason, returned when all that was queued has been taken.
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
		// What was delivered before the end is still told.
		if n := takeQueued(into, queue); n > 0 {
			return n, nil
		}
		return 0, why()
	}
}

// takeQueued takes what is in the queue, without waiting.
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
