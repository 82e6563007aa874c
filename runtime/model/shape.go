package model

import (
	"fmt"
	"sort"
	"strings"
)

// Shape is the geometry of a decoder-only transformer: what decides its size,
// its memory and its speed, apart from the weights themselves.
type Shape struct {
	// Architecture is llama.cpp's name, for example "llama", "qwen2", "phi3".
	Architecture string `json:"architecture"`
	Layers       int    `json:"layers"`
	Embedding    int    `json:"embedding"`    // width of the residual stream
	FeedForward  int    `json:"feed_forward"` // inner width of the MLP
	Heads        int    `json:"heads"`        // query heads per layer
	KVHeads      int    `json:"kv_heads"`     // key and value heads per layer, the most of any layer
	HeadDim      int    `json:"head_dim"`     // width of a key head
	Vocab        int    `json:"vocab"`        // tokens in the vocabulary
	Context      int    `json:"context"`      // tokens of context the model was trained for
	// TiedHead says that the output head is the embedding table, stored once.
	TiedHead bool `json:"tied_head"`
	// KVValuesPerToken is the number of values one token keeps in the KV
	// cache over all layers. 0 means that all layers are alike: 2 x Layers x
	// KVHeads x HeadDim.
	KVValuesPerToken int64 `json:"-"`
}

// KVBytesPerToken returns the bytes of KV cache one token of one sequence
// takes, with keys and values stored as 16-bit floats.
func (s Shape) KVBytesPerToken() int64 {
	values := s.KVValuesPerToken
	if values == 0 {
		values = 2 * int64(s.Layers) * int64(s.KVHeads) * int64(s.HeadDim)
	}
	return 2 * values
}

// Parameters returns the number of weights of the shape, for the
// architectures of the catalogue: llama (and Mistral, which llama.cpp stores
// as llama), qwen2 with its biases on query, key and value, and phi3.
func (s Shape) Parameters() int64 {
	e, f, v := int64(s.Embedding), int64(s.FeedForward), int64(s.Vocab)
	q, kv := int64(s.Heads)*int64(s.HeadDim), int64(s.KVHeads)*int64(s.HeadDim)
	layer := e*q + 2*e*kv + q*e + 3*e*f + 2*e
	if s.Architecture == "qwen2" {
		layer += q + 2*kv
	}
	total := v*e + int64(s.Layers)*layer + e
	if !s.TiedHead {
		total += v * e
	}
	return total
}

// NamedShape is a shape that random weights can be written for.
type NamedShape struct {
	Name string
	Shape
	// dialect is the vocabulary's layout of control tokens and its chat
	// template.
	dialect  dialect
	ropeBase float64
	// ropeScale is the long-context factor of Llama 3's rotary embeddings; a
	// file with one carries the extra tensor rope_freqs. 0 means none.
	ropeScale float64
}

// namedShapes are the shapes `swarm bench --shape` knows. The figures are
// those of the published models, see the catalogue; "tiny" is nobody's model.
var namedShapes = []NamedShape{
	{
		Name: "tiny", dialect: dialectLlama3, ropeBase: 500000,
		Shape: Shape{Architecture: "llama", Layers: 3, Embedding: 256, FeedForward: 768, Heads: 4, KVHeads: 2, HeadDim: 64, Vocab: 2048, Context: 4096, TiedHead: true},
	},
	{Name: "smollm2-135m", dialect: dialectChatML, ropeBase: 100000, Shape: mustEntry("smollm2-135m").Shape},
	{Name: "llama-3.2-1b", dialect: dialectLlama3, ropeBase: 500000, ropeScale: 32, Shape: mustEntry("llama-3.2-1b").Shape},
	{Name: "llama-3.2-3b", dialect: dialectLlama3, ropeBase: 500000, ropeScale: 32, Shape: mustEntry("llama-3.2-3b").Shape},
	{Name: "llama-3.1-8b", dialect: dialectLlama3, ropeBase: 500000, ropeScale: 8, Shape: mustEntry("llama-3.1-8b").Shape},
}

// ShapeNames returns the names LookupShape knows, smallest model first.
func ShapeNames() []string {
	names := make([]string, len(namedShapes))
	for i, s := range namedShapes {
		names[i] = s.Name
	}
	return names
}

// LookupShape returns the shape of that name. An unknown name is an error
// that lists the known.
func LookupShape(name string) (NamedShape, error) {
	for _, s := range namedShapes {
		if s.Name == name {
			return s, nil
		}
	}
	return NamedShape{}, &UnknownNameError{Kind: "shape", Name: name, Known: ShapeNames()}
}

// UnknownNameError is returned for a name that is in no list of this package.
type UnknownNameError struct {
	Kind  string // "model", "shape" or "quantization"
	Name  string
	Known []string
}

func (e *UnknownNameError) Error() string {
	s := fmt.Sprintf("no %s is called %q", e.Kind, e.Name)
	if near := nearest(e.Name, e.Known); near != "" {
		s += fmt.Sprintf("; did you mean %q", near)
	}
	return s + "; known: " + strings.Join(e.Known, ", ")
}

// nearest returns the one of known that name most probably meant, or "" if
// none is close.
func nearest(name string, known []string) string {
	type candidate struct {
		name     string
		distance int
	}
	plain := func(s string) string {
		return strings.NewReplacer("-", "", "_", "", ".", "", " ", "", ":", "", "/", "").Replace(strings.ToLower(s))
	}
	var near []candidate
	for _, k := range known {
		a, b := plain(name), plain(k)
		d := editDistance(a, b)
		if len(a) > 2 && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a)) {
			d = min(d, 2)
		}
		if d <= 1+len(b)/4 {
			near = append(near, candidate{k, d})
		}
	}
	if len(near) == 0 {
		return ""
	}
	sort.SliceStable(near, func(i, j int) bool { return near[i].distance < near[j].distance })
	return near[0].name
}

// editDistance is the Levenshtein distance of two short strings in bytes.
// Names longer than 64 bytes are cut: they are typing errors of another kind.
func editDistance(a, b string) int {
	a, b = a[:min(len(a), 64)], b[:min(len(b), 64)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
