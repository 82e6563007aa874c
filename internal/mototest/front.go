package mototest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Fault is one way for a call to go wrong.
type Fault int

// The faults.
const (
	None        Fault = iota
	Throttle          // refused for its rate, as the service says it
	ServerError       // HTTP 500
	Slow              // answered after SlowBy
	CutBefore         // the connection ends, nothing was done
	CutAfter          // it was done, but the connection ends before the answer
	CutBody           // the connection ends in the middle of the answer
	Partial           // of PutRecordBatch and SendBulkEmail: about half of the entries are refused
	Denied            // HTTP 403, which stays
)

// String returns the fault's name.
func (f Fault) String() string {
	return [...]string{"none", "throttle", "server error", "slow", "cut before", "cut after", "cut body", "partial", "denied"}[f]
}

// SlowBy is how long a Slow call takes.
const SlowBy = 300 * time.Millisecond

// Call is one HTTP request to a service.
type Call struct {
	Service   string // s3, firehose, dynamodb, sqs, secretsmanager, ses
	Operation string // PutRecordBatch, or for S3 the method and the key
	N         int    // calls of this service and operation before it
}

// Front is an endpoint before a Server that fails on demand.
type Front struct {
	URL string

	to     string
	client *http.Client
	mu     sync.Mutex
	rng    *rand.Rand
	rule   func(Call) Fault
	counts map[string]int
	faults map[Fault]int
	ses    ses
}

// NewFront returns a front that fails nothing yet. It ends with the test.
func NewFront(t testing.TB, s *Server) *Front {
	f := &Front{to: s.URL, client: &http.Client{}, rng: rand.New(rand.NewPCG(1, 1)), counts: map[string]int{}, faults: map[Fault]int{}}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.URL = server.URL
	return f
}

// Fail makes rule decide about each call from now on; nil fails none. The counts
// of calls start again.
func (f *Front) Fail(rule func(Call) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rule, f.counts, f.faults = rule, map[string]int{}, map[Fault]int{}
}

// FailAtRandom makes that share of all calls fail, each kind of fault as often,
// the same way for the same seed and order of calls.
func (f *Front) FailAtRandom(seed uint64, share float64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	f.Fail(func(c Call) Fault {
		if rng.Float64() >= share {
			return None
		}
		kinds := []Fault{Throttle, ServerError, Slow, CutBefore, CutAfter, CutBody}
		if c.Operation == "PutRecordBatch" || c.Operation == "SendBulkEmail" {
			kinds = append(kinds, Partial, Partial)
		}
		return kinds[rng.IntN(len(kinds))]
	})
}

// Faults returns how many calls failed, by kind, since the last Fail.
func (f *Front) Faults() map[Fault]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	faults := map[Fault]int{}
	for k, n := range f.faults {
		faults[k] = n
	}
	return faults
}

// Calls returns how many calls of an operation there were since the last Fail.
func (f *Front) Calls(operation string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[operation]
}

func (f *Front) decide(c Call) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := c.Operation
	if c.Service == "s3" {
		key, _, _ = strings.Cut(c.Operation, " ")
	}
	c.N = f.counts[key]
	f.counts[key]++
	if f.rule == nil {
		return None
	}
	fault := f.rule(c)
	if fault != None {
		f.faults[fault]++
	}
	return fault
}

// callOf tells what a request asks for. The services but S3 name it in a
// header.
func callOf(r *http.Request) Call {
	target := r.Header.Get("X-Amz-Target")
	if strings.HasPrefix(r.URL.Path, sesPath) {
		return Call{Service: "ses", Operation: sesOperation(r)}
	}
	if target == "" {
		return Call{Service: "s3", Operation: r.Method + " " + r.URL.Path}
	}
	prefix, operation, _ := strings.Cut(target, ".")
	c := Call{Operation: operation}
	for _, service := range []string{"Firehose", "DynamoDB", "SQS", "secretsmanager"} {
		if strings.Contains(prefix, service) {
			c.Service = strings.ToLower(service)
		}
	}
	return c
}

