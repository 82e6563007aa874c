package model

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestResolve(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("SWARM_CACHE", cache)
	models := filepath.Join(cache, "models")
	if err := os.MkdirAll(models, 0o755); err != nil {
		t.Fatal(err)
	}
	touch := func(path string) string {
		t.Helper()
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	e := mustEntry("smollm2-135m")

	_, _, err := Resolve("smollm2-135m")
	var absent *NotPulledError
	if !errors.As(err, &absent) || !strings.Contains(err.Error(), "'swarm model pull smollm2-135m'") {
		t.Errorf("not pulled: %v", err)
	}
	_, _, err = Resolve("llama-3.2-3b")
	if !errors.As(err, &absent) || !strings.Contains(err.Error(), "'swarm model pull llama-3.2-3b --record-sha256'") {
		t.Errorf("not pulled, no checksum known: %v", err)
	}

	cached := touch(filepath.Join(models, e.File))
	path, entry, err := Resolve("SmolLM2-135M")
	if err != nil || path != cached || entry == nil || entry.Name != e.Name {
		t.Errorf("name: %q, %v, %v", path, entry, err)
	}
	path, entry, err = Resolve(cached)
	if err != nil || path != cached || entry != nil {
		t.Errorf("path: %q, %v, %v", path, entry, err)
	}
	mine := touch(filepath.Join(models, "mine.gguf"))
	if path, _, err := Resolve("mine.gguf"); err != nil || path != mine {
		t.Errorf("file in the cache: %q, %v", path, err)
	}
	if _, _, err := Resolve("no/such.gguf"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent path: %v", err)
	}
	if _, _, err := Resolve("other.gguf"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
	var unknown *UnknownNameError
	if _, _, err := Resolve("smollm2-135"); !errors.As(err, &unknown) {
		t.Errorf("misspelt name: %v", err)
	}
	if _, _, err := Resolve(""); err == nil {
		t.Error("no name was resolved")
	}
}

func TestCacheDir(t *testing.T) {
	t.Setenv("SWARM_CACHE", "/somewhere")
	if dir, err := ShapesDir(); err != nil || dir != filepath.Join("/somewhere", "shapes") {
		t.Errorf("got %q, %v", dir, err)
	}
	t.Setenv("SWARM_CACHE", "")
	t.Setenv("XDG_CACHE_HOME", "/user/cache")
	t.Setenv("HOME", "/user")
	if dir, err := ModelsDir(); err != nil || !strings.HasSuffix(dir, filepath.Join("briefing-swarm", "models")) {
		t.Errorf("got %q, %v", dir, err)
	}
}
