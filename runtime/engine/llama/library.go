package llama

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
	cpp "github.com/hybridgroup/yzma/pkg/llama"
)

// LibraryEnv names the folder with libllama.so, libggml.so and the CPU
// variants.
const LibraryEnv = "SWARM_LLAMA_LIB"

// imageLibraryDir is where the Lambda image has the libraries.
const imageLibraryDir = "/opt/llama"

// LibraryError says that llama.cpp itself could not be loaded.
type LibraryError struct {
	Dir string // where it was looked for, or "" when there is no such folder
	Err error
}

func (e *LibraryError) Error() string {
	if e.Dir == "" {
		return fmt.Sprintf("llama.cpp libraries not found: run 'make setup', or set %s to the folder of libllama", LibraryEnv)
	}
	return fmt.Sprintf("load llama.cpp from %s: %v: run 'make setup' again, or set %s to a folder that holds libllama, libggml and libggml-cpu-* of one build",
		e.Dir, e.Err, LibraryEnv)
}

func (e *LibraryError) Unwrap() error { return e.Err }

// LibraryDir returns the folder of the llama.cpp libraries: that of the
// environment, else .cache/llama/OS-ARCH in the working directory, beside the
// program, or in a folder above either, else the Lambda image's.
func LibraryDir() (string, error) {
	if dir := os.Getenv(LibraryEnv); dir != "" {
		return dir, nil
	}
	arch := runtime.GOARCH
	if arch == "amd64" {
		arch = "x64"
	}
	under := filepath.Join(".cache", "llama", runtime.GOOS+"-"+arch)
	var starts []string
	if wd, err := os.Getwd(); err == nil {
		starts = append(starts, wd)
	}
	if exe, err := os.Executable(); err == nil {
		starts = append(starts, filepath.Dir(exe))
	}
	for _, start := range starts {
		for dir := start; ; dir = filepath.Dir(dir) {
			if _, err := os.Stat(filepath.Join(dir, under)); err == nil {
				return filepath.Join(dir, under), nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	if _, err := os.Stat(imageLibraryDir); err == nil {
		return imageLibraryDir, nil
	}
	return "", &LibraryError{Err: fs.ErrNotExist}
}

// library is the one copy of llama.cpp in the process.
var library struct {
	sync.Mutex
	dir string
	log logTail
}

// loadLibrary loads llama.cpp and the CPU variant that fits. A process has one
// copy: loading it again out of another folder is refused.
func loadLibrary(dir string) error {
	library.Lock()
	defer library.Unlock()
	if library.dir != "" {
		if library.dir != dir {
			return &LibraryError{Dir: dir, Err: fmt.Errorf("this process has loaded %s before", library.dir)}
		}
		return nil
	}
	if err := cpp.Load(dir); err != nil {
		return &LibraryError{Dir: dir, Err: err}
	}
	cpp.LogSet(purego.NewCallback(library.log.add))
	cpp.Init()
	if cpp.GGMLBackendDeviceCount() == 0 {
		return &LibraryError{Dir: dir, Err: errors.New("no CPU variant in it runs on this processor")}
	}
	library.dir = dir
	return nil
}

// logTail keeps the last lines that llama.cpp wrote. They explain a failure
// whose return value says no more than that it failed.
type logTail struct {
	mu    sync.Mutex
	lines []string
	all   bool // every line of every level: what llama.cpp says of its buffers, for a test
}

const logTailLines = 40

// add is llama.cpp's log callback: level, NUL-ended text, user data.
func (l *logTail) add(level int32, text *byte, _ uintptr) uintptr {
	l.mu.Lock()
	defer l.mu.Unlock()
	if text == nil || level < int32(cpp.LogLevelWarn) && !l.all {
		return 0
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(text), n)) != 0 && n < 4096 {
		n++
	}
	line := strings.TrimSpace(string(unsafe.Slice(text, n)))
	if line == "" {
		return 0
	}
	l.lines = append(l.lines, line)
	if len(l.lines) > logTailLines && !l.all {
		l.lines = slices.Delete(l.lines, 0, len(l.lines)-logTailLines)
	}
	return 0
}

// take returns the kept lines and forgets them.
func (l *logTail) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

// Variant returns the CPU variant that ggml has loaded, such as "zen4" or
// "armv8.2_2", and "" before a model is open or where it can't be told.
func Variant() string {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return ""
	}
	const mark = "/libggml-cpu-"
	for line := range strings.Lines(string(maps)) {
		if i := strings.LastIndex(line, mark); i >= 0 {
			name, _, _ := strings.Cut(strings.TrimSpace(line[i+len(mark):]), ".so")
			return name
		}
	}
	return ""
}

// Features returns the instruction sets that the loaded variant uses, as
// llama.cpp names them, and nil before a model is open.
func Features() []string {
	library.Lock()
	loaded := library.dir != ""
	library.Unlock()
	if !loaded {
		return nil
	}
	var features []string
	for part := range strings.SplitSeq(cpp.PrintSystemInfo(), "|") {
		name, on, ok := strings.Cut(part, "=")
		if i := strings.LastIndex(name, ":"); i >= 0 {
			name = name[i+1:]
		}
		if ok && strings.TrimSpace(on) == "1" {
			features = append(features, strings.TrimSpace(name))
		}
	}
	return features
}
