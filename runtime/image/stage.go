package image

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Options say what is staged and built. Model is required, the rest has
// defaults.
type Options struct {
	// Root is the folder under which contexts are kept. Default DefaultRoot.
	Root string
	// Architecture is "arm64" or "x86_64", Lambda's names. Default "arm64".
	Architecture string
	// Model is the GGUF file to put into the image.
	Model Model
	// LlamaDir is a folder with the llama.cpp libraries of the target. Where it
	// is empty, the build takes them from npm.
	LlamaDir string
	// Bootstrap is the program, built for the target before. Where it is empty,
	// the build compiles it, for which it needs the network.
	Bootstrap string
	// Bases replace images that the build starts from.
	Bases Bases
}

// Model says where the model comes from. Of File, URL and Mounted, one is set.
type Model struct {
	File string // a local GGUF file
	URL  string // an address that the build fetches it from
	// Mounted says that the image has none: whoever runs it mounts a file system
	// and names the file in SWARM_MODEL.
	Mounted bool
	// SHA256 is the file's checksum in hex, which the build verifies. It is
	// required with URL; without it a File's is computed.
	SHA256 string
	// Name is the file's name in the image, which result rows show. Default:
	// the last element of File or URL.
	Name string
}

// Bases are names of container images, with tag or digest; empty ones have the
// Dockerfile's defaults.
type Bases struct {
	Run     string // runs the program: glibc 2.34 or newer and TLS roots
	Library string // libffi and libstdc++ are taken from it; its glibc is no newer than that of Run
	Go      string // compiles the program
	Node    string // fetches the libraries
}

// DefaultRoot is relative: tools that compare the path of a context see the same
// one on every machine.
const DefaultRoot = ".swarm/image"

// Context is a staged build context.
type Context struct {
	Dir        string            // the folder: Root/contexts/HASH
	Dockerfile string            // its Dockerfile
	Platform   string            // "linux/arm64" or "linux/amd64"
	Args       map[string]string // build arguments
}

// OptionError reports an option that can't be used.
type OptionError struct {
	Field string
	Value any
	Want  string
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("%s is %q, want %s", e.Field, e.Value, e.Want)
}

// ChecksumError says that a model file is not the one that was meant.
type ChecksumError struct {
	Path      string
	Got, Want string // sha256 in hex
}

func (e *ChecksumError) Error() string {
	return fmt.Sprintf("sha256 of %s is %s, want %s: pull the file again, or correct the checksum", e.Path, e.Got, e.Want)
}

// fixedTime is the modification time of every file and folder of a context.
var fixedTime = time.Unix(0, 0)

// Stage makes the build context, or finds it where it was made before, and
// returns it. All faults of the options are in the error.
func Stage(o Options) (*Context, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	c := &Context{Platform: "linux/" + goarch[o.Architecture], Args: o.baseArgs()}
	files, err := sources()
	if err != nil {
		return nil, err
	}
	if err := o.addLlama(files, c.Args); err != nil {
		return nil, err
	}
	if err := o.addBootstrap(files, c.Args); err != nil {
		return nil, err
	}
	if err := o.addModel(files, c.Args); err != nil {
		return nil, err
	}
	c.Dir = filepath.Join(o.Root, "contexts", files.hash()[:32])
	c.Dockerfile = filepath.Join(c.Dir, "Dockerfile")
	if err := files.place(c.Dir); err != nil {
		return nil, fmt.Errorf("stage the build context: %w", err)
	}
	return c, nil
}

// goarch has Go's name, which is also Docker's, by Lambda's.
var goarch = map[string]string{"arm64": "arm64", "x86_64": "amd64"}

