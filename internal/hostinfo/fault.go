package hostinfo

// Fault says why something cannot be used, or not as well as it could be, and how
// to mend it. The zero Fault is none.
type Fault struct{ Reason, Mend string }
