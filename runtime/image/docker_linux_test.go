package image

import (
	"debug/elf"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/briefing-swarm/briefing-swarm/internal/buildtool"
	"github.com/briefing-swarm/briefing-swarm/internal/demomodel"
	"github.com/briefing-swarm/briefing-swarm/internal/dockertest"
	"github.com/briefing-swarm/briefing-swarm/internal/llamalib"
	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
	"github.com/briefing-swarm/briefing-swarm/internal/rietest"
	"github.com/briefing-swarm/briefing-swarm/internal/rootfs"
	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

// imageEnv asks for the tests that build images: they take minutes.
const imageEnv = "SWARM_IMAGE_TESTS"

// imageTest is a daemon with stand-ins of the base images under the names that
// the Dockerfile asks for.
type imageTest struct {
	*dockertest.Daemon
	registry string
	model    string // the real one
	network  []string
}

func startImageTest(t *testing.T) *imageTest {
	t.Helper()
	if os.Getenv(imageEnv) == "" {
		t.Skip("set " + imageEnv + "=1 to build images; `make image` does")
	}
	for _, why := range []string{dockertest.Missing(), rootfs.Missing()} {
		if why != "" {
			t.Skip(why)
		}
	}
	return &imageTest{Daemon: dockertest.Start(t), registry: dockertest.Registry(t), model: demomodel.Find(t).Path, network: buildNetwork(t)}
}

// bases makes the stand-ins. The one that the program runs on has neither libffi
// nor libstdc++: the image has to bring them.
func (it *imageTest) bases(t *testing.T, goarch string) {
	t.Helper()
	platform := "linux/" + goarch
	it.Base(rootfs.Tar(t, rootfs.Spec{Arch: goarch, Packages: rootfs.RuntimePackages}), platform, defaultBase(t, "LIBRARY_BASE"))
	it.Base(rootfs.Tar(t, rootfs.Spec{Arch: goarch, Packages: []string{"base-files", "libc6", "netbase"}}), platform, defaultBase(t, "RUN_BASE"))
}

// defaultBase reads the default of a build argument in the Dockerfile.
func defaultBase(t *testing.T, arg string) string {
	t.Helper()
	dockerfile, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(dockerfile), "\nARG "+arg+"=")
	name, _, _ := strings.Cut(rest, "\n")
	if !ok || name == "" {
		t.Fatalf("the Dockerfile has no default for %s", arg)
	}
	return name
}

// buildNetwork returns what lets the build reach what this machine reaches: the
// daemon has no network of its own.
func buildNetwork(t *testing.T) []string {
	t.Helper()
	args := []string{"--network", "host"}
	for _, name := range []string{os.Getenv("SSL_CERT_FILE"), "/etc/ssl/certs/ca-certificates.crt"} {
		if _, err := os.Stat(name); err == nil {
			args = append(args, "--secret", "id=ca,src="+name)
			break
		}
	}
	for arg, command := range map[string][]string{"GOPROXY": {"go", "env", "GOPROXY"}, "NPM_CONFIG_REGISTRY": {"npm", "config", "get", "registry"}} {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).Output(); err == nil {
			args = append(args, "--build-arg", arg+"="+strings.TrimSpace(string(out)))
		}
	}
	return args
}

// build builds the image of a context and returns how long it took.
func (it *imageTest) build(t *testing.T, c *Context, tag string, more ...string) time.Duration {
	t.Helper()
	start := time.Now()
	if err := it.tryBuild(c, tag, more...); err != nil {
		t.Fatalf("build %s: %v", tag, err)
	}
	return time.Since(start).Round(100 * time.Millisecond)
}

func (it *imageTest) tryBuild(c *Context, tag string, more ...string) error {
	args := append([]string{"build", "--platform", c.Platform, "--tag", tag}, it.network...)
	for _, name := range slices.Sorted(maps.Keys(c.Args)) {
		args = append(args, "--build-arg", name+"="+c.Args[name])
	}
	_, err := it.TryDocker(append(append(args, more...), c.Dir)...)
	return err
}

// layers returns the digests of an image's uncompressed layers.
func (it *imageTest) layers(t *testing.T, tag string) []string {
	t.Helper()
	var layers []string
	if err := json.Unmarshal([]byte(it.Docker("image", "inspect", "--format", "{{json .RootFS.Layers}}", tag)), &layers); err != nil {
		t.Fatal(err)
	}
	return layers
}

