package generate

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
	"github.com/briefing-swarm/briefing-swarm/runtime/recipe"
	"github.com/briefing-swarm/briefing-swarm/runtime/setting"
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
	r := setting.New(getenv, text)
	integer := func(name string, least, most, fallback int64) int { return int(r.Whole(name, least, most, fallback)) }
	fraction := func(name string, most, fallback float64) float32 { return float32(r.Number(name, most, fallback)) }
	s := Settings{
		ModelPath: r.Required(EnvModel, "the path of the GGUF file"), ChatTemplate: r.Text(EnvChatTemplate),
		Parallel: integer(EnvParallel, 1, 255, engine.DefaultParallel),
		Context:  integer(EnvContext, 64, 1<<24, 0),
		Threads:  integer(EnvThreads, 1, 512, 0),
		Stream:   r.Get(EnvStream), Table: r.Get(EnvTable), DeadLetters: r.Get(EnvDeadLetters),
		KeepFor: time.Duration(r.Whole(EnvResultDays, 1, 3650, DefaultResultDays)) * 24 * time.Hour,
		Recipe: recipe.Recipe{
			Model:     r.Get(EnvModelName),
			MaxTokens: integer(EnvMaxTokens, 1, 1<<20, DefaultMaxTokens),
			Sampling:  engine.Sampling{Temperature: fraction(EnvTemperature, 5, 0), TopP: fraction(EnvTopP, 1, 1), MinP: fraction(EnvMinP, 1, 0)},
			Grammar:   r.Text(EnvGrammar),
		},
	}
	if v := r.Get(EnvSeed); v != "" {
		var err error
		if s.Recipe.Sampling.Seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			r.Faultf("%s is %q, want a whole number from 0", EnvSeed, v)
		}
	}
	system, user := r.Text(EnvSystemPrompt), r.Text(EnvUserTemplate)
	if v := r.Get(EnvStop); v != "" {
		if err := json.Unmarshal([]byte(v), &s.Recipe.Stop); err != nil {
			r.Faultf(`%s is no JSON list of strings, such as ["\n\n"]`, EnvStop)
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
	s.Recipe.Template, err = briefing.ParseTemplate(system, user)
	r.Fault(EnvSystemPrompt+" or "+EnvUserTemplate, err)
	return s, r.Err()
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
