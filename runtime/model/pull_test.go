package model

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// fileServer serves one file as Hugging Face does, with ranges and an ETag,
// and misbehaves on request.
type fileServer struct {
	*httptest.Server
	mu       sync.Mutex
	content  []byte
	etag     string
	cutAt    []int // nth request: close the connection after this many bytes of it; 0 means never
	noRange  bool
	status   []int // nth request: this status instead; 0 means serve
	requests []*http.Request
	stall    time.Duration
}

func serve(t *testing.T, content []byte) *fileServer {
	t.Helper()
	s := &fileServer{content: content, etag: `"v1"`}
	s.Server = httptest.NewServer(http.HandlerFunc(s.handle))
	t.Cleanup(s.Close)
	return s
}

func (s *fileServer) handle(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	n := len(s.requests)
	s.requests = append(s.requests, r)
	content, etag, noRange, stall := s.content, s.etag, s.noRange, s.stall
	cut, status := 0, 0
	if n < len(s.cutAt) {
		cut = s.cutAt[n]
	}
	if n < len(s.status) {
		status = s.status[n]
	}
	s.mu.Unlock()
	if status != 0 {
		http.Error(w, "<html>no</html>", status)
		return
	}
	if etag != "" {
		w.Header().Set("ETag", etag)
	}
	if noRange {
		r.Header.Del("Range")
	}
	if cut > 0 {
		w = &cutWriter{ResponseWriter: w, left: cut, stall: stall}
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// cutWriter drops the connection after some bytes of the body, or stops
// sending for a while.
type cutWriter struct {
	http.ResponseWriter
	left  int
	stall time.Duration
}

func (c *cutWriter) Write(b []byte) (int, error) {
	if len(b) >= c.left {
		c.ResponseWriter.Write(b[:c.left])
		c.ResponseWriter.(http.Flusher).Flush()
		if c.stall > 0 {
			time.Sleep(c.stall)
		}
		panic(http.ErrAbortHandler)
	}
	c.left -= len(b)
	return c.ResponseWriter.Write(b)
}

// ranges lists the Range headers of all requests.
func (s *fileServer) ranges() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, r := range s.requests {
		all = append(all, r.Header.Get("Range"))
	}
	return all
}

func (s *fileServer) address() string { return s.URL + "/some/repo/resolve/main/tiny.gguf" }

func quick(o PullOptions) PullOptions {
	o.retryWait = time.Millisecond
	return o
}

func sumOf(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

// filesIn lists what is in a folder.
func filesIn(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func TestPull(t *testing.T) {
	t.Parallel()
	content := tinyFile(t, RecipeQ40, 1)
	s := serve(t, content)
	dest := filepath.Join(t.TempDir(), "models", "tiny.gguf")
	var last int64
	o := quick(PullOptions{SHA256: strings.ToUpper(sumOf(content)), Progress: func(done, total int64) {
		if done < last || total != int64(len(content)) {
			t.Errorf("progress %d of %d after %d", done, total, last)
		}
		last = done
	}})
	p, err := Pull(context.Background(), s.address(), dest, o)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(dest); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the file differs (%v)", err)
	}
	if !p.Verified || p.Already || p.SHA256 != sumOf(content) || p.Header.Layers != 3 || last != int64(len(content)) {
		t.Errorf("pulled %+v, progress %d", p, last)
	}
	if got := filesIn(t, filepath.Dir(dest)); got != "tiny.gguf tiny.gguf.sha256" {
		t.Errorf("files left: %s", got)
	}
	again, err := Pull(context.Background(), s.address(), dest, o)
	if err != nil || !again.Already || len(s.ranges()) != 1 {
		t.Errorf("second pull: %+v, %v, %d requests", again, err, len(s.ranges()))
	}
}

func TestPullResumesAfterCut(t *testing.T) {
	t.Parallel()
	content := tinyFile(t, RecipeQ40, 1)
	s := serve(t, content)
	s.cutAt = []int{300_000, 100, 500_000}
	dest := filepath.Join(t.TempDir(), "tiny.gguf")
	p, err := Pull(context.Background(), s.address(), dest, quick(PullOptions{SHA256: sumOf(content)}))
	if err != nil {
		t.Fatal(err)
	}
	if p.Bytes != int64(len(content)) || len(s.ranges()) != 4 {
		t.Errorf("%d bytes after requests %q", p.Bytes, s.ranges())
	}
	if r := s.requests[3]; r.Header.Get("If-Range") != `"v1"` || !strings.HasPrefix(r.Header.Get("Range"), "bytes=8") {
		t.Errorf("last request: Range %q, If-Range %q", r.Header.Get("Range"), r.Header.Get("If-Range"))
	}
}

// TestPullResumesInAnotherProcess: the first pull is interrupted for good,
// the next takes over what it left.
func TestPullResumesInAnotherProcess(t *testing.T) {
	t.Parallel()
	content := tinyFile(t, RecipeQ40, 1)
	for _, tc := range []struct {
		name        string
		change      func(*fileServer)
		wantResumed bool
		wantErr     bool
	}{
		{name: "same file", change: func(*fileServer) {}, wantResumed: true},
		{name: "new version", change: func(s *fileServer) { s.etag = `"v2"` }},
		{name: "no ranges", change: func(s *fileServer) { s.noRange = true }},
		{name: "shorter file", change: func(s *fileServer) { s.content = content[:1000] }, wantErr: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, content)
			s.cutAt = []int{400_000}
			dest := filepath.Join(t.TempDir(), "tiny.gguf")
			ctx, cancel := context.WithCancel(context.Background())
			o := quick(PullOptions{SHA256: sumOf(content), Progress: func(done, _ int64) {
				if done >= 400_000 {
					cancel()
				}
			}})
			if _, err := Pull(ctx, s.address(), dest, o); !errors.Is(err, context.Canceled) {
				t.Fatalf("interrupted pull: %v", err)
			}
			if got := filesIn(t, filepath.Dir(dest)); got != "tiny.gguf.part tiny.gguf.part.json" {
				t.Fatalf("files left: %s", got)
			}
			tc.change(s)
			p, err := Pull(context.Background(), s.address(), dest, quick(PullOptions{SHA256: sumOf(content)}))
			if tc.wantErr != (err != nil) {
				t.Fatalf("error %v", err)
			}
			if err != nil {
				if isFile(dest) {
					t.Error("a wrong file was kept")
				}
				return
			}
			if (p.ResumedBytes == 400_000) != tc.wantResumed {
				t.Errorf("resumed %d bytes", p.ResumedBytes)
			}
			if got, _ := os.ReadFile(dest); !bytes.Equal(got, content) {
				t.Error("the file differs")
			}
		})
	}
}