// ServeHTTP implements http.Handler.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the caller has gone
	}
	c := callOf(r)
	switch fault := f.decide(c); fault {
	case Throttle:
		throttle(w, c)
	case ServerError:
		refuse(w, c, http.StatusInternalServerError, "InternalFailure")
	case Denied:
		refuse(w, c, http.StatusForbidden, "AccessDeniedException")
	case CutBefore:
		panic(http.ErrAbortHandler)
	case Partial:
		if c.Service == "ses" {
			status, header, answer := f.answerSES(r, c, body, true)
			copyHeader(w, header, len(answer))
			w.WriteHeader(status)
			w.Write(answer)
			return
		}
		f.partial(w, r, body)
	default:
		if fault == Slow {
			time.Sleep(SlowBy)
		}
		answerTo := f.forward
		if c.Service == "ses" {
			answerTo = func(r *http.Request, body []byte) (int, http.Header, []byte) { return f.answerSES(r, c, body, false) }
		}
		status, header, answer := answerTo(r, body)
		if fault == CutAfter {
			panic(http.ErrAbortHandler)
		}
		copyHeader(w, header, len(answer))
		w.WriteHeader(status)
		if fault == CutBody && len(answer) > 0 {
			w.Write(answer[:len(answer)/2])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		if r.Method != http.MethodHead {
			w.Write(answer)
		}
	}
}

func copyHeader(w http.ResponseWriter, header http.Header, length int) {
	for name, values := range header {
		w.Header()[name] = values
	}
	if w.Header().Get("Content-Length") == "" {
		w.Header().Set("Content-Length", strconv.Itoa(length))
	}
}

// forward lets the server answer.
func (f *Front) forward(r *http.Request, body []byte) (int, http.Header, []byte) {
	out, err := http.NewRequestWithContext(r.Context(), r.Method, f.to+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	out.Header, out.Host = r.Header.Clone(), r.Host
	response, err := f.client.Do(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer response.Body.Close() // it is read to its end
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return response.StatusCode, response.Header, answer
}

func throttle(w http.ResponseWriter, c Call) {
	switch c.Service {
	case "s3":
		refuse(w, c, http.StatusServiceUnavailable, "SlowDown")
	case "firehose":
		refuse(w, c, http.StatusInternalServerError, "ServiceUnavailableException")
	case "dynamodb":
		refuse(w, c, http.StatusBadRequest, "ProvisionedThroughputExceededException")
	case "ses":
		refuse(w, c, http.StatusTooManyRequests, "TooManyRequestsException")
	default:
		refuse(w, c, http.StatusBadRequest, "ThrottlingException")
	}
}

// refuse answers with an error in the service's own form.
func refuse(w http.ResponseWriter, c Call, status int, code string) {
	if c.Service == "s3" {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		fmt.Fprintf(w, "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>on demand</Message></Error>", code)
		return
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	w.Header().Set("X-Amzn-Errortype", code)
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"__type":%q,"message":"on demand"}`, code)
}

// partial refuses about half of the records of a PutRecordBatch and forwards
// the others.
func (f *Front) partial(w http.ResponseWriter, r *http.Request, body []byte) {
	type entry struct {
		RecordId     string `json:",omitempty"`
		ErrorCode    string `json:",omitempty"`
		ErrorMessage string `json:",omitempty"`
	}
	var request struct {
		DeliveryStreamName string
		Records            []struct{ Data string }
	}
	if err := json.Unmarshal(body, &request); err != nil {
		panic(http.ErrAbortHandler)
	}
	entries := make([]entry, len(request.Records))
	taken := request.Records[:0:0]
	failed := 0
	for i, record := range request.Records {
		if _, err := base64.StdEncoding.DecodeString(record.Data); err != nil {
			panic(http.ErrAbortHandler)
		}
		f.mu.Lock()
		refused := f.rng.IntN(2) == 0
		f.mu.Unlock()
		if refused {
			entries[i] = entry{ErrorCode: "ServiceUnavailableException", ErrorMessage: "Slow down."}
			failed++
			continue
		}
		entries[i].RecordId = fmt.Sprintf("record-%d", i)
		taken = append(taken, record)
	}
	if len(taken) > 0 {
		request.Records = taken
		less, err := json.Marshal(request)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Header.Set("Content-Length", strconv.Itoa(len(less)))
		if status, header, answer := f.forward(r, less); status != http.StatusOK {
			copyHeader(w, header, len(answer))
			w.WriteHeader(status)
			w.Write(answer)
			return
		}
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	if err := json.NewEncoder(w).Encode(map[string]any{"FailedPutCount": failed, "Encrypted": false, "RequestResponses": entries}); err != nil {
		panic(http.ErrAbortHandler)
	}
}
