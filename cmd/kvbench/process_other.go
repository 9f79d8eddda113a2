//go:build !unix

package main

import "syscall"

func ownProcessGroup() *syscall.SysProcAttr { return nil }
