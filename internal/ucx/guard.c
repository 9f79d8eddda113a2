//go:build ucx && cgo && linux

#define _GNU_SOURCE
#include "guard.h"

#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static _Thread_local sigjmp_buf *guarded;  // where this thread goes instead; NULL outside
static struct sigaction before;

// on_abort leaves abort, which allows that: see "Application Usage" of abort in POSIX.
static void on_abort(int signal, siginfo_t *info, void *context)
{
	sigjmp_buf *to = guarded;
	if (to != NULL && info->si_code == SI_TKILL && info->si_pid == getpid()) {
		guarded = NULL;
		siglongjmp(*to, 1);
	}
	// Somebody else's, or sent from outside: as if this handler had never been.
	sigaction(SIGABRT, &before, NULL);
	raise(SIGABRT);
}

void kvb_guard_start(void)
{
	// On the signal stack, as all handlers in a Go program, and not deferred, so that
	// leaving it leaves no signal blocked.
	struct sigaction action = {.sa_sigaction = on_abort, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
	sigemptyset(&action.sa_mask);
	sigaction(SIGABRT, &action, &before);
}

int kvb_guarded(void (*f)(void *), void *arg)
{
	sigjmp_buf here;
	if (sigsetjmp(here, 0) != 0) {
		return 0;
	}
	guarded = &here;
	f(arg);
	guarded = NULL;
	return 1;
}
