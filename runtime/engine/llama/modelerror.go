package llama

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/briefing-swarm/briefing-swarm/runtime/model"
)

// ModelFault names why a model did not load.
type ModelFault string

// Values of ModelFault.
const (
	FaultMissing ModelFault = "missing"        // there is no such file
	FaultTooNew  ModelFault = "engine_too_old" // the file wants a newer llama.cpp
	FaultMemory  ModelFault = "not_enough_memory"
	FaultOther   ModelFault = "other"
)

// ModelError says that llama.cpp refused a model file.
type ModelError struct {
	Path   string
	Fault  ModelFault
	Detail string // llama.cpp's own last words
}

func (e *ModelError) Error() string {
	name := filepath.Base(e.Path)
	switch e.Fault {
	case FaultMissing:
		return fmt.Sprintf("model file %s does not exist: see 'swarm model list' and 'swarm model pull'", e.Path)
	case FaultTooNew:
		return fmt.Sprintf("model %s needs a newer llama.cpp than the one that is loaded (%s): use a model file made for it, or update the libraries", name, e.Detail)
	case FaultMemory:
		return fmt.Sprintf("model %s does not fit into memory (%s): see 'swarm model inspect' for the sum, lower --parallel or --context, or use a smaller model", name, e.Detail)
	default:
		return fmt.Sprintf("llama.cpp can't load model %s: %s", name, e.Detail)
	}
}

func newModelError(path string, log []string) *ModelError {
	detail := "it gave no reason"
	for _, line := range log {
		if strings.Contains(line, "error") || strings.Contains(line, "fail") {
			detail = line
			break
		}
	}
	e := &ModelError{Path: path, Fault: FaultOther, Detail: detail}
	switch all := strings.Join(log, "\n"); {
	case strings.Contains(all, "wrong number of tensors"), strings.Contains(all, "unknown model architecture"), strings.Contains(all, "unknown pre-tokenizer"):
		e.Fault = FaultTooNew
	case strings.Contains(all, "failed to allocate"), strings.Contains(all, "unable to allocate"):
		e.Fault = FaultMemory
	}
	return e
}

// readHeader refuses what is no model before llama.cpp sees it.
func readHeader(path string) (*model.Header, error) {
	h, err := model.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &ModelError{Path: path, Fault: FaultMissing}
	}
	return h, err
}
