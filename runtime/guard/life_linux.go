package guard

import (
	"os/exec"
	"syscall"
)

// bindLife has the kernel kill the child when this process dies.
func bindLife(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
