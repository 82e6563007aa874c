package component

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/briefing-swarm/briefing-swarm/plan"
	"github.com/briefing-swarm/briefing-swarm/runtime/model"
)

// defaultModel is the catalogue's name of plan.DefaultModel.
const defaultModel = "llama-3.2-3b"

// modelFile is the model that the workers run, and where the image build takes
// it from.
type modelFile struct {
	Model plan.Model
	// Context is the longest context it was made for.
	Context int
	// Path or URL, and SHA256 in hex: what image.Model takes. A Path may do
	// without SHA256.
	Path, URL, SHA256 string
	// File is the file's name in the image.
	File string
}

var hexSum = regexp.MustCompile(`^[0-9a-f]{64}$`)

// findModel looks up what the arguments say of the model. What is wrong is
// added to the faults; ok is false where the model itself is not known.
func (a Args) findModel(f *faults) (m modelFile, ok bool) {
	options := model.MemoryOptions{Parallel: max(1, a.ParallelSequences), ContextPerSequence: max(1, a.ContextTokens), Arch: a.Architecture}
	local := a.ModelSource != "" && !strings.Contains(a.ModelSource, "://")
	name := a.Model
	if name == "" && !local {
		name = defaultModel
	}
	entry, err := model.Lookup(name)
	var unknown *model.UnknownNameError
	switch {
	case local:
		h, err := model.Open(a.ModelSource)
		if err != nil {
			f.add("modelSource", quote(a.ModelSource), "a GGUF file", strings.ReplaceAll(err.Error(), "\n", "; "))
			return m, false
		}
		m.Model = planModel(h.Name, h.Quantization, h.Shape, h.Parameters, h.FileBytes, h.MemoryNeed(options))
		m.Context = h.Shape.Context
		if a.Model != "" {
			m.Model.Name = a.Model
		}
		m.Path, m.SHA256, m.File = a.ModelSource, a.ModelSha256, filepath.Base(a.ModelSource)
	case errors.As(err, &unknown):
		remedy := "take one of them"
		if a.ModelSource != "" {
			remedy = "a model at an address must have the shape of one of the catalogue, so that its need of memory is known; of any other give modelSource as a file"
		}
		f.add("model", quote(a.Model), "one of "+strings.Join(unknown.Known, ", "), remedy)
		return m, false
	case err != nil:
		f.add("model", quote(a.Model), "a model of the catalogue", err.Error())
		return m, false
	default:
		m.Model = planModel(entry.Name, entry.Quantization, entry.Shape, entry.ParameterCount, entry.SizeBytes, entry.MemoryNeed(options))
		m.Context = entry.Shape.Context
		m.URL, m.SHA256, m.File = entry.URL(), entry.SHA256, entry.File
		if a.ModelSource != "" {
			m.URL, m.SHA256 = a.ModelSource, ""
			u, err := url.Parse(a.ModelSource)
			if err != nil || u.Scheme != "https" || u.Host == "" {
				f.add("modelSource", quote(a.ModelSource), "a path, or an https address", "the image build fetches an address; download anything else and give its path")
			} else {
				m.File = path.Base(u.Path)
			}
		}
		set(&m.SHA256, a.ModelSha256)
		if m.SHA256 == "" && a.ImageUri == nil && a.ModelStore != plan.StoreEFS {
			remedy := "give the checksum of the file: an image build takes nothing unverified"
			if a.ModelSource == "" && entry.ReportedSHA256 != "" {
				remedy += "; several public projects name " + entry.ReportedSHA256
			}
			f.add("modelSha256", "empty", "64 hexadecimal digits", remedy)
		}
	}
	if a.ModelSha256 != "" && !hexSum.MatchString(a.ModelSha256) {
		f.add("modelSha256", quote(a.ModelSha256), "64 hexadecimal digits", "give the output of sha256sum")
	}
	if !strings.HasSuffix(m.File, ".gguf") {
		f.add("modelSource", quote(m.File), "a file name ending in .gguf", "workers load GGUF files")
	}
	return m, true
}

func planModel(name, quantization string, s model.Shape, parameters, bytes int64, need model.Need) plan.Model {
	return plan.Model{
		Name: name, Quantization: quantization, Parameters: parameters, WeightBytes: bytes,
		Layers: s.Layers, KVHeads: s.KVHeads, HeadDim: s.HeadDim, WorkBytes: need.RepackBytes + need.ComputeBytes,
	}
}

// quote keeps a value from filling an error.
func quote(s string) string {
	if r := []rune(s); len(r) > 60 {
		s = string(r[:60]) + "…"
	}
	return fmt.Sprintf("%q", s)
}
