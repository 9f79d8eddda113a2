// Package bench makes a run: a producer and a consumer agree on a plan over the control
// channel, connect a transport, calibrate the path, and move requests layer by layer
// while recorders watch.
//
// The producer drives: it starts each phase and prepares the bytes. The initiator (the
// producer when pushing, the consumer when pulling) posts the transfers and reads the
// clock. The consumer checks the bytes that arrive. Each concurrent request has a worker
// with a separate connection, memory and recorder; workers share nothing while the clock
// runs.
//
// bench uses transports only through package transport, and cmd calls it.
package bench