func TestPullResumesOnlyWithAValidator(t *testing.T) {
	t.Parallel()
	content := tinyFile(t, RecipeQ40, 1)
	s := serve(t, content)
	s.etag = `W/"weak"`
	dest := filepath.Join(t.TempDir(), "tiny.gguf")
	if err := os.WriteFile(dest+".part", content[:1000], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Pull(context.Background(), s.address(), dest, quick(PullOptions{SHA256: sumOf(content)})); err != nil {
		t.Fatal(err)
	}
	if got := s.ranges(); len(got) != 1 || got[0] != "" {
		t.Errorf("ranges asked for: %q", got)
	}
}

func TestPullWrongChecksumKeepsNothing(t *testing.T) {
	t.Parallel()
	content := tinyFile(t, RecipeQ40, 1)
	s := serve(t, content)
	dir := t.TempDir()
	_, err := Pull(context.Background(), s.address(), filepath.Join(dir, "tiny.gguf"), quick(PullOptions{SHA256: strings.Repeat("0", 64)}))
	var differs *ChecksumError
	if !errors.As(err, &differs) || differs.Got != sumOf(content) {
		t.Errorf("got %v", err)
	}
	if got := filesIn(t, dir); got != "" {
		t.Errorf("files left: %s", got)
	}
}

func TestPullUnknownChecksum(t *testing.T) {
	t.Parallel()
	content := tinyFile(t, RecipeQ40, 1)
	s := serve(t, content)
	dir := t.TempDir()
	dest := filepath.Join(dir, "tiny.gguf")
	_, err := Pull(context.Background(), s.address(), dest, quick(PullOptions{ReportedSHA256: strings.Repeat("a", 64)}))
	var none *NoChecksumError
	if !errors.As(err, &none) || !strings.Contains(err.Error(), "--record-sha256") || !strings.Contains(err.Error(), "aaaa") || len(s.ranges()) != 0 {
		t.Errorf("got %v after %d requests", err, len(s.ranges()))
	}
	p, err := Pull(context.Background(), s.address(), dest, quick(PullOptions{RecordSHA256: true}))
	if err != nil || p.Verified {
		t.Fatalf("recorded: %+v, %v", p, err)
	}
	if got, _ := os.ReadFile(dest + ".sha256"); string(got) != sumOf(content)+"  tiny.gguf\n" {
		t.Errorf("record: %q", got)
	}

	// The next pull compares with the record, whatever the flags.
	if err := os.Remove(dest); err != nil {
		t.Fatal(err)
	}
	s.content = tinyFile(t, RecipeQ40, 2)
	_, err = Pull(context.Background(), s.address(), dest, quick(PullOptions{RecordSHA256: true}))
	var differs *ChecksumError
	if !errors.As(err, &differs) || isFile(dest) {
		t.Errorf("changed source: %v", err)
	}
}

func TestPullRefusesBadSums(t *testing.T) {
	t.Parallel()
	for _, sum := range []string{"abc", strings.Repeat("g", 64), strings.Repeat("a", 63)} {
		if _, err := Pull(context.Background(), "https://x.invalid/y.gguf", filepath.Join(t.TempDir(), "y"), PullOptions{SHA256: sum}); err == nil || !strings.Contains(err.Error(), "64 hexadecimal") {
			t.Errorf("%q: %v", sum, err)
		}
	}
}

func TestPullRefusesOtherFiles(t *testing.T) {
	t.Parallel()
	whole := tinyFile(t, RecipeQ40, 1)
	for _, tc := range []struct {
		name    string
		content []byte
		fault   FileFault
	}{
		{"HTML", []byte("<!doctype html>" + strings.Repeat("<p>log in</p>", 100)), FaultNotGGUF},
		{"short JSON", []byte(`{"error":"gated"}`), FaultNotGGUF},
		{"empty", nil, FaultNotGGUF},
		{"truncated at the source", whole[:len(whole)-100], FaultTruncated},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, tc.content)
			dir := t.TempDir()
			_, err := Pull(context.Background(), s.address(), filepath.Join(dir, "x.gguf"), quick(PullOptions{RecordSHA256: true}))
			var fault *FileError
			if !errors.As(err, &fault) || fault.Fault != tc.fault {
				t.Errorf("got %v", err)
			}
			if got := filesIn(t, dir); got != "" {
				t.Errorf("files left: %s", got)
			}
		})
	}
}

