package model

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// CacheDir returns the folder this program keeps fetched and generated files
// in: the value of SWARM_CACHE, or "briefing-swarm" in the user's cache
// folder. It need not exist yet.
func CacheDir() (string, error) {
	if dir := os.Getenv("SWARM_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w; set SWARM_CACHE", err)
	}
	return filepath.Join(dir, "briefing-swarm"), nil
}

// ModelsDir returns the folder under CacheDir where Pull keeps models.
func ModelsDir() (string, error) { return underCache("models") }

// ShapesDir returns the folder under CacheDir for files of random weights.
func ShapesDir() (string, error) { return underCache("shapes") }

func underCache(name string) (string, error) {
	dir, err := CacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, name), nil
}

// NotPulledError is returned by Resolve for a model of the catalogue that is
// not in the cache.
type NotPulledError struct {
	Entry Entry
	Path  string // where it would be
}

func (e *NotPulledError) Error() string {
	flag := ""
	if e.Entry.SHA256 == "" {
		flag = " --record-sha256"
	}
	return fmt.Sprintf("model %s is not in the cache (%s); fetch it with 'swarm model pull %s%s' (%s), or give the path of a .gguf file", e.Entry.Name, e.Path, e.Entry.Name, flag, FormatBytes(e.Entry.SizeBytes))
}

// Resolve finds the file behind what a user gave as the model: a name of the
// catalogue, the name of a file in the cache, or a path. The entry is nil for
// a file that is not the catalogue's. It does not read the file: Open does.
//
// A name of the catalogue that was not fetched gives a *NotPulledError, any
// other name an *UnknownNameError, a path without a file an error that wraps
// fs.ErrNotExist.
func Resolve(nameOrPath string) (path string, entry *Entry, err error) {
	if nameOrPath == "" {
		return "", nil, errors.New("no model given: name one of 'swarm model list', or the path of a .gguf file")
	}
	dir, err := ModelsDir()
	if err != nil {
		return "", nil, err
	}
	e, unknown := Lookup(nameOrPath)
	if unknown == nil {
		path := filepath.Join(dir, e.File)
		if !isFile(path) {
			return "", nil, &NotPulledError{Entry: e, Path: path}
		}
		return path, &e, nil
	}
	if _, err := os.Stat(nameOrPath); err == nil {
		return nameOrPath, nil, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", nil, fmt.Errorf("open model: %w", err)
	}
	bare := !strings.ContainsAny(nameOrPath, `/\`)
	if bare && isFile(filepath.Join(dir, nameOrPath)) {
		return filepath.Join(dir, nameOrPath), nil, nil
	}
	if bare && !strings.HasSuffix(strings.ToLower(nameOrPath), ".gguf") {
		return "", nil, unknown
	}
	return "", nil, fmt.Errorf("model file %s: %w; give the path of a .gguf file, or a name of 'swarm model list'", nameOrPath, fs.ErrNotExist)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// FormatBytes writes a size for people, in decimal units as file sizes and
// downloads are given: "2.02 GB", "98.4 MB".
func FormatBytes(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	default:
		return fmt.Sprintf("%d bytes", n)
	}
}
