// Package mototest gives tests an AWS of their own: the moto server, which
// keeps objects, streams, tables and queues as the services do, over HTTP, and a
// front before it that fails on demand.
package mototest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Region of everything in the server.
const Region = "us-east-1"

// Server is a running moto server.
type Server struct {
	// URL is its endpoint.
	URL string
}

// startTimeout bounds the start, which takes two seconds on an idle machine.
const startTimeout = 90 * time.Second

// Start starts a server, which ends with the test. Nothing is skipped: where
// the server cannot be had the test fails and says what to run.
func Start(t testing.TB) *Server {
	t.Helper()
	python, err := findPython()
	if err != nil {
		t.Fatal(err)
	}
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	cmd := exec.Command(python, "-m", "moto.server", "-H", "127.0.0.1", "-p", fmt.Sprint(port))
	cmd.Env = append(os.Environ(), "PYTHONUNBUFFERED=1", "MOTO_S3_DEFAULT_KEY_BUFFER_SIZE=1048576")
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatalf("start moto: %v", err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Kill() // it may have ended by itself
		<-exited
	})
	s := &Server{URL: fmt.Sprintf("http://127.0.0.1:%d", port)}
	for deadline := time.Now().Add(startTimeout); ; {
		response, err := http.Get(s.URL + "/moto-api/")
		if err == nil {
			_, err = io.Copy(io.Discard, response.Body)
			response.Body.Close()
			if err == nil && response.StatusCode == http.StatusOK {
				return s
			}
		}
		select {
		case err := <-exited:
			exited <- err
			t.Fatalf("moto ended: %v\n%s", err, output.String())
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("moto does not answer: %v", err)
		}
	}
}

// findPython returns the interpreter that has moto: that of the environment's
// SWARM_MOTO_PYTHON, else the one that scripts/moto.sh has made.
func findPython() (string, error) {
	if python := os.Getenv("SWARM_MOTO_PYTHON"); python != "" {
		return python, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		python := filepath.Join(dir, ".cache", "moto", "bin", "python")
		if _, err := os.Stat(python); err == nil {
			return python, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no moto server: run scripts/moto.sh, or set SWARM_MOTO_PYTHON to a Python that has moto[server]")
		}
		dir = filepath.Dir(dir)
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close() // only its number is wanted
	return l.Addr().(*net.TCPAddr).Port, nil
}
