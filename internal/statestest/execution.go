package statestest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Execution is how an execution ended.
type Execution struct {
	Name   string
	Status string // SUCCEEDED, FAILED, TIMED_OUT
	Output map[string]any
	Error  string
	Cause  string
	// States are the names of those that were entered, in order, without those
	// of a map's children.
	States []string
}

// Visited says whether a state was entered.
func (e Execution) Visited(state string) bool {
	return strings.Contains("\n"+strings.Join(e.States, "\n")+"\n", "\n"+state+"\n")
}

// Machine makes a state machine and returns its ARN.
func (a *Account) Machine(t testing.TB, name, document string) string {
	t.Helper()
	if a.runnable != nil {
		var err error
		if document, err = a.runnable(document); err != nil {
			t.Fatalf("make machine %s runnable: %v", name, err)
		}
	}
	var out struct{ StateMachineArn string }
	if err := a.call("CreateStateMachine", map[string]any{
		"name": name, "definition": document, "roleArn": "arn:aws:iam::" + accountID + ":role/states", "type": "STANDARD",
	}, &out); err != nil {
		t.Fatal(err)
	}
	return out.StateMachineArn
}

// Run runs an execution to its end.
func (a *Account) Run(t testing.TB, machine, name string, input any) Execution {
	t.Helper()
	text, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	var started struct{ ExecutionArn string }
	if err := a.call("StartExecution", map[string]any{"stateMachineArn": machine, "name": name, "input": string(text)}, &started); err != nil {
		t.Fatal(err)
	}
	for {
		var out struct{ Status, Output, Error, Cause string }
		if err := a.call("DescribeExecution", map[string]any{"executionArn": started.ExecutionArn}, &out); err != nil {
			t.Fatal(err)
		}
		if out.Status == "RUNNING" {
			select {
			case <-t.Context().Done():
				t.Fatalf("execution %s: %v", name, t.Context().Err())
			case <-time.After(200 * time.Millisecond):
			}
			continue
		}
		e := Execution{Name: name, Status: out.Status, Error: out.Error, Cause: out.Cause, States: a.states(t, started.ExecutionArn)}
		if out.Output != "" {
			if err := json.Unmarshal([]byte(out.Output), &e.Output); err != nil {
				t.Fatalf("execution %s: output %s: %v", name, out.Output, err)
			}
		}
		return e
	}
}

func (a *Account) states(t testing.TB, execution string) []string {
	t.Helper()
	var names []string
	for token := ""; ; {
		var out struct {
			Events    []struct{ StateEnteredEventDetails *struct{ Name string } }
			NextToken string
		}
		in := map[string]any{"executionArn": execution, "maxResults": 1000}
		if token != "" {
			in["nextToken"] = token
		}
		if err := a.call("GetExecutionHistory", in, &out); err != nil {
			t.Fatal(err)
		}
		for _, event := range out.Events {
			if event.StateEnteredEventDetails != nil {
				names = append(names, event.StateEnteredEventDetails.Name)
			}
		}
		if token = out.NextToken; token == "" {
			return names
		}
	}
}

// call calls Step Functions.
func (a *Account) call(operation string, in, out any) error {
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(http.MethodPost, a.URL, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-amz-json-1.0")
	request.Header.Set("X-Amz-Target", "AWSStepFunctions."+operation)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() // it is read to its end
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", operation, response.Status, body)
	}
	return json.Unmarshal(body, out)
}
