package main

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/briefing-swarm/briefing-swarm/runtime/model"
)

// modelCache gives the test a cache of its own, which is empty.
func modelCache(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("SWARM_CACHE", dir)
	t.Setenv("HF_ENDPOINT", "")
	t.Setenv("HF_TOKEN", "")
	return dir
}

// tinyModel writes a model of random weights under a fixed relative path, so
// that output which names it does not change, and returns the path.
func tinyModel(t *testing.T) string {
	t.Helper()
	t.Chdir(t.TempDir())
	path, err := model.RandomFile(context.Background(), "models", "tiny", model.RecipeQ4K, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestModelHelp(t *testing.T) {
	for _, verb := range []string{"", "list", "pull", "inspect"} {
		args := append([]string{"model"}, strings.Fields(verb)...)
		code, out, errOut := swarm(t, append(args, "--help")...)
		if code != 0 || errOut != "" {
			t.Errorf("model %s --help: exit code %d, %s", verb, code, errOut)
		}
		golden(t, strings.TrimSuffix("model/help-"+verb, "-")+".golden", out)
	}
}

func TestModelList(t *testing.T) {
	cache := modelCache(t)
	if err := os.MkdirAll(filepath.Join(cache, "models"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cache, "models", "SmolLM2-135M-Instruct.Q4_1.gguf"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	code, out, errOut := swarm(t, "model", "list")
	if code != 0 || errOut != "" {
		t.Fatalf("exit code %d, %s", code, errOut)
	}
	for _, line := range strings.Split(out, "\n") {
		if utf8.RuneCountInString(line) > 80 {
			t.Errorf("longer than 80 columns: %q", line)
		}
	}
	golden(t, "model/list.golden", out)

	code, out, _ = swarm(t, "model", "list", "--json")
	if code != 0 {
		t.Fatalf("--json: exit code %d", code)
	}
	golden(t, "model/list-json.golden", out)
}

func TestModelInspect(t *testing.T) {
	path := tinyModel(t)
	for name, args := range map[string][]string{
		"inspect":          nil,
		"inspect-parallel": {"--parallel", "16", "--context", "512", "--mmap"},
		"inspect-too-big":  {"--parallel", "4096", "--context", "4096"},
		"inspect-json":     {"--json", "--parallel", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := swarm(t, append([]string{"model", "inspect", path}, args...)...)
			if code != 0 || errOut != "" {
				t.Fatalf("exit code %d, %s", code, errOut)
			}
			t.Chdir(testDir)
			golden(t, "model/"+name+".golden", out)
		})
	}
}

// testDir is the package's folder, where testdata is.
var testDir = func() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	return dir
}()

func TestModelInspectByName(t *testing.T) {
	cache := modelCache(t)
	if _, err := model.RandomFile(context.Background(), filepath.Join(cache, "models"), "tiny", model.RecipeQ40, 1, nil); err != nil {
		t.Fatal(err)
	}
	code, out, errOut := swarm(t, "model", "inspect", "tiny.q4_0.random-1.v1.gguf", "--json")
	var got inspection
	if code != 0 || json.Unmarshal([]byte(out), &got) != nil || got.Shape.Layers != 3 || got.Quantization != "Q4_0" {
		t.Errorf("exit code %d, %s, %+v", code, errOut, got)
	}
}

func TestModelInspectRefuses(t *testing.T) {
	modelCache(t)
	dir := t.TempDir()
	page := filepath.Join(dir, "page.gguf")
	if err := os.WriteFile(page, []byte("<!doctype html>"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		code int
		say  string
	}{
		{[]string{page}, 1, "not a GGUF model: this is an HTML page"},
		{[]string{filepath.Join(dir, "absent.gguf")}, 1, "does not exist"},
		{[]string{"smollm2-135m"}, 1, "swarm model pull smollm2-135m"},
		{[]string{"smollm2-135"}, 1, `did you mean "smollm2-135m"`},
		{[]string{dir}, 1, "a directory"},
		{nil, 2, "accepts 1 arg"},
		{[]string{page, "--parallel", "0"}, 2, "--parallel is 0"},
		{[]string{page, "--context", "-1"}, 2, "--context is -1"},
		{[]string{page, "--what"}, 2, "unknown flag"},
	} {
		code, out, errOut := swarm(t, append([]string{"model", "inspect"}, tc.args...)...)
		if code != tc.code || out != "" || !strings.Contains(errOut, tc.say) {
			t.Errorf("%v: exit code %d, %q; want %d, %q", tc.args, code, errOut, tc.code, tc.say)
		}
	}
}

func TestModelPull(t *testing.T) {
	cache := modelCache(t)
	path, err := model.RandomFile(context.Background(), t.TempDir(), "tiny", model.RecipeQ40, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := model.Checksum(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		http.ServeFile(w, r, path)
	}))
	defer server.Close()

	for _, tc := range []struct {
		name string
		args []string
		code int
		say  string
	}{
		{"no checksum", []string{server.URL + "/tiny.gguf"}, 2, "--record-sha256"},
		{"not a gguf", []string{server.URL + "/tiny.zip"}, 2, "does not end in the name of a .gguf"},
		{"unknown name", []string{"smollm2"}, 2, "no model is called"},
		{"wrong checksum", []string{server.URL + "/tiny.gguf", "--sha256", strings.Repeat("0", 64)}, 1, "was not kept"},
		{"no argument", nil, 2, "accepts 1 arg"},
	} {
		code, out, errOut := swarm(t, append([]string{"model", "pull"}, tc.args...)...)
		if code != tc.code || out != "" || !strings.Contains(errOut, tc.say) {
			t.Errorf("%s: exit code %d, %q; want %d, %q", tc.name, code, errOut, tc.code, tc.say)
		}
	}

	code, out, errOut := swarm(t, "model", "pull", server.URL+"/tiny.gguf", "--sha256", sum)
	want := filepath.Join(cache, "models", "tiny.gguf")
	if code != 0 || !strings.HasPrefix(out, want+"\n") || !strings.Contains(out, "checksum as expected") {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
	code, out, _ = swarm(t, "model", "pull", server.URL+"/tiny.gguf", "--json")
	var pulled model.Pulled
	if code != 0 || json.Unmarshal([]byte(out), &pulled) != nil || !pulled.Already || pulled.SHA256 != sum {
		t.Errorf("second pull: exit code %d, %q", code, out)
	}
}

func TestPullLine(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		done, total, fetched int64
		took                 time.Duration
		want                 string
	}{
		{505e6, 2.02e9, 500e6, 50 * time.Second, "505.0 MB of 2.02 GB (25%), 10.0 MB/s, 2m32s left"},
		{505e6, -1, 500e6, 50 * time.Second, "505.0 MB, 10.0 MB/s"},
		{505e6, 2.02e9, 0, 0, "505.0 MB of 2.02 GB (25%)"},
	} {
		if got := pullLine(tc.done, tc.total, tc.fetched, tc.took); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

func TestModelUnknownVerb(t *testing.T) {
	code, _, errOut := swarm(t, "model", "fetch")
	if code != 2 || !strings.Contains(errOut, "fetch") {
		t.Errorf("exit code %d, %q", code, errOut)
	}
}

func TestJSONValue(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(jsonValue(model.Array{Len: 3, Values: []any{math.NaN(), math.Inf(1), "x"}}))
	if err != nil || string(text) != `["NaN","+Inf","x"]` {
		t.Errorf("got %s, %v", text, err)
	}
	if text, err := json.Marshal(jsonValue(model.Array{Len: 5000})); err != nil || string(text) != `"array of 5000 values"` {
		t.Errorf("got %s, %v", text, err)
	}
}

func TestPrintable(t *testing.T) {
	t.Parallel()
	if got := printable("a\x1b[31mb\n\u009bc\u202ed é 漢"); got != "a[31mbcd é 漢" {
		t.Errorf("got %q", got)
	}
}
