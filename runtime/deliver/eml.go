package deliver

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// EML is a Sender that writes each mail as a file which mail programs open. A
// user has one file per folder, whatever the run: sending again replaces it, so
// EML needs no Ledger.
type EML struct {
	dir     string
	sharded bool
}

// tempPrefix begins the name of a mail that is still being written.
const tempPrefix = ".eml-"

// NewEML returns a sender into the folder, which it makes if need be, and
// removes what a process that was killed left unfinished there. Sharded
// spreads the files over 256 folders below it; file managers and shells want
// that from some ten thousand files on.
func NewEML(dir string, sharded bool) (*EML, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make mail folder: %w", err)
	}
	for _, pattern := range []string{tempPrefix + "*", filepath.Join("??", tempPrefix+"*")} {
		unfinished, err := fs.Glob(os.DirFS(dir), filepath.ToSlash(pattern))
		if err != nil {
			return nil, fmt.Errorf("look for unfinished mails: %w", err)
		}
		for _, name := range unfinished {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return nil, fmt.Errorf("remove unfinished mail: %w", err)
			}
		}
	}
	return &EML{dir: dir, sharded: sharded}, nil
}

// Name returns the file's path below the folder for a user: a hash, because an
// id can hold anything, an address included.
func (e *EML) Name(userID string) string {
	sum := sha256.Sum256([]byte("eml\x00" + userID))
	name := hex.EncodeToString(sum[:16]) + ".eml"
	if e.sharded {
		return filepath.Join(name[:2], name)
	}
	return name
}

// Send writes the file and returns its name. A file is there whole or not at
// all; one that cannot be written stops the run, since the next one would fare
// no better.
func (e *EML) Send(_ context.Context, message Message) (string, error) {
	name := e.Name(message.UserID)
	path := filepath.Join(e.dir, name)
	failed := func(err error) (string, error) {
		return "", &SendError{Kind: Fatal, Code: CodeWrite, Err: err}
	}
	if e.sharded {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return failed(err)
		}
	}
	file, err := os.CreateTemp(filepath.Dir(path), tempPrefix+"*")
	if err != nil {
		return failed(err)
	}
	defer os.Remove(file.Name()) // gone already when all went well
	buffered := bufio.NewWriterSize(file, 16<<10)
	if _, err := message.WriteTo(buffered); err != nil {
		file.Close()
		return "", &SendError{Kind: Permanent, Code: CodeMessage, Err: err}
	}
	if err := buffered.Flush(); err != nil {
		file.Close()
		return failed(err)
	}
	if err := file.Chmod(0o644); err != nil {
		file.Close()
		return failed(err)
	}
	if err := file.Close(); err != nil {
		return failed(err)
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return failed(err)
	}
	return name, nil
}
