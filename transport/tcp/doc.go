// Package tcp moves memory over TCP with one-sided semantics: WRITE and READ
// between registered regions, any number of parallel streams, and completion on
// the peer's acknowledgement.
//
// A transfer's bytes are split evenly over the streams. On each, a frame carries
// a fixed header and a table of ranges, then the payload, which the receiver
// reads straight into the registered memory: nothing is staged, copied again or
// thrown away. The receiver checks every range against the region that was
// registered before it reads a byte.
//
// The timed path allocates nothing. Each stream has one goroutine that writes
// and one that reads; a connection shares nothing with another.
//
// Linux uses readv and writev directly; other systems take the portable path of
// package net, which is slower for many small ranges.
package tcp
