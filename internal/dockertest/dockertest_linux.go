package dockertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startTimeout bounds the start of the daemon, which takes 2 to 6 seconds.
const startTimeout = 60 * time.Second

// Daemon is a running Docker daemon.
type Daemon struct {
	t      testing.TB
	client string // path of the docker command
	host   string // for DOCKER_HOST
	dir    string
}

// Missing returns why no daemon can be started here, or "".
func Missing() string {
	if os.Getuid() != 0 {
		return "a Docker daemon needs root"
	}
	for _, program := range []string{"dockerd", "containerd", "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			return program + " is missing: apt-get install docker.io runc"
		}
	}
	if _, err := findClient(); err != nil {
		return err.Error()
	}
	if filesystems, err := os.ReadFile("/proc/filesystems"); err == nil && !bytes.Contains(filesystems, []byte("\toverlay\n")) {
		return "the kernel has no overlay file system"
	}
	return ""
}

// findClient returns a docker command that can build with BuildKit: an old one,
// which speaks it itself, or one that has buildx.
func findClient() (string, error) {
	var dirs []string
	dirs = append(dirs, filepath.SplitList(os.Getenv("PATH"))...)
	dirs = append(dirs, "/usr/bin")
	for _, dir := range dirs {
		client := filepath.Join(dir, "docker")
		out, err := exec.Command(client, "--version").Output()
		if err != nil {
			continue
		}
		version, _, _ := strings.Cut(strings.TrimPrefix(string(out), "Docker version "), ".")
		if major, err := strconv.Atoi(version); err == nil && major < 23 {
			return client, nil
		}
		if exec.Command(client, "buildx", "version").Run() == nil {
			return client, nil
		}
	}
	return "", errors.New("no docker command that builds with BuildKit: apt-get install docker.io")
}

// Start runs a daemon that ends with the test, with all it holds, and skips the
// test where it can't.
func Start(t testing.TB) *Daemon {
	t.Helper()
	if why := Missing(); why != "" {
		t.Skip(why)
	}
	client, err := findClient()
	if err != nil {
		t.Fatal(err)
	}
	// A socket's path has to be short.
	dir, err := os.MkdirTemp("", "dockertest-")
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{t: t, client: client, dir: dir, host: "unix://" + dir + "/docker.sock"}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("dockerd", "--host", d.host, "--data-root", dir+"/data", "--exec-root", dir+"/exec", "--pidfile", dir+"/pid",
		"--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver=overlay2")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start dockerd: %v", err)
	}
	dead := make(chan struct{})
	go func() { _ = cmd.Wait(); close(dead) }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-dead:
		case <-time.After(30 * time.Second):
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-dead
		}
		log.Close()
		// A daemon leaves the network namespace of host containers mounted.
		if err := unmountBelow(dir); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the daemon's data: %v", err)
		}
	})
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		select {
		case <-dead:
			said, _ := os.ReadFile(log.Name())
			t.Fatalf("dockerd ended; it said:\n%s", said)
		default:
		}
		if _, err := d.try(t.Context(), nil, "version"); err == nil {
			return d
		}
	}
	said, _ := os.ReadFile(log.Name())
	t.Fatalf("dockerd was not ready after %v; it said:\n%s", startTimeout, said)
	return nil
}

// unmountBelow unmounts what is mounted inside dir, the last first.
func unmountBelow(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(mounts)), "\n")
	for _, line := range slices.Backward(lines) {
		f := strings.Fields(line)
		if len(f) < 2 || !strings.HasPrefix(f[1], dir+"/") {
			continue
		}
		if err := syscall.Unmount(f[1], syscall.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", f[1], err)
		}
	}
	return nil
}

