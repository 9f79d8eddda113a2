package cudadrv

// caller makes the calls on the path of a transfer without allocating: it holds the space
// for the arguments. The caller of call must keep the memory they point to alive.
type caller struct {
	driver *Driver
	args   [maxArguments]uintptr
}

// maxArguments is the number of arguments of the longest call, cuMemcpyBatchAsync.
const maxArguments = 9

func (c *caller) call(s symbol, args ...uintptr) error {
	r, err := c.result(s, args...)
	if err != nil {
		return err
	}
	return c.driver.check(s, r)
}

// result calls the driver and returns the driver's result. It returns ErrTooOld, wrapped,
// if the driver lacks the call.
func (c *caller) result(s symbol, args ...uintptr) (Result, error) {
	function := c.driver.functions[s]
	if function == 0 {
		return 0, c.driver.tooOld(s)
	}
	return callC(function, c.args[:copy(c.args[:], args)]...), nil
}
