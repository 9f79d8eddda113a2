//go:build ucx && cgo && linux

#define _GNU_SOURCE
#include "guard.h"

#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static _Thread_local sigjmp_buf *guarded;  // jump target of this thread's guarded call; NULL outside
static struct sigaction before;

// on_abort jumps out of abort. POSIX allows that: see "Application Usage" of abort.
static void on_abort(int signal, siginfo_t *info, void *context)
{
	sigjmp_buf *to = guarded;
	if (to != NULL && info->si_code == SI_TKILL && info->si_pid == getpid()) {
		guarded = NULL;
		siglongjmp(*to, 1);
	}
	// From unguarded code or from outside: act as if this handler did not exist.
	sigaction(SIGABRT, &before, NULL);
	raise(SIGABRT);
}

void kvb_guard_start(void)
{
	// SA_ONSTACK, because handlers in a Go program run on the signal stack. SA_NODEFER,
	// so that the jump leaves no signal blocked.
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
