package generate

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
	"github.com/briefing-swarm/briefing-swarm/runtime/recipe"
)

// Environment of the handlers that generate. Values marked "text" may also be
// s3://bucket/key of an object that holds the text: a function's whole
// environment is limited to 4 KB.
const (
	EnvModel        = "SWARM_MODEL"          // path of the GGUF file, required
	EnvModelName    = "SWARM_MODEL_NAME"     // what rows call it; default from the file
	EnvSystemPrompt = "SWARM_SYSTEM_PROMPT"  // text; default briefing.DefaultSystemPrompt
	EnvUserTemplate = "SWARM_USER_TEMPLATE"  // text; default briefing.DefaultUserTemplate
	EnvChatTemplate = "SWARM_CHAT_TEMPLATE"  // text, Jinja; default the model's own
	EnvGrammar      = "SWARM_GRAMMAR"        // text, GBNF; default none
	EnvStop         = "SWARM_STOP"           // JSON list of strings; default briefing.DefaultStop with the default system prompt, else none
	EnvMaxTokens    = "SWARM_MAX_TOKENS"     // default DefaultMaxTokens
	EnvTemperature  = "SWARM_TEMPERATURE"    // 0 to 5, default 0
	EnvTopP         = "SWARM_TOP_P"          // 0 to 1, default 1
	EnvMinP         = "SWARM_MIN_P"          // 0 to 1, default 0
	EnvSeed         = "SWARM_SEED"           // default 0
	EnvParallel     = "SWARM_PARALLEL"       // sequences decoded together, default engine.DefaultParallel
	EnvContext      = "SWARM_CONTEXT_TOKENS" // most tokens of a record, prompt and output; default llama.DefaultContextPerSequence
	EnvThreads      = "SWARM_THREADS"        // default engine.Threads of the CPU quota

	EnvStream      = "SWARM_FIREHOSE_STREAM"       // of the batch handler, required
	EnvTable       = "SWARM_RESULTS_TABLE"         // of the queue handler, required
	EnvDeadLetters = "SWARM_DEAD_LETTER_QUEUE_URL" // of the queue handler, required
	EnvResultDays  = "SWARM_RESULT_DAYS"           // of the queue handler, default DefaultResultDays
)

// Defaults of the environment.
const (
	DefaultMaxTokens  = 96
	DefaultResultDays = 7
)

// Settings are what the environment says.
type Settings struct {
	ModelPath    string
	ChatTemplate string
	Recipe       recipe.Recipe
	Parallel     int
	Context      int // 0 for the default
	Threads      int // 0 for the default
	// Of the batch handler:
	Stream string
	// Of the queue handler:
	Table, DeadLetters string
	KeepFor            time.Duration
}

// ReadSettings reads the environment. text reads the object of an s3:// value.
// The error names every fault.
func ReadSettings(getenv func(string) string, text func(url string) (string, error)) (Settings, error) {
	var faults []error
	value := func(name string) string {
		v := getenv(name)
		if !strings.HasPrefix(v, "s3://") {
			return v
		}
		v, err := text(v)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, err))
		}
		return v
	}
	integer := func(name string, least, most, fallback int) int {
		v := getenv(name)
		if v == "" {
			return fallback
		}
		n, err := strconv.Atoi(v)
		if err != nil || n < least || n > most {
			faults = append(faults, fmt.Errorf("%s is %q, want a whole number from %d to %d", name, v, least, most))
		}
		return n
	}
	fraction := func(name string, most, fallback float32) float32 {
		v := getenv(name)
		if v == "" {
			return fallback
		}
		n, err := strconv.ParseFloat(v, 32)
		if err != nil || !(n >= 0 && n <= float64(most)) {
			faults = append(faults, fmt.Errorf("%s is %q, want a number from 0 to %v", name, v, most))
		}
		return float32(n)
	}
	s := Settings{
		ModelPath: getenv(EnvModel), ChatTemplate: value(EnvChatTemplate),
		Parallel: integer(EnvParallel, 1, 255, engine.DefaultParallel),
		Context:  integer(EnvContext, 64, 1<<24, 0),
		Threads:  integer(EnvThreads, 1, 512, 0),
		Stream:   getenv(EnvStream), Table: getenv(EnvTable), DeadLetters: getenv(EnvDeadLetters),
		KeepFor: time.Duration(integer(EnvResultDays, 1, 3650, DefaultResultDays)) * 24 * time.Hour,
		Recipe: recipe.Recipe{
			Model:     getenv(EnvModelName),
			MaxTokens: integer(EnvMaxTokens, 1, 1<<20, DefaultMaxTokens),
			Sampling:  engine.Sampling{Temperature: fraction(EnvTemperature, 5, 0), TopP: fraction(EnvTopP, 1, 1), MinP: fraction(EnvMinP, 1, 0)},
			Grammar:   value(EnvGrammar),
		},
	}
	if s.ModelPath == "" {
		faults = append(faults, fmt.Errorf("%s is not set: give the path of the GGUF file", EnvModel))
	}
	if v := getenv(EnvSeed); v != "" {
		var err error
		if s.Recipe.Sampling.Seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			faults = append(faults, fmt.Errorf("%s is %q, want a whole number from 0", EnvSeed, v))
		}
	}
	system, user := value(EnvSystemPrompt), value(EnvUserTemplate)
	if v := getenv(EnvStop); v != "" {
		if err := json.Unmarshal([]byte(v), &s.Recipe.Stop); err != nil {
			faults = append(faults, fmt.Errorf(`%s is no JSON list of strings, such as ["\n\n"]`, EnvStop))
		}
	} else if system == "" && s.Recipe.Grammar == "" {
		s.Recipe.Stop = []string{briefing.DefaultStop}
	}
	if system == "" {
		system = briefing.DefaultSystemPrompt()
	}
	if user == "" {
		user = briefing.DefaultUserTemplate()
	}
	var err error
	if s.Recipe.Template, err = briefing.ParseTemplate(system, user); err != nil {
		faults = append(faults, fmt.Errorf("%s or %s: %w", EnvSystemPrompt, EnvUserTemplate, err))
	}
	return s, errors.Join(faults...)
}

// RequireBatch reports what the batch handler lacks.
func (s Settings) RequireBatch() error {
	if s.Stream == "" {
		return fmt.Errorf("%s is not set: give the name of the delivery stream", EnvStream)
	}
	return nil
}

// RequireQueue reports what the queue handler lacks.
func (s Settings) RequireQueue() error {
	var faults []error
	if s.Table == "" {
		faults = append(faults, fmt.Errorf("%s is not set: give the name of the results table", EnvTable))
	}
	if s.DeadLetters == "" {
		faults = append(faults, fmt.Errorf("%s is not set: give the URL of the dead-letter queue", EnvDeadLetters))
	}
	return errors.Join(faults...)
}
