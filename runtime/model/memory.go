package model

// MemoryOptions are the settings of the engine that decide how much memory a
// model needs. Zero values mean the defaults.
type MemoryOptions struct {
	// Parallel is the number of sequences generated at the same time;
	// default 1.
	Parallel int
	// ContextPerSequence is the most tokens a sequence may have, prompt and
	// output together; default DefaultContext.
	ContextPerSequence int
	// MicroBatch is llama.cpp's n_ubatch, the most tokens computed at once;
	// default DefaultMicroBatch.
	MicroBatch int
	// MMap says that the file is mapped into memory rather than read.
	MMap bool
	// Arch is "arm64" or "x86_64", Lambda's names. They differ in the types of
	// weights that are re-ordered; empty counts what either may need.
	Arch string
	// AMX says that an x86_64 processor has matrix units (amx_int8 in its flags).
	// llama.cpp has an order for them that x86_64 otherwise does without. Whether
	// Lambda's have them is not published; OverheadBytes has room for the head.
	AMX bool
}

// Defaults of MemoryOptions.
const (
	DefaultContext    = 1024
	DefaultMicroBatch = 512
)

// OverheadBytes is added for everything but the model: the Go program, its
// prompts and results, llama.cpp's vocabulary tables, the operating system's
// share in a Lambda function. 512 MiB is a cautious figure, not a measured one.
const OverheadBytes = 512 << 20

// What a worker's process has beside the model, measured: a Lambda worker of
// SmolLM2-135M had 42 MiB, and a file of 128,256 tokens took 13 MiB more than
// that one of 49,152 before its first buffer.
const (
	processBytes         = 32 << 20
	vocabularyTokenBytes = 180
)

// Lambda's bounds of the memory setting, in MiB; every whole number between is
// allowed.
const (
	LambdaMinMemoryMib = 128
	LambdaMaxMemoryMib = 10240
)

// Need is the memory a process needs to generate with a model: a sum whose
// parts can be shown.
type Need struct {
	// WeightBytes are all tensors, once.
	WeightBytes int64 `json:"weight_bytes"`
	// RepackBytes are weights that are held twice. llama.cpp re-orders weights
	// for the CPU's vector units while it loads them. Where the file is read,
	// the re-ordered copy is the only one, except for a tied head: the
	// embedding table has to stay in its first order as well. Where the file
	// is mapped, the mapping stays beside the copy of everything.
	RepackBytes int64 `json:"repack_bytes"`
	// KVBytes is the KV cache: 2 bytes for each key and value of every layer,
	// for ContextPerSequence tokens, rounded up to 256, of Parallel sequences
	// and of one more that keeps the shared prefix. Layers with a sliding window
	// are counted as if they had none, so the true need may be lower.
	KVBytes int64 `json:"kv_bytes"`
	// ComputeBytes are llama.cpp's scratch buffers: activations for every token
	// of a micro-batch, the attention mask of one sequence's cells, and the kept
	// logits of every sequence. The engine asks for logits of one token a
	// sequence; without that bound there would be one for every token of a
	// micro-batch.
	ComputeBytes  int64 `json:"compute_bytes"`
	OverheadBytes int64 `json:"overhead_bytes"`
	TotalBytes    int64 `json:"total_bytes"`
	// PeakBytes is the most resident memory that a worker's process is expected
	// to have: as TotalBytes, with what was measured of a process in the place
	// of the cautious overhead.
	PeakBytes int64 `json:"peak_bytes"`
	// Parallel and ContextPerSequence are the settings the need is for, with
	// the defaults filled in.
	Parallel           int `json:"parallel"`
	ContextPerSequence int `json:"context_per_sequence"`
}

// MemoryNeed returns the memory needed to generate with a model of shape s.
// weightBytes are the bytes of its tensors, headBytes those of its output
// head, 0 where that is not re-ordered. The formula was compared with the buffers
// llama.cpp v0.4.0 reports for files of 135M and 1B parameters, 1 to 32 sequences
// and micro-batches of 256 and 512: weights, KV cache and kept logits agree to the
// byte, scratch within 6%, and the peak of a worker's process within 10%. What is
// cautious about it is said at Need's fields.
func MemoryNeed(s Shape, weightBytes, headBytes int64, o MemoryOptions) Need {
	if o.Parallel < 1 {
		o.Parallel = 1
	}
	if o.ContextPerSequence < 1 {
		o.ContextPerSequence = DefaultContext
	}
	if o.MicroBatch < 1 {
		o.MicroBatch = DefaultMicroBatch
	}
	const kvPadding = 256
	perSequence := (int64(o.ContextPerSequence) + kvPadding - 1) / kvPadding * kvPadding
	sequences := int64(o.Parallel) + 1
	batch := int64(o.MicroBatch)
	width := int64(max(s.Embedding, s.Heads*s.HeadDim))
	logits := 4 * sequences * int64(s.Vocab)
	// The logits are computed when the activations are not needed any more: they
	// share their room.
	scratch := max(4*batch*(3*int64(s.FeedForward)+4*width), logits)
	n := Need{
		WeightBytes:        weightBytes,
		KVBytes:            sequences * perSequence * s.KVBytesPerToken(),
		ComputeBytes:       scratch + scratch/20 + 2*batch*perSequence + logits,
		OverheadBytes:      OverheadBytes,
		Parallel:           o.Parallel,
		ContextPerSequence: o.ContextPerSequence,
	}
	switch {
	case o.MMap:
		n.RepackBytes = weightBytes
	case s.TiedHead:
		n.RepackBytes = headBytes
	}
	n.TotalBytes = n.WeightBytes + n.RepackBytes + n.KVBytes + n.ComputeBytes + n.OverheadBytes
	n.PeakBytes = n.TotalBytes - n.OverheadBytes + processBytes + vocabularyTokenBytes*int64(s.Vocab)
	return n
}

// MemoryNeed returns the memory needed to generate with the file.
func (h *Header) MemoryNeed(o MemoryOptions) Need {
	return MemoryNeed(h.Shape, h.WeightBytes, o.reordered(h.HeadType, h.HeadBytes), o)
}

// reordered returns the bytes of a head where the architecture's processors have
// an order of their own for its type, and 0 where they leave it as it is.
func (o MemoryOptions) reordered(head TensorType, bytes int64) int64 {
	if o.Arch == "x86_64" && !o.AMX && (head == TypeQ8_0 || head == TypeQ6_K) {
		return 0
	}
	return bytes
}

// MemoryNeed returns the memory needed to generate with the catalogue's file,
// without having it: the whole file counts as weights, and the head is taken
// to have the type llama.cpp's quantizer would give it.
func (e Entry) MemoryNeed(o MemoryOptions) Need {
	head := fit(TypeQ6_K, e.Shape.Embedding)
	if e.Quantization == TypeQ8_0.String() {
		head = TypeQ8_0
	}
	return MemoryNeed(e.Shape, e.SizeBytes, o.reordered(head, head.RowBytes(int64(e.Shape.Embedding))*int64(e.Shape.Vocab)), o)
}

// MinMemoryMib returns the smallest memory setting of a Lambda function, in
// MiB, that holds the need. It may lie above LambdaMaxMemoryMib: see
// FitsLambda.
func (n Need) MinMemoryMib() int {
	return max(LambdaMinMemoryMib, int((n.TotalBytes+1<<20-1)>>20))
}

// FitsLambda reports whether a Lambda function can have as much memory.
func (n Need) FitsLambda() bool { return n.MinMemoryMib() <= LambdaMaxMemoryMib }
