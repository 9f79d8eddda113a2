// Package remote lets the conformance suite run between two processes: for
// transports whose sides cannot live in one, and to see that nothing but the
// transport joins them. Serve runs a transport in a child process, and the
// Transport that Start returns stands for it in the test's process.
//
// Everything goes over the child's stdin and stdout, one call after the other for
// each endpoint, as the contract has it. The deadline of a context goes along; an
// earlier cancellation does not.
package remote
