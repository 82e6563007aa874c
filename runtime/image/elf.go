package image

import (
	"bytes"
	"debug/elf"
	"fmt"
)

// checkELF tells a program or library of another architecture before it becomes
// an image that Lambda can't start.
func checkELF(content []byte, goarch string) error {
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("not made for Linux: %w", err)
	}
	want := map[string]elf.Machine{"arm64": elf.EM_AARCH64, "amd64": elf.EM_X86_64}[goarch]
	if f.Machine != want {
		return fmt.Errorf("made for %v, want %v", f.Machine, want)
	}
	return nil
}