// TestImageARM64 is the way of a deployment: compile, fetch the libraries, build
// for ARM64, push, change the program, push again; then run what was built.
func TestImageARM64(t *testing.T) {
	it := startImageTest(t)
	start := time.Now()
	it.Base(dockertest.BuilderTar(t), "linux/"+runtime.GOARCH, defaultBase(t, "GO_BASE"), defaultBase(t, "NODE_BASE"))
	it.bases(t, "arm64")
	t.Logf("stand-ins of the base images: %.1f s", time.Since(start).Seconds())

	c := stage(t, Options{Root: t.TempDir(), Model: Model{File: it.model}})
	first := it.registry + "/swarm:1"
	t.Logf("first build, everything fetched and compiled: %v", it.build(t, c, first))
	start = time.Now()
	it.Docker("push", first)
	t.Logf("first push: %.1f s", time.Since(start).Seconds())

	t.Run("manifest", func(t *testing.T) { checkManifest(t, first, "arm64") })

	t.Run("same layers when built again", func(t *testing.T) {
		again := it.registry + "/swarm:again"
		t.Logf("build without the cache: %v", it.build(t, c, again, "--no-cache"))
		if diff := cmp.Diff(it.layers(t, first), it.layers(t, again)); diff != "" {
			t.Errorf("the layers are not the same:\n%s", diff)
		}
	})

	t.Run("a change of code moves the program alone", func(t *testing.T) {
		changed := *c
		changed.Dir = filepath.Join(t.TempDir(), "changed")
		if out, err := exec.CommandContext(t.Context(), "cp", "-a", c.Dir, changed.Dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		extra := "package main\n\nimport \"os\"\n\nfunc init() {\n\tif len(os.Args) > 99 {\n\t\tprintln(\"changed\")\n\t}\n}\n"
		if err := os.WriteFile(filepath.Join(changed.Dir, "runtime/cmd/bootstrap/changed.go"), []byte(extra), 0o644); err != nil {
			t.Fatal(err)
		}
		second := it.registry + "/swarm:2"
		built := it.build(t, &changed, second)
		start := time.Now()
		pushed := it.Docker("push", second)
		t.Logf("build after a change of code: %v, push: %.1f s", built, time.Since(start).Seconds())
		a, b := it.layers(t, first), it.layers(t, second)
		if len(a) != len(b) || !slices.Equal(a[:len(a)-1], b[:len(b)-1]) || a[len(a)-1] == b[len(b)-1] {
			t.Errorf("layers %v and %v: want all but the last the same", a, b)
		}
		if n := strings.Count(pushed, "Layer already exists"); n != len(b)-1 {
			t.Errorf("%d of %d layers were there already, want all but one:\n%s", n, len(b), pushed)
		}
		m1, m2 := dockertest.ReadManifest(t, first), dockertest.ReadManifest(t, second)
		if m1.Digest == m2.Digest || m1.Digest == "" {
			t.Errorf("digests %s and %s", m1.Digest, m2.Digest)
		}
	})

	if why := rootfs.NoEmulation(); why != "" {
		t.Run("run", func(t *testing.T) { t.Skip(why) })
		return
	}
	t.Run("run on Graviton2's core", func(t *testing.T) {
		it.run(t, first, "armv8.2_2", "-e", "QEMU_CPU=neoverse-n1")
	})
	t.Run("faults", func(t *testing.T) {
		it.faults(t, first, filepath.Join(llamalib.Dir(t, "arm64"), "libggml-cpu-armv8.2_2.so"), "-e", "QEMU_CPU=neoverse-n1")
	})
}

// TestImageAMD64 has everything but the model in the context, and the model from
// an address: a build that needs no other network.
func TestImageAMD64(t *testing.T) {
	it := startImageTest(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("the image would run under emulation")
	}
	it.Base(dockertest.BuilderTar(t), "linux/amd64", defaultBase(t, "GO_BASE"))
	it.bases(t, "amd64")
	files := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(it.model))))
	defer files.Close()
	o := Options{
		Root: t.TempDir(), Architecture: "x86_64", LlamaDir: llamalib.Dir(t, "amd64"), Bootstrap: rietest.Program(t, programPath, "amd64"),
		Model: Model{File: it.model},
	}
	fromFile := stage(t, o)
	o.Model = Model{URL: files.URL + "/" + filepath.Base(it.model), SHA256: fromFile.Args["MODEL_SHA256"]}
	fromURL := stage(t, o)
	it.network = []string{"--network", "none"}
	tag := it.registry + "/swarm:amd64"
	t.Logf("build with the model from an address: %v", it.build(t, fromURL, tag))
	t.Logf("build with the model from a file: %v", it.build(t, fromFile, tag+"-file"))
	if diff := cmp.Diff(it.layers(t, tag), it.layers(t, tag+"-file")); diff != "" {
		t.Errorf("the same model from two places makes other layers:\n%s", diff)
	}
	it.Docker("push", tag)
	checkManifest(t, tag, "amd64")

	for name, c := range map[string]*Context{"file": fromFile, "URL": fromURL} {
		t.Run("another model from the "+name, func(t *testing.T) {
			wrong := *c
			wrong.Args = maps.Clone(c.Args)
			wrong.Args["MODEL_SHA256"] = strings.Repeat("0", 64)
			err := it.tryBuild(&wrong, "wrong")
			if err == nil || !strings.Contains(err.Error(), "sha256 of model "+c.Args["MODEL_FILE"]+" is "+c.Args["MODEL_SHA256"]) {
				t.Errorf("the build said: %v", err)
			}
		})
	}
	t.Run("run", func(t *testing.T) { it.run(t, tag, "") })
	t.Run("mounted model", func(t *testing.T) {
		o.Model = Model{Mounted: true}
		bare := it.registry + "/swarm:bare"
		it.build(t, stage(t, o), bare)
		it.run(t, bare, "", "--volume", it.model+":/mnt/model/model.gguf:ro", "--env", "SWARM_MODEL=/mnt/model/model.gguf")
	})
	t.Run("faults", func(t *testing.T) {
		variant := it.run(t, tag, "")
		it.faults(t, tag, filepath.Join(llamalib.Dir(t, "amd64"), "libggml-cpu-"+variant+".so"))
	})
}

