package model

import (
	"fmt"
	"math"
)

// Recipe says how the tensors of a random-weight file are quantized: the
// name is that of the body, and after a plus that of the output head where it
// is not what llama.cpp's quantizer would choose.
type Recipe string

// The recipes `swarm bench --quant` knows.
//
// RecipeQ4K is the usual Q4_K_M: everything Q4_K, but the output head (which
// is the embedding table in a model with a tied head) Q6_K, and so are
// attn_v and ffn_down in about half of the layers. RecipeQ40 is Q4_0 with a
// Q6_K head. The other recipes change the head only: in a small model with a
// large vocabulary it is a fifth of the weights, and is read for every token.
const (
	RecipeQ4K    Recipe = "q4_k"
	RecipeQ4KQ40 Recipe = "q4_k+q4_0-head"
	RecipeQ40    Recipe = "q4_0"
	RecipeQ40Q40 Recipe = "q4_0+q4_0-head"
	RecipeQ40Q80 Recipe = "q4_0+q8_0-head"
	RecipeQ80    Recipe = "q8_0"
)

// usualHead stands for the head type that llama.cpp's quantizer chooses.
const usualHead = TensorType(math.MaxUint32)

// superBlock is the number of values in a block of the K types.
const superBlock = 256

// recipe is what a Recipe means.
type recipe struct {
	name     Recipe
	body     TensorType
	head     TensorType
	fileType uint32 // general.file_type, see fileTypes
	// mixed is set for the _M mixtures, where some layers get more bits.
	mixed bool
}

var recipes = []recipe{
	{RecipeQ4K, TypeQ4_K, usualHead, 15, true},
	{RecipeQ4KQ40, TypeQ4_K, TypeQ4_0, 15, true},
	{RecipeQ40, TypeQ4_0, usualHead, 2, false},
	{RecipeQ40Q40, TypeQ4_0, TypeQ4_0, 2, false},
	{RecipeQ40Q80, TypeQ4_0, TypeQ8_0, 2, false},
	{RecipeQ80, TypeQ8_0, usualHead, 7, false},
}

// RecipeNames returns the names LookupRecipe knows.
func RecipeNames() []string {
	names := make([]string, len(recipes))
	for i, r := range recipes {
		names[i] = string(r.name)
	}
	return names
}

// LookupRecipe returns the recipe of that name. An unknown name is an
// *UnknownNameError that lists the known.
func LookupRecipe(name string) (Recipe, error) {
	for _, r := range recipes {
		if string(r.name) == name {
			return r.name, nil
		}
	}
	return "", &UnknownNameError{Kind: "quantization", Name: name, Known: RecipeNames()}
}

func (r Recipe) find() (recipe, error) {
	for _, k := range recipes {
		if k.name == r {
			return k, nil
		}
	}
	return recipe{}, &UnknownNameError{Kind: "quantization", Name: string(r), Known: RecipeNames()}
}

// moreBits is the rule by which llama.cpp's _M mixtures choose the layers
// whose attn_v and ffn_down get more bits: the first and last eighth, and
// every third between.
func moreBits(layer, layers int) bool {
	return layer < layers/8 || layer >= 7*layers/8 || (layer-layers/8)%3 == 2
}

// fit returns the type llama.cpp's quantizer takes where rows of n values do
// not fill whole blocks of t.
func fit(t TensorType, n int) TensorType {
	if n%superBlock == 0 {
		return t
	}
	switch t {
	case TypeQ4_K:
		return TypeQ5_0
	case TypeQ5_K:
		return TypeQ5_1
	case TypeQ6_K:
		return TypeQ8_0
	}
	return t
}

// headType is the type of the output head, or of the embedding table where
// that is the head.
func (r recipe) headType(embedding int) TensorType {
	switch {
	case r.head != usualHead:
		return r.head
	case r.body == TypeQ8_0:
		return TypeQ8_0
	default:
		return fit(TypeQ6_K, embedding)
	}
}

// tensorPlan is a tensor to write.
type tensorPlan struct {
	Tensor
	fill fill
}

// fill says what a tensor is filled with.
type fill int

const (
	fillWeights fill = iota // normally distributed around 0
	fillNorm                // close to 1
	fillRope                // the factors of Llama 3's long context
)

// plan lists the tensors of a file with the given shape, in the order they
// are written, with their offsets.
func (r recipe) plan(s NamedShape) ([]tensorPlan, error) {
	if s.Architecture != "llama" {
		return nil, fmt.Errorf("random weights: architecture %q cannot be written, only llama", s.Architecture)
	}
	var tensors []tensorPlan
	var offset int64
	add := func(name string, t TensorType, f fill, dims ...int64) {
		p := tensorPlan{Tensor{Name: name, Dims: dims, Type: t, Offset: offset}, f}
		rows := int64(1)
		for _, d := range dims[1:] {
			rows *= d
		}
		p.Bytes = t.RowBytes(dims[0]) * rows
		offset += (p.Bytes + writeAlignment - 1) &^ (writeAlignment - 1)
		tensors = append(tensors, p)
	}
	e, f, v := int64(s.Embedding), int64(s.FeedForward), int64(s.Vocab)
	q, kv := int64(s.Heads*s.HeadDim), int64(s.KVHeads*s.HeadDim)
	body := func(n int64) TensorType { return fit(r.body, int(n)) }
	richer := func(layer int, n int64) TensorType {
		if r.mixed && moreBits(layer, s.Layers) {
			return fit(TypeQ6_K, int(n))
		}
		return body(n)
	}

	if s.TiedHead {
		add("token_embd.weight", r.headType(s.Embedding), fillWeights, e, v)
	} else {
		add("token_embd.weight", body(e), fillWeights, e, v)
		add("output.weight", r.headType(s.Embedding), fillWeights, e, v)
	}
	if s.ropeScale > 0 {
		add("rope_freqs.weight", TypeF32, fillRope, int64(s.HeadDim/2))
	}
	for i := range s.Layers {
		name := func(part string) string { return fmt.Sprintf("blk.%d.%s.weight", i, part) }
		add(name("attn_norm"), TypeF32, fillNorm, e)
		add(name("attn_q"), body(e), fillWeights, e, q)
		add(name("attn_k"), body(e), fillWeights, e, kv)
		add(name("attn_v"), richer(i, e), fillWeights, e, kv)
		add(name("attn_output"), body(q), fillWeights, q, e)
		add(name("ffn_norm"), TypeF32, fillNorm, e)
		add(name("ffn_gate"), body(e), fillWeights, e, f)
		add(name("ffn_up"), body(e), fillWeights, e, f)
		add(name("ffn_down"), richer(i, f), fillWeights, f, e)
	}
	add("output_norm.weight", TypeF32, fillNorm, e)
	for _, t := range tensors {
		if t.Bytes == 0 {
			return nil, fmt.Errorf("random weights: %s of shape %s has rows of %d values, which %v cannot hold", t.Name, s.Name, t.Dims[0], t.Type)
		}
	}
	return tensors, nil
}
