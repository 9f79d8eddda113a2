// Package tcp moves memory over TCP with one-sided semantics: WRITE and READ between
// registered regions over any number of parallel streams. A transfer completes when the
// peer acknowledges it.
//
// A transfer's bytes are split evenly over the streams. On each stream a frame carries
// a fixed header and a table of ranges, then the payload. The receiver reads the
// payload straight into the registered memory, without a staging buffer or a second
// copy. Before it reads the payload, it checks every range against the registered
// region.
//
// The timed path allocates nothing. Each stream has one goroutine that writes and one
// that reads. Connections share no state.
//
// Linux uses readv and writev directly. Other systems use package net, which is slower
// for many small ranges.
package tcp
