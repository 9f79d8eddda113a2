// Command kvbench measures the cost of moving an LLM's KV cache from a prefill node to a
// decode node, and compares it with a prediction by arithmetic.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(run(untilSignal(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// untilSignal returns a context that ends with the first SIGINT, SIGTERM or SIGHUP. A
// second signal meets the default action, which ends the process at once.
func untilSignal() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	return ctx
}
