package model

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
)

// FileFault is the kind of a FileError, for callers that decide on it.
type FileFault string

// The faults a model file can have.
const (
	FaultNotGGUF   FileFault = "not_gguf"         // another format, or not a model at all
	FaultVersion   FileFault = "gguf_version"     // GGUF of a version the engine does not read
	FaultBigEndian FileFault = "gguf_big_endian"  // GGUF written for big-endian machines
	FaultTruncated FileFault = "truncated"        // the file ends before its own contents do
	FaultMalformed FileFault = "malformed"        // the header contradicts itself or the format
	FaultNoTensors FileFault = "no_tensors"       // a vocabulary without weights
	FaultSplit     FileFault = "split"            // one part of a model in several files
	FaultType      FileFault = "unknown_type"     // a tensor type the pinned engine does not have
	FaultMissing   FileFault = "missing_metadata" // a key the engine cannot do without
)

// FileError says why a file cannot be used as a model, and what to do.
type FileError struct {
	Path   string // may be empty: a reader has no path
	Fault  FileFault
	Detail string // what was found, with numbers
	Advice string // what to do about it
	// ExpectedBytes and PresentBytes are set for FaultTruncated: the size the
	// file should at least have, and the size it has.
	ExpectedBytes int64
	PresentBytes  int64
}

func (e *FileError) Error() string {
	s := e.Detail
	if e.Path != "" {
		s = e.Path + ": " + s
	}
	if e.Advice != "" {
		s += "; " + e.Advice
	}
	return s
}

// guess is what a file that is not a GGUF looks like.
type guess struct {
	what   string
	advice string
}

const (
	adviceConvert  = "convert it with llama.cpp's convert_hf_to_gguf.py, or take a ready-made GGUF of the model ('swarm model list')"
	adviceAgain    = "download the file again"
	adviceUnpack   = "unpack it first"
	adviceGGUFOnly = "this program reads GGUF files, see 'swarm model list'"
)

// oldFormats are the magic numbers of llama.cpp's formats before GGUF, as
// they appear in the file.
var oldFormats = map[string]string{
	"lmgg": "GGML",
	"fmgg": "GGMF",
	"tjgg": "GGJT",
	"algg": "GGLA (an adapter)",
}

// looksLike says what the first bytes of a file that is not a GGUF suggest.
// head may be any length, including none.
func looksLike(head []byte) guess {
	text := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n")
	lower := strings.ToLower(string(text[:min(len(text), 64)]))
	switch {
	case len(head) == 0:
		return guess{"an empty file", adviceAgain}
	case len(head) >= 4 && oldFormats[string(head[:4])] != "":
		return guess{"a file in the retired format " + oldFormats[string(head[:4])], "get the model as GGUF; the old formats have had no reader since 2023"}
	case bytes.HasPrefix(text, []byte("version https://git-lfs")):
		return guess{"a Git LFS pointer, not the file it points to", "run 'git lfs pull' in the repository it came from, or use 'swarm model pull'"}
	case strings.HasPrefix(lower, "<!doctype html"), strings.HasPrefix(lower, "<html"), strings.HasPrefix(lower, "<head"):
		return guess{"an HTML page", "the address led to a web page: use the file's own download address (on Hugging Face: /resolve/, not /blob/), and set HF_TOKEN if the model asks for a log-in"}
	case strings.HasPrefix(lower, "<?xml"), strings.HasPrefix(lower, "<error"):
		return guess{"an XML document, probably a server's error message", adviceAgain}
	case len(head) >= 10 && bytes.Equal(head[8:10], []byte(`{"`)) && binary.LittleEndian.Uint64(head) < 1<<32:
		return guess{"a safetensors file", adviceConvert}
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		if bytes.Contains(head, []byte("data.pkl")) || bytes.Contains(head, []byte("archive/")) {
			return guess{"a PyTorch checkpoint (ZIP)", adviceConvert}
		}
		return guess{"a ZIP archive (a Python wheel or a PyTorch checkpoint?)", "unpack it if it is an archive with a .gguf in it; convert it if it is a checkpoint"}
	case len(head) >= 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5:
		return guess{"a Python pickle (an old PyTorch checkpoint)", adviceConvert}
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return guess{"a gzip archive", adviceUnpack}
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return guess{"a zstd archive", adviceUnpack}
	case bytes.HasPrefix(head, []byte{0xfd, '7', 'z', 'X', 'Z', 0}):
		return guess{"an xz archive", adviceUnpack}
	case bytes.HasPrefix(head, []byte("BZh")):
		return guess{"a bzip2 archive", adviceUnpack}
	case bytes.HasPrefix(head, []byte("7z\xbc\xaf\x27\x1c")):
		return guess{"a 7-Zip archive", adviceUnpack}
	case bytes.HasPrefix(head, []byte("\x89HDF")):
		return guess{"an HDF5 file (Keras weights?)", adviceConvert}
	case len(head) >= 8 && bytes.Equal(head[4:8], []byte("TFL3")):
		return guess{"a TensorFlow Lite model", adviceGGUFOnly}
	case bytes.HasPrefix(text, []byte("{")):
		return guess{"a JSON document (a config.json, or a server's error message?)", "give the .gguf file itself"}
	case bytes.Count(head, []byte{0}) == len(head):
		return guess{"zero bytes, as an interrupted download leaves them", adviceAgain}
	default:
		return guess{fmt.Sprintf("an unknown format that starts with the bytes % x", head[:min(len(head), 8)]), adviceGGUFOnly}
	}
}

// notGGUF builds the error for a file whose first bytes are head.
func notGGUF(head []byte) *FileError {
	g := looksLike(head)
	return &FileError{Fault: FaultNotGGUF, Detail: "not a GGUF model: this is " + g.what, Advice: g.advice}
}
