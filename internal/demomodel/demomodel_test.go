package demomodel

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestParseArgs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Model{
		"--model .cache/models/a.gguf\n":                         {Path: ".cache/models/a.gguf"},
		"--model .cache/models/b.gguf --chat-template plain\n\n": {Path: ".cache/models/b.gguf", ChatTemplate: "plain"},
	} {
		if got, err := parseArgs(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "--model", "--nope x --model y", "--model x --chat-template"} {
		if got, err := parseArgs(text); err == nil {
			t.Errorf("%q: %+v and no error", text, got)
		}
	}
}

func TestFind(t *testing.T) {
	m := Find(t)
	if info, err := os.Stat(m.Path); err != nil || info.Size() < 1<<20 || !filepath.IsAbs(m.Path) {
		t.Errorf("model %+v: %v", m, err)
	}
	libs, err := filepath.Glob(filepath.Join(LibraryDir(t), "libllama.*"))
	if err != nil || len(libs) == 0 {
		t.Errorf("no libllama in %s", LibraryDir(t))
	}
	own := filepath.Join(t.TempDir(), "own.gguf")
	if err := os.WriteFile(own, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv(ModelEnv, own)
	t.Setenv(LibraryEnv, filepath.Dir(own))
	if got := Find(t); got.Path != own || LibraryDir(t) != filepath.Dir(own) || !slices.Equal(got.Args(), []string{"--model", own}) {
		t.Errorf("the environment is not heeded: %+v, %s", got, LibraryDir(t))
	}
}
