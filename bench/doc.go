// Package bench makes a run: a producer and a consumer agree on a plan over the
// control channel, connect a transport, calibrate the path, and move requests
// layer by layer while recorders watch.
//
// The producer drives: it decides what is next and prepares the bytes. The
// initiator, which is the producer when pushing and the consumer when pulling,
// posts the transfers and reads the clock. The consumer checks what arrived.
// Each concurrent request has a worker with its own connection, memory and
// recorder; workers share nothing while the clock runs.
//
// bench knows transports only by their contract, and is called by cmd.
package bench