func TestPullStatus(t *testing.T) {
	t.Parallel()
	content := tinyFile(t, RecipeQ40, 1)
	for _, tc := range []struct {
		status   []int
		say      string // "" means that the pull succeeds in the end
		requests int
	}{
		{[]int{401}, "HF_TOKEN", 1},
		{[]int{403}, "licence", 1},
		{[]int{404}, "has changed", 1},
		{[]int{416, 416}, "would not resume", 2},
		{[]int{429, 503, 0}, "", 3},
		{[]int{500, 500, 500, 500, 500}, "HTTP 500", 5},
	} {
		t.Run(fmt.Sprint(tc.status), func(t *testing.T) {
			t.Parallel()
			s := serve(t, content)
			s.status = tc.status
			dir := t.TempDir()
			_, err := Pull(context.Background(), s.address()+"?secret=1", filepath.Join(dir, "x.gguf"), quick(PullOptions{RecordSHA256: true}))
			if len(s.ranges()) != tc.requests {
				t.Errorf("%d requests, want %d", len(s.ranges()), tc.requests)
			}
			if tc.say == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var refused *HTTPError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), tc.say) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v, want %q", err, tc.say)
			}
			if got := filesIn(t, dir); got != "" {
				t.Errorf("files left: %s", got)
			}
		})
	}
}

