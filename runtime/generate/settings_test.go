package generate

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
)

func read(env map[string]string) (Settings, error) {
	return ReadSettings(func(k string) string { return env[k] }, func(url string) (string, error) {
		if url == "s3://b/prompt" {
			return "from S3", nil
		}
		return "", errors.New(url + " does not exist")
	})
}

func TestReadSettings(t *testing.T) {
	t.Parallel()
	s, err := read(map[string]string{"SWARM_MODEL": "/opt/model/model.gguf"})
	if err != nil {
		t.Fatal(err)
	}
	if s.Parallel != engine.DefaultParallel || s.Recipe.MaxTokens != DefaultMaxTokens || s.Recipe.Sampling.TopP != 1 || s.Recipe.Sampling.Temperature != 0 ||
		s.KeepFor != 7*24*time.Hour || s.Recipe.Template.System() != strings.TrimSpace(briefing.DefaultSystemPrompt()) {
		t.Errorf("defaults %+v", s)
	}
	if d := cmp.Diff([]string{briefing.DefaultStop}, s.Recipe.Stop); d != "" {
		t.Errorf("stop (-want +got):\n%s", d)
	}

	s, err = read(map[string]string{
		"SWARM_MODEL": "m", "SWARM_MODEL_NAME": "name", "SWARM_SYSTEM_PROMPT": "s3://b/prompt", "SWARM_USER_TEMPLATE": "Hi {{.name}}", "SWARM_STOP": `["END","\n"]`,
		"SWARM_MAX_TOKENS": "12", "SWARM_TEMPERATURE": "0.5", "SWARM_TOP_P": "0.25", "SWARM_MIN_P": "0.125", "SWARM_SEED": "18446744073709551615",
		"SWARM_PARALLEL": "3", "SWARM_CONTEXT_TOKENS": "4096", "SWARM_THREADS": "2", "SWARM_FIREHOSE_STREAM": "st", "SWARM_RESULTS_TABLE": "ta",
		"SWARM_DEAD_LETTER_QUEUE_URL": "http://q", "SWARM_RESULT_DAYS": "2", "SWARM_CHAT_TEMPLATE": "jinja", "SWARM_GRAMMAR": `root ::= "a"`,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.RequireBatch(), s.RequireQueue()); err != nil {
		t.Error(err)
	}
	if s.Recipe.Template.System() != "from S3" {
		t.Errorf("system prompt %q", s.Recipe.Template.System())
	}
	s.Recipe.Template = nil
	want := Settings{ModelPath: "m", ChatTemplate: "jinja", Parallel: 3, Context: 4096, Threads: 2, Stream: "st", Table: "ta", DeadLetters: "http://q", KeepFor: 48 * time.Hour}
	want.Recipe.Model, want.Recipe.MaxTokens, want.Recipe.Stop, want.Recipe.Grammar = "name", 12, []string{"END", "\n"}, `root ::= "a"`
	want.Recipe.Sampling = engine.Sampling{Temperature: 0.5, TopP: 0.25, MinP: 0.125, Seed: 1<<64 - 1}
	if d := cmp.Diff(want, s); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestSettingsFaults: every fault is named, all at once.
func TestSettingsFaults(t *testing.T) {
	t.Parallel()
	bad := map[string]string{
		"SWARM_MODEL": "", "SWARM_MAX_TOKENS": "0", "SWARM_TEMPERATURE": "hot", "SWARM_TOP_P": "1.5", "SWARM_MIN_P": "NaN", "SWARM_SEED": "-1",
		"SWARM_PARALLEL": "256", "SWARM_CONTEXT_TOKENS": "1", "SWARM_THREADS": "1.5", "SWARM_RESULT_DAYS": "0", "SWARM_STOP": "END",
		"SWARM_USER_TEMPLATE": "{{.x", "SWARM_SYSTEM_PROMPT": "s3://b/none", "SWARM_GRAMMAR": "s3://b/none", "SWARM_CHAT_TEMPLATE": "s3://b/none",
	}
	s, err := read(bad)
	for name := range bad {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named in: %v", name, err)
		}
	}
	err = errors.Join(s.RequireBatch(), s.RequireQueue())
	for _, name := range []string{EnvStream, EnvTable, EnvDeadLetters} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named in: %v", name, err)
		}
	}
}
