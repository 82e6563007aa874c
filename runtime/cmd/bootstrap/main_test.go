package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/briefing-swarm/briefing-swarm/internal/demomodel"
	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
)

// TestMain lets the test binary stand in for bootstrap itself.
func TestMain(m *testing.M) {
	if os.Getenv("BE_BOOTSTRAP") != "" {
		main()
	}
	os.Exit(m.Run())
}

// TestRefusesToStart: what is wrong with the set-up ends in one readable line
// and exit code 1.
func TestRefusesToStart(t *testing.T) {
	t.Parallel()
	text := filepath.Join(t.TempDir(), "text.gguf")
	if err := os.WriteFile(text, []byte("this is no model"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := t.TempDir()
	ready := map[string]string{"SWARM_HANDLER": "generate", "SWARM_FIREHOSE_STREAM": "s", "SWARM_MODEL": "/none/model.gguf"}
	tests := map[string]struct {
		env  map[string]string
		want []string
	}{
		"no handler":      {map[string]string{"SWARM_HANDLER": ""}, []string{"SWARM_HANDLER is not set", "deliver, feedback, generate, normalise, queue, reconcile, stream, unsubscribe"}},
		"unknown handler": {map[string]string{"SWARM_HANDLER": "delever"}, []string{`SWARM_HANDLER is "delever"`}},
		"no region":       {map[string]string{"AWS_REGION": ""}, []string{"no region"}},
		"several faults":  {map[string]string{"SWARM_FIREHOSE_STREAM": "", "SWARM_MAX_TOKENS": "many"}, []string{"SWARM_FIREHOSE_STREAM is not set", `SWARM_MAX_TOKENS is "many"`}},
		"no model":        {map[string]string{"SWARM_MODEL": ""}, []string{"SWARM_MODEL is not set"}},
		"missing model":   {nil, []string{"model file /none/model.gguf does not exist"}},
		"no GGUF":         {map[string]string{"SWARM_MODEL": text}, []string{"text.gguf", "GGUF"}},
		"no libraries":    {map[string]string{"SWARM_MODEL": demomodel.Find(t).Path, "SWARM_LLAMA_LIB": empty}, []string{"load llama.cpp from " + empty}},
		"no table":        {map[string]string{"SWARM_HANDLER": "queue"}, []string{"SWARM_RESULTS_TABLE is not set", "SWARM_DEAD_LETTER_QUEUE_URL is not set"}},
		"no sender":       {map[string]string{"SWARM_HANDLER": "deliver", "SWARM_DELIVER_AT": "8"}, []string{"SWARM_LEDGER_TABLE is not set", "SWARM_FROM", "SWARM_DELIVER_AT"}},
		"no key":          {map[string]string{"SWARM_HANDLER": "unsubscribe"}, []string{"SWARM_LEDGER_TABLE is not set", "SWARM_UNSUBSCRIBE_KEY"}},
		"no bucket":       {map[string]string{"SWARM_HANDLER": "reconcile"}, []string{"SWARM_RUNS_BUCKET is not set", "SWARM_BRIEFINGS_PREFIX is not set"}},
		"no bucket, too":  {map[string]string{"SWARM_HANDLER": "normalise"}, []string{"SWARM_RUNS_BUCKET is not set"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := mototest.Env("http://127.0.0.1:1")
			for _, more := range []map[string]string{ready, test.env} {
				for k, v := range more {
					env[k] = v
				}
			}
			cmd := exec.Command(os.Args[0])
			cmd.Env = []string{"BE_BOOTSTRAP=1", "PATH=" + os.Getenv("PATH"), "HOME=" + empty}
			for k, v := range env {
				cmd.Env = append(cmd.Env, k+"="+v)
			}
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			err := cmd.Run()
			if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 1 {
				t.Errorf("ended with %v, want exit code 1", err)
			}
			line := stderr.String()
			if strings.Count(line, "\n") != 1 || !strings.HasPrefix(line, "bootstrap: ") || stdout.Len() > 0 {
				t.Errorf("stderr %q, stdout %q; want one line", line, stdout.String())
			}
			for _, want := range test.want {
				if !strings.Contains(line, want) {
					t.Errorf("%q does not say %q", line, want)
				}
			}
		})
	}
}
