// Package remote runs the conformance suite between two processes: for transports that
// need two, and to show that only the transport connects the sides. Serve runs a
// transport in a child process. Start returns a Transport that forwards the calls of
// the test's process to the child.
//
// Calls go over the child's stdin and stdout, one at a time for each endpoint, as the
// contract requires. A call carries the deadline of its context. An earlier
// cancellation is not forwarded.
package remote
