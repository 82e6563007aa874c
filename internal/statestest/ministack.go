package statestest

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
)

//go:embed forward.py
var forwardScript string

// StartMiniStack starts an account with MiniStack's interpreter, which ends with
// the test. It takes documents as they are. Of what LocalStack's lacks it reads
// JSON Lines and counts failed children; but it passes over ItemBatcher and
// ResultWriter, so that each child gets one bare item, reads PARQUET as a JSON
// list, and calls every error of a function Runtime.HandlerError. Waits take no
// time. It keeps objects and tables itself, and does not pass on what is
// published.
func StartMiniStack(t testing.TB) *Account {
	t.Helper()
	tools := toolsDir(t)
	a := newAccount(t)
	a.other, a.register = a.interpreter, a.forwarder
	a.start(t, map[string]string{
		"GATEWAY_PORT": a.interpreter.Port(), "MINISTACK_HOST": "127.0.0.1", "MINISTACK_ACCOUNT_ID": accountID,
		"MINISTACK_REGION": mototest.Region, "SFN_WAIT_SCALE": "0", "LAMBDA_EXECUTOR": "local",
	}, filepath.Join(tools, "ministack", "bin", "python"), "-m", "ministack")
	return a
}

// forwarder makes a function in MiniStack that passes on its calls to a.
func (a *Account) forwarder(name string) error {
	var code bytes.Buffer
	archive := zip.NewWriter(&code)
	file, err := archive.Create("index.py")
	if err != nil {
		return err
	}
	target := a.URL + functionsPath + FunctionARN(name) + "/invocations"
	if _, err := file.Write([]byte(strings.ReplaceAll(forwardScript, "@TARGET@", target))); err != nil {
		return err
	}
	if err := archive.Close(); err != nil {
		return err
	}
	if err := a.lambda("", map[string]any{
		"FunctionName": name, "Runtime": "python3.11", "Handler": "index.handler", "Role": "arn:aws:iam::" + accountID + ":role/function",
		"Timeout": 60, "Code": map[string]any{"ZipFile": code.Bytes()},
	}); err != nil {
		return err
	}
	return a.lambda("/"+name+"/aliases", map[string]any{"Name": "live", "FunctionVersion": "$LATEST"})
}

// lambda calls MiniStack's Lambda.
func (a *Account) lambda(path string, in any) error {
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	response, err := http.Post(a.other.String()+strings.TrimSuffix(functionsPath, "/")+path, "application/json", bytes.NewReader(text))
	if err != nil {
		return err
	}
	defer response.Body.Close() // it is read to its end
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return err
}