// fileName are names that shells, Dockerfiles and logs take as they are.
var fileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,199}$`)

func (o *Options) setDefaults() error {
	if o.Root == "" {
		o.Root = DefaultRoot
	}
	if o.Architecture == "" {
		o.Architecture = "arm64"
	}
	m := &o.Model
	m.SHA256 = strings.ToLower(m.SHA256)
	var errs []error
	bad := func(field string, value any, want string) {
		errs = append(errs, &OptionError{Field: field, Value: value, Want: want})
	}
	if goarch[o.Architecture] == "" {
		bad("architecture", o.Architecture, `"arm64" or "x86_64"`)
	}
	switch {
	case m.Mounted:
		if m.File+m.URL+m.SHA256+m.Name != "" {
			bad("model", m.File+m.URL+m.SHA256+m.Name, "nothing where it is mounted")
		}
	case (m.File == "") == (m.URL == ""):
		bad("model", m.File+m.URL, "either a file or a URL")
	case m.URL != "":
		u, err := url.Parse(m.URL)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
			bad("model URL", m.URL, "an https address")
		} else if m.Name == "" {
			m.Name = path.Base(u.Path)
		}
		if m.SHA256 == "" {
			bad("model sha256", m.SHA256, "the checksum of what the URL gives: a build takes nothing unverified")
		}
	case m.Name == "":
		m.Name = filepath.Base(m.File)
	}
	if raw, err := hex.DecodeString(m.SHA256); m.SHA256 != "" && (err != nil || len(raw) != sha256.Size) {
		bad("model sha256", m.SHA256, "64 hexadecimal digits")
	}
	if m.Name != "" && (!fileName.MatchString(m.Name) || !strings.HasSuffix(m.Name, ".gguf")) {
		bad("model name", m.Name, "a file name ending in .gguf, of letters, digits and . _ + -")
	}
	return errors.Join(errs...)
}

func (o *Options) baseArgs() map[string]string {
	args := map[string]string{}
	for name, value := range map[string]string{
		"RUN_BASE": o.Bases.Run, "LIBRARY_BASE": o.Bases.Library, "GO_BASE": o.Bases.Go, "NODE_BASE": o.Bases.Node,
	} {
		if value != "" {
			args[name] = value
		}
	}
	return args
}

func (o *Options) addLlama(files fileSet, args map[string]string) error {
	if o.LlamaDir == "" {
		return nil
	}
	args["LLAMA_FROM"] = "context"
	entries, err := os.ReadDir(o.LlamaDir)
	if err != nil {
		return fmt.Errorf("read the folder of the llama.cpp libraries: %w", err)
	}
	n := 0
	for _, entry := range entries {
		name := entry.Name()
		// Links to versioned names are made anew in the build.
		if !entry.Type().IsRegular() || !strings.HasPrefix(name, "libllama.") && !strings.HasPrefix(name, "libggml") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(o.LlamaDir, name))
		if err != nil {
			return fmt.Errorf("read a llama.cpp library: %w", err)
		}
		if err := checkELF(content, goarch[o.Architecture]); err != nil {
			return fmt.Errorf("llama.cpp library %s: %w", name, err)
		}
		files.add("llama/"+name, content, 0o644)
		n++
	}
	if n == 0 {
		return &OptionError{Field: "llama folder", Value: o.LlamaDir, Want: "a folder with libllama and libggml libraries"}
	}
	return nil
}

func (o *Options) addBootstrap(files fileSet, args map[string]string) error {
	if o.Bootstrap == "" {
		return nil
	}
	args["BOOTSTRAP_FROM"] = "context"
	content, err := os.ReadFile(o.Bootstrap)
	if err != nil {
		return fmt.Errorf("read the bootstrap program: %w", err)
	}
	if err := checkELF(content, goarch[o.Architecture]); err != nil {
		return fmt.Errorf("bootstrap program %s: %w", o.Bootstrap, err)
	}
	files.add("bootstrap", content, 0o755)
	return nil
}

func (o *Options) addModel(files fileSet, args map[string]string) error {
	if o.Model.Mounted {
		args["MODEL_FROM"] = "none"
		return nil
	}
	args["MODEL_FILE"] = o.Model.Name
	if o.Model.URL != "" {
		args["MODEL_FROM"], args["MODEL_URL"], args["MODEL_SHA256"] = "url", o.Model.URL, o.Model.SHA256
		return nil
	}
	stored, sum, err := keepModel(o.Root, o.Model.File, o.Model.SHA256)
	if err != nil {
		return err
	}
	args["MODEL_FROM"], args["MODEL_SHA256"] = "context", sum
	files["model/"+o.Model.Name] = file{linkTo: stored, sum: sum, mode: 0o444}
	return nil
}

// keepModel puts a copy of the model under Root, named after its checksum, and
// returns its path. Contexts hold hard links to it: a model of 2 GB is there
// once, however often the sources change.
func keepModel(root, from, want string) (stored, sum string, err error) {
	info, err := os.Stat(from)
	if err != nil {
		return "", "", fmt.Errorf("model: %w", err)
	}
	if !info.Mode().IsRegular() {
		return "", "", &OptionError{Field: "model file", Value: from, Want: "a file"}
	}
	in, err := os.Open(from)
	if err != nil {
		return "", "", fmt.Errorf("model: %w", err)
	}
	defer in.Close()
	dir := filepath.Join(root, "models")
	if sum = want; sum == "" {
		hash := sha256.New()
		if _, err := io.Copy(hash, in); err != nil {
			return "", "", fmt.Errorf("read model %s: %w", from, err)
		}
		if _, err := in.Seek(0, io.SeekStart); err != nil {
			return "", "", fmt.Errorf("read model %s: %w", from, err)
		}
		sum = hex.EncodeToString(hash.Sum(nil))
	}
	stored = filepath.Join(dir, sum+".gguf")
	if kept, err := os.Stat(stored); err == nil && kept.Size() == info.Size() {
		return stored, sum, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", fmt.Errorf("keep the model: %w", err)
	}
	out, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return "", "", fmt.Errorf("keep the model: %w", err)
	}
	defer os.Remove(out.Name())
	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, hash), in)
	err = errors.Join(err, out.Chmod(0o444), out.Close())
	if err != nil {
		return "", "", fmt.Errorf("keep a copy of the model in %s: %w", dir, err)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != sum {
		return "", "", &ChecksumError{Path: from, Got: got, Want: sum}
	}
	err = errors.Join(os.Chtimes(out.Name(), fixedTime, fixedTime), os.Rename(out.Name(), stored))
	if err != nil {
		return "", "", fmt.Errorf("keep the model: %w", err)
	}
	return stored, sum, nil
}

// file is one file of a context: its content, or a file of the same file system
// to link to.
type file struct {
	content []byte
	linkTo  string
	sum     string // sha256 in hex
	mode    fs.FileMode
}

// fileSet holds the files of a context by their slashed path.
type fileSet map[string]file

func (s fileSet) add(name string, content []byte, mode fs.FileMode) {
	sum := sha256.Sum256(content)
	s[name] = file{content: content, sum: hex.EncodeToString(sum[:]), mode: mode}
}

// hash depends on every path, mode and content.
func (s fileSet) hash() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(h, "%s %o %s\n", name, s[name].mode, s[name].sum)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// place makes dir hold exactly the files. It is made aside and renamed, so that
// nobody sees half of it; one that was changed by somebody is made again.
func (s fileSet) place(dir string) error {
	if s.whole(dir) {
		return nil
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(parent, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	for name, f := range s {
		if err := f.write(filepath.Join(fresh, filepath.FromSlash(name))); err != nil {
			return err
		}
	}
	if err := fixFolders(fresh); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Rename(fresh, dir); err != nil && !s.whole(dir) { // another process was first
		return err
	}
	return nil
}

func (f file) write(name string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if f.linkTo != "" {
		if err := os.Link(f.linkTo, name); err == nil {
			return nil
		}
		// A file system without hard links gets a copy.
		in, err := os.Open(f.linkTo)
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := os.Create(name)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, in)
		return errors.Join(err, out.Close(), f.fix(name))
	}
	return errors.Join(os.WriteFile(name, f.content, f.mode), f.fix(name))
}

// fix gives the file its mode, whatever the umask, and its time.
func (f file) fix(name string) error {
	return errors.Join(os.Chmod(name, f.mode), os.Chtimes(name, fixedTime, fixedTime))
}

// fixFolders does the same with root and all folders in it.
func fixFolders(root string) error {
	return filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		return errors.Join(os.Chmod(name, 0o755), os.Chtimes(name, fixedTime, fixedTime))
	})
}

// whole tells whether dir holds exactly the files, with their modes and times.
// Of a linked file the size stands for the content.
func (s fileSet) whole(dir string) bool {
	seen := 0
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if !info.ModTime().Equal(fixedTime) {
			return errChanged
		}
		if entry.IsDir() {
			if info.Mode().Perm() != 0o755 {
				return errChanged
			}
			return nil
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		f, ok := s[filepath.ToSlash(rel)]
		if !ok || info.Mode() != f.mode {
			return errChanged
		}
		seen++
		if f.linkTo != "" {
			kept, err := os.Stat(f.linkTo)
			if err != nil || kept.Size() != info.Size() {
				return errChanged
			}
			return nil
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if sha := sha256.Sum256(content); hex.EncodeToString(sha[:]) != f.sum {
			return errChanged
		}
		return nil
	})
	return err == nil && seen == len(s)
}

var errChanged = errors.New("changed")
