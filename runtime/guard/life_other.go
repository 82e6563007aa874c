//go:build !linux

package guard

import "os/exec"

// bindLife does nothing here: only Lambda starts children, and it runs Linux.
func bindLife(*exec.Cmd) {}
