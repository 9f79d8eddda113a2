package main

import "net"

// checkAddress returns a usage error unless address is HOST:PORT with a port from least
// to 65535. least is 0 for listeners: port 0 lets the kernel choose.
func checkAddress(flag, address string, least int) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return usagef("--%s %q is not HOST:PORT, such as 127.0.0.1:9400", flag, address)
	}
	if n, err := net.LookupPort("tcp", port); err != nil || n < least {
		return usagef("--%s %q: %q is not a port; give one from %d to 65535, such as 9400", flag, address, port, least)
	}
	return nil
}
