//go:build unix

package main

import "syscall"

// ownProcessGroup keeps a terminal's Ctrl-C from a child, which its parent ends in order.
func ownProcessGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
