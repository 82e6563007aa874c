// Package firehosetest is a stand-in for Firehose's PutRecordBatch that keeps
// what it is sent. It takes everything and knows no limits: it shows that rows
// arrive, not that Firehose would have taken them.
package firehosetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

// Server is a running stand-in.
type Server struct {
	URL string

	mu     sync.Mutex
	rows   []briefing.Row
	faults []string
}

// Start runs a server that ends with the test. Requests it did not understand
// fail the test.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{}
	server := httptest.NewServer(http.HandlerFunc(s.serve))
	s.URL = server.URL
	t.Cleanup(func() {
		server.Close()
		for _, fault := range s.faults {
			t.Error("Firehose: " + fault)
		}
	})
	return s
}

// Env is the environment that takes a program's calls here.
func (s *Server) Env() []string {
	return []string{"AWS_ENDPOINT_URL=" + s.URL, "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_REGION=us-east-1"}
}

// Rows returns the rows so far, in the order in which they came.
func (s *Server) Rows() []briefing.Row {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]briefing.Row(nil), s.rows...)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fail := func(format string, args ...any) {
		s.faults = append(s.faults, fmt.Sprintf(format, args...))
		http.Error(w, "see the test's output", http.StatusBadRequest)
	}
	if target := r.Header.Get("X-Amz-Target"); !strings.HasSuffix(target, ".PutRecordBatch") {
		fail("%s %s with target %q", r.Method, r.URL, target)
		return
	}
	var batch struct {
		DeliveryStreamName string
		Records            []struct{ Data []byte }
	}
	if err := json.NewDecoder(r.Body).Decode(&batch); err != nil || batch.DeliveryStreamName == "" {
		fail("request for stream %q: %v", batch.DeliveryStreamName, err)
		return
	}
	type taken struct{ RecordId string }
	answer := struct {
		FailedPutCount   int
		RequestResponses []taken
	}{}
	for _, record := range batch.Records {
		var row briefing.Row
		if err := json.Unmarshal(record.Data, &row); err != nil {
			fail("record that is no row: %v", err)
			return
		}
		s.rows = append(s.rows, row)
		answer.RequestResponses = append(answer.RequestResponses, taken{fmt.Sprint(len(s.rows))})
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	_ = json.NewEncoder(w).Encode(answer)
}
