//go:build unix

package main

import "syscall"

// ownProcessGroup keeps a terminal's Ctrl-C from a child: the parent ends the child in
// order.
func ownProcessGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
