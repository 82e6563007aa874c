package model

import "fmt"

// TensorType is the number ggml gives to a storage format of weights.
type TensorType uint32

// The tensor types this package writes or treats specially.
const (
	TypeF32  TensorType = 0
	TypeF16  TensorType = 1
	TypeQ4_0 TensorType = 2
	TypeQ4_1 TensorType = 3
	TypeQ5_0 TensorType = 6
	TypeQ5_1 TensorType = 7
	TypeQ8_0 TensorType = 8
	TypeQ4_K TensorType = 12
	TypeQ5_K TensorType = 13
	TypeQ6_K TensorType = 14
	TypeBF16 TensorType = 30
)

// typeLayout is how a tensor type packs its values: blocks of a fixed number
// of values in a fixed number of bytes.
type typeLayout struct {
	name   string
	values int64
	bytes  int64
}

// tensorTypes are the types of llama.cpp v0.4.0, the engine this project is
// pinned to; a type that is not here cannot be loaded by it either. Numbers
// that ggml has retired are left out on purpose.
var tensorTypes = map[TensorType]typeLayout{
	TypeF32:  {"F32", 1, 4},
	TypeF16:  {"F16", 1, 2},
	TypeQ4_0: {"Q4_0", 32, 18},
	TypeQ4_1: {"Q4_1", 32, 20},
	TypeQ5_0: {"Q5_0", 32, 22},
	TypeQ5_1: {"Q5_1", 32, 24},
	TypeQ8_0: {"Q8_0", 32, 34},
	9:        {"Q8_1", 32, 36},
	10:       {"Q2_K", 256, 84},
	11:       {"Q3_K", 256, 110},
	TypeQ4_K: {"Q4_K", 256, 144},
	TypeQ5_K: {"Q5_K", 256, 176},
	TypeQ6_K: {"Q6_K", 256, 210},
	15:       {"Q8_K", 256, 292},
	16:       {"IQ2_XXS", 256, 66},
	17:       {"IQ2_XS", 256, 74},
	18:       {"IQ3_XXS", 256, 98},
	19:       {"IQ1_S", 256, 50},
	20:       {"IQ4_NL", 32, 18},
	21:       {"IQ3_S", 256, 110},
	22:       {"IQ2_S", 256, 82},
	23:       {"IQ4_XS", 256, 136},
	24:       {"I8", 1, 1},
	25:       {"I16", 1, 2},
	26:       {"I32", 1, 4},
	27:       {"I64", 1, 8},
	28:       {"F64", 1, 8},
	29:       {"IQ1_M", 256, 56},
	TypeBF16: {"BF16", 1, 2},
	34:       {"TQ1_0", 256, 54},
	35:       {"TQ2_0", 256, 66},
	39:       {"MXFP4", 32, 17},
	40:       {"NVFP4", 64, 36},
	41:       {"Q1_0", 128, 18},
	42:       {"Q2_0", 64, 18},
}

// Known reports whether the pinned engine has this tensor type.
func (t TensorType) Known() bool {
	_, ok := tensorTypes[t]
	return ok
}

// String returns ggml's name of the type in upper case, for example "Q4_K".
func (t TensorType) String() string {
	if l, ok := tensorTypes[t]; ok {
		return l.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// MarshalText writes the name of the type, so that JSON output reads "Q4_K".
func (t TensorType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// RowBytes returns the bytes of a row of n values, or 0 if n is not a whole
// number of the type's blocks or the type is unknown.
func (t TensorType) RowBytes(n int64) int64 {
	l, ok := tensorTypes[t]
	if !ok || n < 0 || n%l.values != 0 {
		return 0
	}
	return n / l.values * l.bytes
}

// Tensor is one entry of a GGUF file's tensor list.
type Tensor struct {
	Name string
	// Dims are the dimensions as ggml orders them: the row length first.
	Dims []int64
	Type TensorType
	// Offset is where the tensor starts, in bytes from the start of the
	// file's data section (Header.DataOffset).
	Offset int64
	Bytes  int64
}

// Elements returns the number of values in the tensor.
func (t Tensor) Elements() int64 {
	n := int64(1)
	for _, d := range t.Dims {
		n *= d
	}
	return n
}
