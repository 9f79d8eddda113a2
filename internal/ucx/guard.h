// UCX 1.13 ends the process where it meets what it does not expect, and the death of
// a peer is among that: a message that answers one that came before the connection
// broke, for one, is "Fatal: unexpected error". A consumer that serves others must
// outlive that. kvb_guarded turns it into a failure of the one worker concerned,
// which is not to be used any more.
#ifndef KVB_GUARD_H
#define KVB_GUARD_H

// kvb_guard_start prepares for kvb_guarded; once for the process.
void kvb_guard_start(void);

// kvb_guarded calls f(arg). It returns 1, or 0 where UCX would have ended the
// process in it. What aborts outside of it, or in another thread, does so still.
int kvb_guarded(void (*f)(void *), void *arg);

#endif
