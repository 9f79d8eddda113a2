// UCX 1.13 aborts the process in states that it does not expect. The death of a peer
// leads to such states: for example, an answer to a message from before the connection
// broke is "Fatal: unexpected error". A consumer that serves other connections must
// survive that. kvb_guarded turns the abort into a failure of one worker, which must
// not be used any more.
#ifndef KVB_GUARD_H
#define KVB_GUARD_H

// kvb_guard_start installs the handler for kvb_guarded. It must be called once per
// process.
void kvb_guard_start(void);

// kvb_guarded calls f(arg). It returns 1, or 0 if UCX aborted in the call. An abort
// outside the call, or in another thread, still ends the process.
int kvb_guarded(void (*f)(void *), void *arg);

#endif