// checkManifest asserts what Lambda takes: one manifest of one architecture, no
// index, no attestation.
func checkManifest(t *testing.T, reference, goarch string) {
	t.Helper()
	m := dockertest.ReadManifest(t, reference)
	single := map[string]string{
		"application/vnd.docker.distribution.manifest.v2+json": "application/vnd.docker.image.rootfs.diff.tar.gzip",
		"application/vnd.oci.image.manifest.v1+json":           "application/vnd.oci.image.layer.v1.tar+gzip",
	}
	layerType, ok := single[m.MediaType]
	if !ok || len(m.Manifests) != 0 || strings.Contains(string(m.Raw), "attestation") {
		t.Errorf("manifest of type %s with %d manifests: Lambda takes neither an index nor an attestation:\n%s", m.MediaType, len(m.Manifests), m.Raw)
	}
	var size int64
	for _, layer := range m.Layers {
		size += layer.Size
		if layer.MediaType != layerType {
			t.Errorf("layer of type %s, want %s", layer.MediaType, layerType)
		}
	}
	t.Logf("%d layers, %.1f MB compressed", len(m.Layers), float64(size)/1e6)
	var config struct {
		Architecture, OS string
		Config           struct {
			User       string
			Entrypoint []string
			Env        []string
		}
	}
	dockertest.ReadConfig(t, reference, m, &config)
	if config.Architecture != goarch || config.OS != "linux" {
		t.Errorf("made for %s/%s, want linux/%s", config.OS, config.Architecture, goarch)
	}
	if user, _, _ := strings.Cut(config.Config.User, ":"); user == "" || user == "0" || user == "root" {
		t.Errorf("runs as user %q", config.Config.User)
	}
	if diff := cmp.Diff([]string{"/var/task/bootstrap"}, config.Config.Entrypoint); diff != "" {
		t.Error(diff)
	}
}

