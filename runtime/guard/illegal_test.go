package guard

import (
	"syscall"
	"unsafe"
)

// illegalInstruction executes one, in memory of its own: the zero word on arm64,
// UD2 on amd64.
func illegalInstruction() {
	page, err := syscall.Mmap(-1, 0, syscall.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		panic(err)
	}
	copy(page, []byte{0x0f, 0x0b})
	if err := syscall.Mprotect(page, syscall.PROT_READ|syscall.PROT_EXEC); err != nil {
		panic(err)
	}
	code := unsafe.SliceData(page)
	call := &code
	(*(*func())(unsafe.Pointer(&call)))()
}
