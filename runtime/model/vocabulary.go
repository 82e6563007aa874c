package model

import (
	"strconv"
	"strings"
)

// dialect is a family's layout of control tokens and its chat template.
type dialect int

const (
	dialectLlama3 dialect = iota
	dialectChatML
)

// Token types of GGUF's token_type list.
const (
	tokenNormal  = 1
	tokenControl = 3
)

// vocabulary is a byte-level BPE tokenizer, as GGUF stores one. It can encode
// and decode any text, because it has all 256 bytes.
type vocabulary struct {
	pre      string
	tokens   []string
	kinds    []int32
	merges   []string
	bos, eos uint32
	addBOS   bool
	template string
}

// llama3Controls are the first control tokens of Llama 3.2, in the order of
// their ids; those of a full vocabulary are filled up with reserved ones.
var llama3Controls = []string{
	"<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>",
	"<|finetune_right_pad_id|>", "<|reserved_special_token_2|>", "<|start_header_id|>", "<|end_header_id|>",
	"<|eom_id|>", "<|eot_id|>", "<|python_tag|>",
}

const (
	llama3ControlCount = 256
	llama3Vocab        = 128256
	llama3Template     = "{{ bos_token }}{% for message in messages %}" +
		"{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}" +
		"{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
	chatMLTemplate = "{% for message in messages %}" +
		"{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}" +
		"{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

var chatMLControls = []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}

// mergedWords are the words the vocabulary has merges for, besides single
// bytes: enough that common English does not fall apart into letters.
const mergedWords = "the of and to in is you that it he was for on are as with his they at be this have from or one had by " +
	"word but not what all were we when your can said there use an each which she do how their if will up other about out " +
	"many then them these so some her would make like him into time has look two more write go see number no way could " +
	"people my than first water been call who its now find long down day did get come made may part over new sound take " +
	"only little work know place year live me back give most very after thing our just name good sentence man think say " +
	"great where help through much before line right too mean old any same tell boy follow came want show also around form " +
	"three small set put end does another well large must big even such because turn here why ask went men read need land " +
	"user briefing today morning meeting weather news city team project task due project calendar mail summary personal"

// newVocabulary builds the vocabulary of a shape: bytes, merges, then made-up
// words up to the size, and the control tokens at the ids where the real
// model has them (at the end for a smaller vocabulary).
func newVocabulary(d dialect, size int) vocabulary {
	var v vocabulary
	known := map[string]bool{}
	add := func(token string, kind int32) {
		known[token] = true
		v.tokens = append(v.tokens, token)
		v.kinds = append(v.kinds, kind)
	}
	controlsAtEnd := 0
	switch d {
	case dialectChatML:
		v.pre, v.template = "smollm", chatMLTemplate
		v.bos, v.eos = 1, 2
		for _, c := range chatMLControls {
			add(c, tokenControl)
		}
	default:
		v.pre, v.template, v.addBOS = "llama-bpe", llama3Template, true
		controlsAtEnd = len(llama3Controls)
		if size >= llama3Vocab {
			controlsAtEnd = llama3ControlCount
		}
		v.bos = uint32(size - controlsAtEnd)
		v.eos = v.bos + 9 // <|eot_id|> ends a turn of the instruct models
	}
	alphabet := byteAlphabet()
	for _, r := range alphabet {
		add(string(r), tokenNormal)
	}
	space := string(alphabet[' '])
	for _, word := range strings.Fields(mergedWords) {
		left := space
		for _, r := range word {
			merged := left + string(r)
			if !known[merged] && len(v.tokens) < size-controlsAtEnd {
				add(merged, tokenNormal)
				v.merges = append(v.merges, left+" "+string(r))
			}
			left = merged
		}
	}
	for i := 0; len(v.tokens) < size-controlsAtEnd; i++ {
		add(space+"w"+strconv.Itoa(i), tokenNormal)
	}
	if controlsAtEnd > 0 {
		for i, reserved := 0, 3; i < controlsAtEnd; i++ {
			if i < len(llama3Controls) {
				add(llama3Controls[i], tokenControl)
				continue
			}
			add("<|reserved_special_token_"+strconv.Itoa(reserved)+"|>", tokenControl)
			reserved++
		}
	}
	return v
}

// byteAlphabet is byte-level BPE's alphabet: a printable character for each
// byte. Printable bytes stand for themselves, the others get the characters
// from U+0100 on.
func byteAlphabet() [256]rune {
	var alphabet [256]rune
	next := rune(256)
	for b := range alphabet {
		switch {
		case b >= '!' && b <= '~', b >= 0xa1 && b <= 0xac, b >= 0xae:
			alphabet[b] = rune(b)
		default:
			alphabet[b] = next
			next++
		}
	}
	return alphabet
}
