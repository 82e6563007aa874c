package libffi

import (
	"os"

	"github.com/ebitengine/purego"
)

// soname is the version of libffi that the binding asks for: that of libffi 3.4
// and 3.5.
const soname = "libffi.so.8"

func init() {
	handle, err := purego.Dlopen(soname, purego.RTLD_LAZY)
	if err != nil {
		os.Stderr.WriteString(message(err))
		os.Exit(1)
	}
	// The binding holds its own handle.
	_ = purego.Dlclose(handle)
}

func message(err error) string {
	return soname + ", through which llama.cpp is called, can't be loaded: " + err.Error() +
		": install libffi 3.4 or later (on Debian: apt-get install libffi8), or put " + soname + " into a folder of LD_LIBRARY_PATH\n"
}
