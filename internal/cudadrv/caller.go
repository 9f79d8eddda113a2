package cudadrv

// caller makes the calls of a transfer's path, which allocate nothing: its
// arguments have a place of their own. What they point to must be kept alive by
// something that outlives the call.
type caller struct {
	driver *Driver
	args   [maxArguments]uintptr
}

// maxArguments is that of the longest call, cuMemcpyBatchAsync.
const maxArguments = 9

func (c *caller) call(s symbol, args ...uintptr) error {
	r, err := c.result(s, args...)
	if err != nil {
		return err
	}
	return c.driver.check(s, r)
}

// result calls the driver and returns what it said. The error is of a call that
// the driver lacks.
func (c *caller) result(s symbol, args ...uintptr) (Result, error) {
	function := c.driver.functions[s]
	if function == 0 {
		return 0, c.driver.tooOld(s)
	}
	return callC(function, c.args[:copy(c.args[:], args)]...), nil
}
