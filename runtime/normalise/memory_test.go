package normalise_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
	"github.com/briefing-swarm/briefing-swarm/runtime/normalise"
	"github.com/briefing-swarm/briefing-swarm/runtime/object"
)

// endless is an S3 that makes its one object up while it is read, and counts
// what is written to it: a file of any size without a place to keep it.
type endless struct {
	records int
	taken   atomic.Int64
}

const endlessRecord = "user-%09d,u%09d@example.com,Name %09d,en,\"some city, north\",rain from nine,a note that is there to be long\n"

func (e *endless) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch q := r.URL.Query(); {
	case r.Method == http.MethodGet:
		head := "user_id,email,name,locale,city,weather,note\n"
		line := len(fmt.Sprintf(endlessRecord, 0, 0, 0))
		w.Header().Set("ETag", `"e"`)
		w.Header().Set("Content-Length", fmt.Sprint(len(head)+e.records*line))
		fmt.Fprint(w, head)
		for i := range e.records {
			fmt.Fprintf(w, endlessRecord, i, i, i)
		}
	case r.Method == http.MethodPost && q.Has("uploads"):
		fmt.Fprint(w, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
	case r.Method == http.MethodPost:
		fmt.Fprint(w, "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>")
	default:
		n, _ := io.Copy(io.Discard, r.Body) // a part that broke off is sent again
		e.taken.Add(n)
		w.Header().Set("ETag", `"p"`)
	}
}

// TestConstantMemory: memory does not grow with the input. The bound is that of
// two parts of an upload, the ids in memory, and the buffers between.
func TestConstantMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("reading a large file takes a while: left out by -short")
	}
	server := &endless{}
	front := httptest.NewServer(server)
	defer front.Close()
	c := mototest.Clients(t, front.URL)
	peaks := map[int]uint64{}
	for _, records := range []int{50_000, 500_000} {
		server.records = records
		h := handler(t, c, &rows{})
		h.MemoryIDs = 50_000
		runtime.GC()
		var peak atomic.Uint64
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				peak.Store(max(peak.Load(), m.HeapInuse))
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
				}
			}
		}()
		start := time.Now()
		result, err := h.Handle(t.Context(), normalise.Event{RunID: "large", Ref: object.Ref{Bucket: "b", Key: "large.csv"}})
		took := time.Since(start)
		close(stop)
		<-stopped
		if err != nil {
			t.Fatal(err)
		}
		if result.Records != int64(records) || result.Rejected != 0 {
			t.Fatalf("%d records, %d rejected", result.Records, result.Rejected)
		}
		peaks[records] = peak.Load()
		t.Logf("%d records, %d MB: %.1f s, %.0f MB/s, peak heap %d MB", records, result.Input.Bytes>>20, took.Seconds(),
			float64(result.Input.Bytes)/took.Seconds()/1e6, peak.Load()>>20)
	}
	const bound = 160 << 20
	if large := peaks[500_000]; large > bound {
		t.Errorf("peak heap %d MB, at most %d MB", large>>20, bound>>20)
	}
}
