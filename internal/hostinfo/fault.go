package hostinfo

// Fault is the reason why a part is unusable, or slower than possible, with its fix. The
// zero Fault is none.
type Fault struct{ Reason, Mend string }
