// Command kvbench measures what it costs to move an LLM's KV cache from a
// prefill node to a decode node, and holds it against what arithmetic predicts.
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

// untilSignal returns a context that ends with the first SIGINT or SIGTERM. A
// second one finds the default action again, and ends the process at once.
func untilSignal() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	return ctx
}