// sandbox are the limits that Lambda sets.
var sandbox = []string{"--network", "host", "--read-only", "--tmpfs", "/tmp:rw,size=512m", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"}

// run starts the image under the runtime interface emulator, read-only, invokes
// it and returns the variant of llama.cpp that it chose, which must be the
// wanted one unless that is empty.
func (it *imageTest) run(t *testing.T, tag, wantVariant string, more ...string) string {
	t.Helper()
	gatherer := mototest.StartGatherer(t)
	port := freePort(t)
	args := append([]string{"run", "--detach"}, sandbox...)
	args = append(args, "--volume", buildtool.Path(t, "aws-lambda-rie")+":/rie:ro", "--entrypoint", "/rie")
	for _, env := range append(gatherer.Env(), "SWARM_HANDLER=generate", "SWARM_THREADS=1", "SWARM_PARALLEL=2",
		"SWARM_CONTEXT_TOKENS=1024", "SWARM_MAX_TOKENS=4", "SWARM_SYSTEM_PROMPT=Say hello.", "AWS_LAMBDA_FUNCTION_TIMEOUT=300", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE=2048") {
		args = append(args, "--env", env)
	}
	args = append(append(args, more...), tag, "--runtime-interface-emulator-address", "127.0.0.1:"+strconv.Itoa(port),
		"--runtime-api-address", "127.0.0.1:"+strconv.Itoa(freePort(t)), "--log-level", "error", "/var/task/bootstrap")
	id := strings.TrimSpace(it.Docker(args...))
	defer it.Docker("rm", "--force", id)
	said := func() string {
		logs, err := it.Logs(id)
		if err != nil {
			return err.Error()
		}
		return logs
	}

	event := `{"BatchInput":{"run_id":"r1"},"Items":[{"user_id":"u1","name":"Ada"},{"user_id":"u2","name":"Bo"}]}`
	var receipt struct {
		OK          int
		LoadSeconds float64 `json:"load_seconds"`
	}
	start := time.Now()
	body, err := post(t, "http://127.0.0.1:"+strconv.Itoa(port)+"/2015-03-31/functions/function/invocations", event)
	if err != nil {
		t.Fatalf("%v; the container said:\n%s", err, said())
	}
	if err := json.Unmarshal(body, &receipt); err != nil || receipt.OK != 2 {
		t.Fatalf("answer %s; the container said:\n%s", body, said())
	}
	t.Logf("first invocation: %.1f s, model load %.2f s", time.Since(start).Seconds(), receipt.LoadSeconds)
	rows := gatherer.Rows()
	for _, row := range rows {
		if row.Status != briefing.StatusOK || row.RunID != "r1" {
			t.Errorf("row of %s: status %s, %s", row.UserID, row.Status, row.ErrorMessage)
		}
	}
	if len(rows) != 2 {
		t.Errorf("%d rows, want 2", len(rows))
	}
	var variant string
	for line := range strings.Lines(said()) {
		var entry struct{ Variant string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Variant != "" {
			variant = entry.Variant
		}
	}
	if variant == "" || wantVariant != "" && variant != wantVariant {
		t.Errorf("variant %q of llama.cpp, want %q; the container said:\n%s", variant, wantVariant, said())
	}
	return variant
}

// faults breaks the image in the ways that happen, and asserts one line and an
// exit code.
func (it *imageTest) faults(t *testing.T, tag, variant string, more ...string) {
	t.Helper()
	// Of a Docker daemon's mounts, all must be readable by the image's user.
	dir := t.TempDir()
	for _, name := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(dir, filepath.Base(variant))
	breakLibrary(t, variant, broken)
	for _, tc := range []struct {
		name string
		args []string
		code int
		line string
	}{
		{"missing model", []string{"--env", "SWARM_MODEL=/opt/model/nowhere.gguf"}, 1, "model file /opt/model/nowhere.gguf does not exist"},
		{"missing llama.cpp", []string{"--volume", empty + ":/opt/llama:ro"}, 1, "load llama.cpp from /opt/llama"},
		{"missing libffi", []string{"--volume", empty + ":/opt/lib:ro"}, 1, "libffi.so.8"},
		{"illegal instruction", []string{"--volume", broken + ":/opt/llama/" + filepath.Base(broken) + ":ro"}, 132, "illegal instruction: this processor"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := append([]string{"run", "--detach"}, sandbox...)
			// Nobody listens there: the program ends before it asks for work.
			for _, env := range []string{"AWS_LAMBDA_RUNTIME_API=127.0.0.1:9", "AWS_REGION=us-east-1", "SWARM_HANDLER=generate", "SWARM_FIREHOSE_STREAM=briefings", "SWARM_THREADS=1"} {
				args = append(args, "--env", env)
			}
			id := strings.TrimSpace(it.Docker(append(append(append(args, more...), tc.args...), tag)...))
			defer it.Docker("rm", "--force", id)
			code := strings.TrimSpace(it.Docker("wait", id))
			said, err := it.Logs(id)
			if err != nil {
				t.Fatal(err)
			}
			if code != strconv.Itoa(tc.code) || strings.Count(said, "\n") != 1 || !strings.Contains(said, tc.line) {
				t.Errorf("exit code %s, want %d and one line with %q; it said:\n%s", code, tc.code, tc.line, said)
			}
		})
	}
}

// breakLibrary copies a library and puts an instruction that no processor has at
// the start of the function that computes.
func breakLibrary(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, symbol := range symbols {
		if symbol.Name != "ggml_backend_init" || symbol.Value == 0 {
			continue
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD && symbol.Value >= p.Vaddr && symbol.Value < p.Vaddr+p.Filesz {
				// UDF on ARM64, and UD2 on x86-64.
				copy(content[symbol.Value-p.Vaddr+p.Off:], []byte{0x0f, 0x0b, 0, 0})
				if err := os.WriteFile(to, content, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
		}
	}
	t.Fatalf("%s has no function ggml_backend_init", from)
}

func freePort(t *testing.T) int {
	t.Helper()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "http://"), ":")
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// post waits for a server that is starting.
func post(t *testing.T, address, body string) ([]byte, error) {
	t.Helper()
	var lastErr error
	for range 200 {
		response, err := http.Post(address, "application/json", strings.NewReader(body))
		if err != nil {
			lastErr = err
			time.Sleep(50 * time.Millisecond)
			continue
		}
		defer response.Body.Close()
		return io.ReadAll(response.Body)
	}
	return nil, lastErr
}