// Docker runs a docker command and returns what it wrote to stdout. The test
// ends when it fails.
func (d *Daemon) Docker(args ...string) string {
	d.t.Helper()
	out, err := d.try(d.t.Context(), nil, args...)
	if err != nil {
		d.t.Fatalf("docker %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// TryDocker is Docker for commands that may fail; the error holds stderr.
func (d *Daemon) TryDocker(args ...string) (stdout string, err error) {
	return d.try(d.t.Context(), nil, args...)
}

func (d *Daemon) try(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, d.client, args...)
	// A configuration of its own: nobody's registry passwords are read.
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+d.host, "DOCKER_CONFIG="+d.dir, "DOCKER_BUILDKIT=1", "BUILDKIT_PROGRESS=plain")
	cmd.Stdin = stdin
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// Logs returns what a container has written, to stdout and stderr.
func (d *Daemon) Logs(id string) (string, error) {
	cmd := exec.CommandContext(d.t.Context(), d.client, "logs", id)
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+d.host, "DOCKER_CONFIG="+d.dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Base makes an image of one layer out of a tar file under each of the names. It
// is built from scratch, not imported: docker import of version 20.10 ignores
// the platform. PATH is that of the images of Go and Node.js.
func (d *Daemon) Base(tar, platform string, names ...string) {
	d.t.Helper()
	dir := d.t.TempDir()
	if err := os.Link(tar, filepath.Join(dir, "root.tar")); err != nil {
		// Another file system.
		content, err := os.Open(tar)
		if err != nil {
			d.t.Fatal(err)
		}
		defer content.Close()
		out, err := os.Create(filepath.Join(dir, "root.tar"))
		if err != nil {
			d.t.Fatal(err)
		}
		if _, err := io.Copy(out, content); err != nil {
			d.t.Fatal(err)
		}
		out.Close()
	}
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM scratch\nADD root.tar /\nENV PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"), 0o644); err != nil {
		d.t.Fatal(err)
	}
	args := []string{"build", "--quiet", "--platform", platform}
	for _, name := range names {
		args = append(args, "--tag", name)
	}
	d.Docker(append(args, dir)...)
}

// Registry runs a registry on the loopback address and returns its host:port.
func Registry(t testing.TB) string {
	t.Helper()
	program, err := exec.LookPath("docker-registry")
	if err != nil {
		t.Skip("docker-registry is missing: apt-get install docker-registry")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	dir := t.TempDir()
	config := fmt.Sprintf("version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\nstorage: {filesystem: {rootdirectory: %q}}\nhttp: {addr: %q}\n", dir, address)
	name := filepath.Join(dir, "config.yml")
	if err := os.WriteFile(name, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd := exec.Command(program, "serve", name)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dead := make(chan struct{})
	go func() { _ = cmd.Wait(); close(dead) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-dead })
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		select {
		case <-dead:
			t.Fatalf("docker-registry ended; it said:\n%s", said.String())
		default:
		}
		if response, err := http.Get("http://" + address + "/v2/"); err == nil {
			response.Body.Close()
			return address
		}
	}
	t.Fatal("docker-registry was not ready in time")
	return ""
}

// Manifest is what a registry holds under a tag: the raw document, and what
// Lambda looks at.
type Manifest struct {
	Raw       []byte
	MediaType string
	Manifests []json.RawMessage // of an index, which Lambda refuses
	Config    Descriptor
	Layers    []Descriptor
	Digest    string
}

// Descriptor names a blob.
type Descriptor struct {
	MediaType string
	Digest    string
	Size      int64
}

// manifestTypes are asked for: those that Lambda takes, and the indexes that it
// does not.
const manifestTypes = "application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json, " +
	"application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.oci.image.index.v1+json"

// ReadManifest returns what the registry has under the reference, which is
// host:port/name:tag.
func ReadManifest(t testing.TB, reference string) Manifest {
	t.Helper()
	host, rest, _ := strings.Cut(reference, "/")
	name, tag, _ := strings.Cut(rest, ":")
	header, body := get(t, "http://"+host+"/v2/"+name+"/manifests/"+tag, manifestTypes)
	m := Manifest{Raw: body, Digest: header.Get("Docker-Content-Digest")}
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatalf("manifest of %s: %v", reference, err)
	}
	if m.MediaType == "" {
		m.MediaType = header.Get("Content-Type")
	}
	return m
}

// ReadConfig returns the configuration document of an image in the registry.
func ReadConfig(t testing.TB, reference string, m Manifest, into any) {
	t.Helper()
	host, rest, _ := strings.Cut(reference, "/")
	name, _, _ := strings.Cut(rest, ":")
	_, body := get(t, "http://"+host+"/v2/"+name+"/blobs/"+m.Config.Digest, m.Config.MediaType)
	if err := json.Unmarshal(body, into); err != nil {
		t.Fatalf("configuration of %s: %v", reference, err)
	}
}

func get(t testing.TB, address, accept string) (http.Header, []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", accept)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s, %v: %s", address, response.Status, err, body)
	}
	return response.Header, body
}