func TestPullCompletePart(t *testing.T) {
	t.Parallel()
	content := tinyFile(t, RecipeQ40, 1)
	for _, total := range []int{len(content), 0} { // size known from before, or not
		s := serve(t, content)
		dest := filepath.Join(t.TempDir(), "tiny.gguf")
		u, err := url.Parse(s.address())
		if err != nil {
			t.Fatal(err)
		}
		state := fmt.Sprintf(`{"source_sha256":"%s","validator":"\"v1\"","total_bytes":%d}`, (&download{url: u}).source(), total)
		for path, text := range map[string][]byte{dest + ".part": content, dest + ".part.json": []byte(state)} {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p, err := Pull(context.Background(), s.address(), dest, quick(PullOptions{SHA256: sumOf(content)}))
		if err != nil || p.ResumedBytes != int64(len(content)) {
			t.Errorf("known size %d: %+v, %v", total, p, err)
		}
	}
}

func TestPullStalledConnection(t *testing.T) {
	t.Parallel()
	content := tinyFile(t, RecipeQ40, 1)
	s := serve(t, content)
	s.cutAt, s.stall = []int{300_000}, 2*time.Second
	o := quick(PullOptions{SHA256: sumOf(content)})
	o.stallTime = 200 * time.Millisecond
	if _, err := Pull(context.Background(), s.address(), filepath.Join(t.TempDir(), "tiny.gguf"), o); err != nil {
		t.Fatal(err)
	}
	if got := s.ranges(); len(got) != 2 {
		t.Errorf("requests: %q", got)
	}
}

func TestPullUnreachable(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	address := s.address()
	s.Close()
	_, err := Pull(context.Background(), address+"?token=secret", filepath.Join(t.TempDir(), "x.gguf"), quick(PullOptions{RecordSHA256: true}))
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func TestPullLocked(t *testing.T) {
	t.Parallel()
	dest := filepath.Join(t.TempDir(), "x.gguf")
	f, err := os.Create(dest + ".part")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !lock(f) {
		t.Fatal("cannot lock")
	}
	_, err = Pull(context.Background(), "http://127.0.0.1:1/x.gguf", dest, quick(PullOptions{RecordSHA256: true}))
	if err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("got %v", err)
	}
}

// TestTokenStaysHome: the token goes to Hugging Face over HTTPS, and to no
// other host, not even by a redirect.
func TestTokenStaysHome(t *testing.T) {
	content := tinyFile(t, RecipeQ40, 1)
	var cdnSaw, homeSaw string
	cdn := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cdnSaw = r.Header.Get("Authorization")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	defer cdn.Close()
	// httptest listens on 127.0.0.1; by the name localhost the CDN is another host.
	elsewhere := strings.Replace(cdn.URL, "127.0.0.1", "localhost", 1)
	home := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		homeSaw = r.Header.Get("Authorization")
		http.Redirect(w, r, elsewhere+"/file?signature=x", http.StatusFound)
	}))
	defer home.Close()
	t.Setenv("HF_ENDPOINT", home.URL)
	t.Setenv("HF_TOKEN", "hf_secret")
	client := home.Client()
	client.Transport.(*http.Transport).TLSClientConfig.InsecureSkipVerify = true
	dir := t.TempDir()
	_, err := mustEntry("smollm2-135m").Pull(context.Background(), dir, quick(PullOptions{SHA256: sumOf(content), Client: client}))
	if err != nil {
		t.Fatal(err)
	}
	if homeSaw != "Bearer hf_secret" {
		t.Errorf("Hugging Face saw %q", homeSaw)
	}
	if cdnSaw != "" {
		t.Errorf("the CDN saw %q", cdnSaw)
	}
	for address, want := range map[string]string{home.URL: "hf_secret", strings.Replace(home.URL, "https", "http", 1): "", "https://evil.example": ""} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if got := tokenFor(u, ""); got != want {
			t.Errorf("token for %s: %q", address, got)
		}
	}
}

func TestStayEncrypted(t *testing.T) {
	t.Parallel()
	request := func(address string) *http.Request {
		r, err := http.NewRequest(http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	secure, plain := request("https://a.example/x"), request("http://a.example/x")
	if err := stayEncrypted(secure, []*http.Request{plain}); err != nil {
		t.Error(err)
	}
	if err := stayEncrypted(plain, []*http.Request{secure}); err == nil {
		t.Error("followed from HTTPS to HTTP")
	}
	if err := stayEncrypted(secure, make([]*http.Request, 10)); err == nil {
		t.Error("followed eleven redirects")
	}
}

func TestFileName(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://x.example/a/b.Q4_K_M.gguf?download=true": "b.Q4_K_M.gguf",
		"https://x.example/a/b.GGUF":                      "b.GGUF",
		"https://x.example/a/":                            "",
		"https://x.example/a%2fb.gguf":                    "b.gguf",
		"https://x.example/..%5cb.gguf":                   "",
		"ftp://x.example/b.gguf":                          "",
		"b.gguf":                                          "",
	} {
		got, err := FileName(address)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", address, got, err)
		}
	}
}

func TestNeedSpace(t *testing.T) {
	t.Parallel()
	var short *DiskSpaceError
	if err := needSpace(t.TempDir(), 1<<60); !errors.As(err, &short) {
		t.Errorf("an exabyte: %v", err)
	}
	if err := needSpace(t.TempDir(), 1); err != nil {
		t.Error(err)
	}
}

func FuzzContentRange(f *testing.F) {
	for _, s := range []string{"bytes 0-9/10", "bytes */10", "bytes 5-9/*", "bytes -1-2/3", "items 0-1/2", "bytes 9999999999999999999-/1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if from, total, ok := contentRange(s); ok && (from < 0 || total < -1) {
			t.Errorf("%q: from %d, total %d", s, from, total)
		}
	})
}
