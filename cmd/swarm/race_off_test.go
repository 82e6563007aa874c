//go:build !race

package main

// raceEnabled says that the race detector is part of the test binary.
const raceEnabled = false
