package main

import "net"

// checkAddress finds a HOST:PORT that cannot be dialled or listened on before it is
// tried. Port 0, the kernel's choice, is for listeners only: least is 0 for those.
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
