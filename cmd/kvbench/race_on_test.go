//go:build race

package main

// slow is how much longer everything takes in this build.
const slow = 5
