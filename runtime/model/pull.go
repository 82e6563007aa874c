package model

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// PullOptions says how Pull fetches a file.
type PullOptions struct {
	// SHA256 is the checksum the file must have, in hex. Empty means that
	// none is known: Pull then refuses, unless RecordSHA256 is set or an
	// earlier pull has recorded one.
	SHA256 string
	// RecordSHA256 accepts a file of unknown checksum, and records what it
	// was beside the file, so that a later pull can compare.
	RecordSHA256 bool
	// ReportedSHA256 is only shown in the refusal, see Entry.ReportedSHA256.
	ReportedSHA256 string
	// Progress, if not nil, is called from time to time with the bytes that
	// are there and the bytes in all; total is -1 while it is unknown.
	Progress func(done, total int64)
	// Token is sent as a bearer token to Hugging Face or its mirror, over
	// HTTPS, and to nobody else. Empty means the variable HF_TOKEN. It is
	// never part of an error or of a file.
	Token string
	// Client makes the requests; nil means one that honours the usual proxy
	// variables and gives up on a connection that stalls.
	Client *http.Client

	// retryWait is the pause before the first retry; it doubles each time.
	retryWait time.Duration
	// stallTime is how long a download may bring no byte.
	stallTime time.Duration
}

// Pulled is what Pull fetched, or found already there.
type Pulled struct {
	Path    string  `json:"path"`
	SHA256  string  `json:"sha256"`
	Bytes   int64   `json:"bytes"`
	Header  *Header `json:"-"`
	Already bool    `json:"already_there"` // nothing was fetched
	// ResumedBytes were there from an earlier, interrupted pull.
	ResumedBytes int64 `json:"resumed_bytes"`
	// Verified says that the checksum was known before; otherwise it was
	// only recorded.
	Verified bool `json:"verified"`
}

// NoChecksumError is Pull's refusal of a file whose checksum nobody gave.
type NoChecksumError struct {
	Name     string
	Reported string
}

func (e *NoChecksumError) Error() string {
	s := fmt.Sprintf("no checksum is known for %s: give it with --sha256, or accept what comes and record its checksum with --record-sha256", e.Name)
	if e.Reported != "" {
		s += fmt.Sprintf("; public projects pin %s for this file, which was not verified here", e.Reported)
	}
	return s
}

// ChecksumError is returned for a file that is not the one asked for. Nothing
// of it is kept under the final name.
type ChecksumError struct {
	Name      string
	Want, Got string
}

func (e *ChecksumError) Error() string {
	return fmt.Sprintf("checksum of %s differs: sha256 is %s, expected %s; the file was not kept. The source may have a new version, or something between changed it: compare with the source's own page before you pass --sha256 %s", e.Name, e.Got, e.Want, e.Got)
}

// HTTPError is a server's refusal.
type HTTPError struct {
	Status int
	Host   string
	File   string
	Advice string
}

func (e *HTTPError) Error() string {
	return fmt.Sprintf("%s refused %s: HTTP %d %s; %s", e.Host, e.File, e.Status, http.StatusText(e.Status), e.Advice)
}

func newHTTPError(status int, u *url.URL, hasToken bool) *HTTPError {
	e := &HTTPError{Status: status, Host: u.Host, File: path.Base(u.Path)}
	switch status {
	case http.StatusUnauthorized:
		e.Advice = "the model is gated, private or misspelt: accept its licence on its page, and set HF_TOKEN to a token of your account that may read it"
		if hasToken {
			e.Advice = "the token in HF_TOKEN is not valid: make a new one with the right to read, and accept the model's licence on its page"
		}
	case http.StatusForbidden:
		e.Advice = "your account has no access: accept the model's licence on its page with the account of HF_TOKEN, and give a fine-grained token the right to read gated repositories"
	case http.StatusNotFound, http.StatusGone:
		e.Advice = "the repository, the revision or the file name has changed: look at the repository's page, and pull by address with --sha256"
	case http.StatusTooManyRequests:
		e.Advice = "too many requests: wait some minutes, or set HF_TOKEN"
	case http.StatusRequestedRangeNotSatisfiable:
		e.Advice = "the server would not resume: pull again, the part that is there was removed"
	case http.StatusProxyAuthRequired:
		e.Advice = "the proxy asks for a log-in: set HTTPS_PROXY with user and password"
	default:
		e.Advice = "try again later; the part that is there is kept and resumed"
	}
	return e
}

const (
	partSuffix     = ".part"
	checksumSuffix = ".sha256"
	pullAttempts   = 5
	sniffBytes     = 512
)

// Pull fetches the entry's file into dir (empty means ModelsDir). An empty
// SHA256 in o means the catalogue's.
func (e Entry) Pull(ctx context.Context, dir string, o PullOptions) (Pulled, error) {
	if dir == "" {
		var err error
		if dir, err = ModelsDir(); err != nil {
			return Pulled{}, err
		}
	}
	if o.SHA256 == "" {
		o.SHA256 = e.SHA256
	}
	o.ReportedSHA256 = e.ReportedSHA256
	return Pull(ctx, e.URL(), filepath.Join(dir, e.File), o)
}

// FileName returns the name a file fetched from address is kept under: the
// last part of its path. It must be a .gguf.
func FileName(address string) (string, error) {
	u, err := parseAddress(address)
	if err != nil {
		return "", err
	}
	name := path.Base(u.Path)
	if !strings.HasSuffix(strings.ToLower(name), ".gguf") || strings.ContainsAny(name, `/\:`) {
		return "", fmt.Errorf("the address does not end in the name of a .gguf file but in %q; give the file's own download address", name)
	}
	return name, nil
}

func parseAddress(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("not an address to fetch a model from: it must start with https:// or http://")
	}
	return u, nil
}

// Pull fetches a GGUF file from address to dest. What arrives is kept in
// dest.part, so that an interrupted pull resumes where it stopped, as long as
// the server still has the same file. The checksum and the GGUF header are
// checked before the file gets its final name; dest.sha256 then holds the
// checksum in the form that sha256sum reads.
//
// Errors: *NoChecksumError, *ChecksumError, *HTTPError, *DiskSpaceError,
// *FileError for what is not a usable GGUF, ctx's error when it ends.
func Pull(ctx context.Context, address, dest string, o PullOptions) (Pulled, error) {
	u, err := parseAddress(address)
	if err != nil {
		return Pulled{}, err
	}
	name := filepath.Base(dest)
	want, err := wantedChecksum(dest, o)
	if err != nil {
		return Pulled{}, err
	}
	if isFile(dest) {
		return alreadyThere(ctx, dest, want)
	}
	if want == "" && !o.RecordSHA256 {
		return Pulled{}, &NoChecksumError{Name: name, Reported: o.ReportedSHA256}
	}
	if err := os.MkdirAll(filepath.Dir(dest), 0o755); err != nil {
		return Pulled{}, fmt.Errorf("pull %s: %w", name, err)
	}
	d, err := newDownload(u, dest, want, o)
	if err != nil {
		return Pulled{}, fmt.Errorf("pull %s: %w", name, err)
	}
	defer d.close()
	p, err := d.run(ctx)
	if err != nil {
		return Pulled{}, fmt.Errorf("pull %s: %w", name, err)
	}
	return p, nil
}

// wantedChecksum returns the checksum dest must have in lower case: the one
// given, or one that an earlier pull recorded, or "".
func wantedChecksum(dest string, o PullOptions) (string, error) {
	if o.SHA256 != "" {
		sum := strings.ToLower(strings.TrimSpace(o.SHA256))
		if raw, err := hex.DecodeString(sum); err != nil || len(raw) != sha256.Size {
			return "", fmt.Errorf("%q is not a SHA-256 checksum: it has 64 hexadecimal digits", o.SHA256)
		}
		return sum, nil
	}
	text, err := os.ReadFile(dest + checksumSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the recorded checksum: %w", err)
	}
	fields := strings.Fields(string(text))
	if len(fields) == 0 {
		return "", fmt.Errorf("%s holds no checksum; remove it", dest+checksumSuffix)
	}
	if raw, err := hex.DecodeString(fields[0]); err != nil || len(raw) != sha256.Size {
		return "", fmt.Errorf("%s holds no SHA-256 checksum; remove it", dest+checksumSuffix)
	}
	return strings.ToLower(fields[0]), nil
}

// alreadyThere checks a file that is there under its final name.
func alreadyThere(ctx context.Context, dest, want string) (Pulled, error) {
	h, err := Open(dest)
	if err != nil {
		return Pulled{}, fmt.Errorf("%w; remove the file to pull it again", err)
	}
	sum, err := Checksum(ctx, dest)
	if err != nil {
		return Pulled{}, err
	}
	if want != "" && sum != want {
		return Pulled{}, fmt.Errorf("%s is there, but its sha256 is %s, expected %s; remove the file to pull it again", dest, sum, want)
	}
	return Pulled{Path: dest, SHA256: sum, Bytes: h.FileBytes, Header: h, Already: true, Verified: want != ""}, nil
}

// Checksum returns the SHA-256 of the file at path in lower-case hex.
func Checksum(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("checksum: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	if err := hashAll(ctx, sum, f); err != nil {
		return "", fmt.Errorf("checksum %s: %w", path, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// hashAll feeds r to sum until its end or until ctx ends.
func hashAll(ctx context.Context, sum hash.Hash, r io.Reader) error {
	buf := make([]byte, 1<<20)
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n, err := r.Read(buf)
		sum.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// partState is what is kept beside a part, to resume it safely.
type partState struct {
	// Source identifies the address without keeping it: addresses can carry
	// credentials.
	Source string `json:"source_sha256"`
	// Validator is the server's strong ETag, or its Last-Modified date.
	Validator string `json:"validator"`
	Total     int64  `json:"total_bytes"`
}

// download is one file on its way.
type download struct {
	url      *url.URL
	dest     string
	want     string
	o        PullOptions
	token    string
	part     *os.File
	have     int64 // bytes in part
	resumed  int64 // of those, bytes from an earlier pull
	sum      hash.Hash
	state    partState
	restarts int
}

func newDownload(u *url.URL, dest, want string, o PullOptions) (*download, error) {
	if o.Client == nil {
		t := http.DefaultTransport.(*http.Transport).Clone() // honours proxy variables
		t.ResponseHeaderTimeout = 60 * time.Second
		t.DisableCompression = true // byte ranges are those of the file
		o.Client = &http.Client{Transport: t, CheckRedirect: stayEncrypted}
	}
	if o.retryWait == 0 {
		o.retryWait = time.Second
	}
	if o.stallTime == 0 {
		o.stallTime = time.Minute
	}
	d := &download{url: u, dest: dest, want: want, o: o, token: tokenFor(u, o.Token)}
	var err error
	if d.part, err = openPart(dest + partSuffix); err != nil {
		return nil, err
	}
	return d, nil
}

// stayEncrypted follows up to ten redirects, and none from HTTPS to HTTP.
func stayEncrypted(req *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return errors.New("too many redirects")
	}
	if via[0].URL.Scheme == "https" && req.URL.Scheme != "https" {
		return errors.New("the server redirects to an address without encryption")
	}
	return nil
}

// close ends the download, and leaves no empty part behind.
func (d *download) close() {
	if d.have == 0 {
		d.discard()
	}
	d.part.Close()
}

// tokenFor returns the token to send to u's host: Hugging Face's own host, or
// the mirror the user has set, over HTTPS.
func tokenFor(u *url.URL, token string) string {
	if token == "" {
		token = os.Getenv("HF_TOKEN")
	}
	home, err := url.Parse(endpoint())
	if err != nil || u.Scheme != "https" || !strings.EqualFold(u.Host, home.Host) {
		return ""
	}
	return token
}

// run fetches what is missing, with retries, then checks and names the file.
func (d *download) run(ctx context.Context) (Pulled, error) {
	if err := d.load(ctx); err != nil {
		return Pulled{}, err
	}
	wait := d.o.retryWait
	for attempt := 1; ; {
		before := d.have
		err := d.fetch(ctx)
		if err == nil {
			break
		}
		if cause := context.Cause(ctx); cause != nil {
			return Pulled{}, cause
		}
		if d.have > before {
			attempt, wait = 1, d.o.retryWait
		}
		if !retryable(err) || attempt >= pullAttempts {
			return Pulled{}, err
		}
		attempt++
		select {
		case <-ctx.Done():
			return Pulled{}, context.Cause(ctx)
		case <-time.After(wait):
		}
		wait *= 2
	}
	return d.finish()
}

// load takes over what an earlier pull left, if it was of the same address
// and can be continued safely.
func (d *download) load(ctx context.Context) error {
	d.sum = sha256.New()
	text, err := os.ReadFile(d.statePath())
	var state partState
	if err != nil || json.Unmarshal(text, &state) != nil || state.Source != d.source() || state.Validator == "" {
		return d.restart()
	}
	if err := hashAll(ctx, d.sum, d.part); err != nil {
		return err
	}
	d.have, err = d.part.Seek(0, io.SeekEnd)
	d.resumed = d.have
	d.state = state
	return err
}

func (d *download) statePath() string { return d.dest + partSuffix + ".json" }

func (d *download) source() string {
	sum := sha256.Sum256([]byte(d.url.String()))
	return hex.EncodeToString(sum[:])
}

// restart forgets what is there.
func (d *download) restart() error {
	d.have, d.resumed, d.state = 0, 0, partState{}
	d.sum.Reset()
	if _, err := d.part.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return d.part.Truncate(0)
}

// discard removes the part: it is of no use to anybody.
func (d *download) discard() {
	os.Remove(d.dest + partSuffix)
	os.Remove(d.statePath())
}

// errCut is a download that ended early; what came is kept.
var errCut = errors.New("the connection was cut")

func retryable(err error) bool {
	var refused *HTTPError
	if errors.As(err, &refused) {
		return refused.Status >= 500 || refused.Status == http.StatusTooManyRequests || refused.Status == http.StatusRequestTimeout
	}
	var network *url.Error
	return errors.Is(err, errCut) || errors.As(err, &network)
}

// fetch makes one request for what is missing.
func (d *download) fetch(ctx context.Context) error {
	if d.have > 0 && d.have == d.state.Total {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stall := time.AfterFunc(d.o.stallTime, cancel)
	defer stall.Stop()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url.String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "briefing-swarm")
	if d.token != "" {
		req.Header.Set("Authorization", "Bearer "+d.token)
	}
	if d.have > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", d.have))
		req.Header.Set("If-Range", d.state.Validator)
	}
	resp, err := d.o.Client.Do(req)
	if err != nil {
		return withoutQuery(err)
	}
	defer resp.Body.Close()
	if done, err := d.accept(resp); err != nil || done {
		return err
	}
	return d.copyBody(resp.Body, func() { stall.Reset(d.o.stallTime) })
}

// withoutQuery cuts the address in a client's error down to host and path:
// signed addresses carry credentials in their query.
func withoutQuery(err error) error {
	var failed *url.Error
	if !errors.As(err, &failed) {
		return err
	}
	short := *failed
	if u, parseErr := url.Parse(failed.URL); parseErr == nil {
		short.URL = u.Scheme + "://" + u.Host + u.Path
	} else {
		short.URL = "the address"
	}
	return &short
}

// accept looks at the response's head. It reports true if nothing is missing.
func (d *download) accept(resp *http.Response) (done bool, err error) {
	switch resp.StatusCode {
	case http.StatusOK:
		if d.have > 0 { // another version, or a server that cannot resume
			if err := d.restart(); err != nil {
				return false, err
			}
		}
		d.state = partState{Source: d.source(), Validator: validator(resp.Header), Total: resp.ContentLength}
	case http.StatusPartialContent:
		from, total, ok := contentRange(resp.Header.Get("Content-Range"))
		if !ok || from != d.have || d.state.Total > 0 && total > 0 && total != d.state.Total {
			return false, d.startOver(resp)
		}
		if total > 0 {
			d.state.Total = total
		}
	case http.StatusRequestedRangeNotSatisfiable:
		if _, total, ok := contentRange(resp.Header.Get("Content-Range")); ok && total == d.have && d.have > 0 {
			d.state.Total = total
			return true, nil
		}
		return false, d.startOver(resp)
	default:
		return false, newHTTPError(resp.StatusCode, d.url, d.token != "")
	}
	if d.state.Total > 0 {
		if err := needSpace(filepath.Dir(d.dest), d.state.Total-d.have); err != nil {
			return false, err
		}
	}
	text, err := json.Marshal(d.state)
	if err != nil {
		return false, err
	}
	return false, os.WriteFile(d.statePath(), text, 0o644)
}

// startOver forgets the part after an answer that does not fit it, once; a
// second time is the server's fault.
func (d *download) startOver(resp *http.Response) error {
	if err := d.restart(); err != nil {
		return err
	}
	if d.restarts++; d.restarts > 1 {
		return newHTTPError(http.StatusRequestedRangeNotSatisfiable, d.url, false)
	}
	return fmt.Errorf("%w: the server's answer (HTTP %d) does not continue the part that is there", errCut, resp.StatusCode)
}

// validator returns what identifies this version of the file: a strong ETag,
// or the date, or "" if there is neither.
func validator(h http.Header) string {
	if tag := h.Get("ETag"); tag != "" && !strings.HasPrefix(tag, "W/") {
		return tag
	}
	return h.Get("Last-Modified")
}

// contentRange reads "bytes FROM-TO/TOTAL" and "bytes */TOTAL"; total is -1
// if the server does not say it.
func contentRange(s string) (from, total int64, ok bool) {
	s, ok = strings.CutPrefix(s, "bytes ")
	if !ok {
		return 0, 0, false
	}
	part, whole, ok := strings.Cut(s, "/")
	if !ok {
		return 0, 0, false
	}
	total = -1
	if whole != "*" {
		n, err := strconv.ParseInt(whole, 10, 64)
		if err != nil || n < 0 {
			return 0, 0, false
		}
		total = n
	}
	if part == "*" {
		return 0, total, true
	}
	first, _, ok := strings.Cut(part, "-")
	n, err := strconv.ParseInt(first, 10, 64)
	return n, total, ok && err == nil && n >= 0
}

// copyBody appends the body to the part. It looks at the first bytes before
// it takes the rest: a web page of an error is not worth its transfer, and
// must not be resumed.
func (d *download) copyBody(body io.Reader, alive func()) error {
	buf := make([]byte, 1<<18)
	sniffed := d.have >= sniffBytes
	report := func() {
		if d.o.Progress != nil {
			d.o.Progress(d.have, max(d.state.Total, -1))
		}
	}
	for {
		var n int
		var err error
		if sniffed {
			n, err = body.Read(buf)
		} else {
			n, err = io.ReadFull(body, buf[:sniffBytes])
			if errors.Is(err, io.ErrUnexpectedEOF) && d.state.Total == d.have+int64(n) {
				err = io.EOF
			}
		}
		if n > 0 {
			alive()
			if !sniffed && d.have == 0 && (n < 4 || string(buf[:4]) != "GGUF") && (err == nil || errors.Is(err, io.EOF)) {
				d.discard()
				return notGGUF(buf[:n])
			}
			sniffed = true
			if _, err := d.part.Write(buf[:n]); err != nil {
				return err
			}
			d.sum.Write(buf[:n])
			d.have += int64(n)
			report()
		}
		switch {
		case errors.Is(err, io.EOF):
			if d.state.Total > 0 && d.have < d.state.Total {
				return fmt.Errorf("%w after %d of %d bytes", errCut, d.have, d.state.Total)
			}
			if d.have == 0 {
				d.discard()
				return notGGUF(nil)
			}
			if d.state.Total > 0 && d.have > d.state.Total {
				d.discard()
				return fmt.Errorf("the server sent %d bytes of a file of %d; pull again", d.have, d.state.Total)
			}
			return nil
		case err != nil:
			return fmt.Errorf("%w after %d bytes: %w; pull again to resume", errCut, d.have, err)
		}
	}
}

// finish checks the whole file and gives it its name.
func (d *download) finish() (Pulled, error) {
	got := hex.EncodeToString(d.sum.Sum(nil))
	if d.want != "" && got != d.want {
		d.discard()
		return Pulled{}, &ChecksumError{Name: filepath.Base(d.dest), Want: d.want, Got: got}
	}
	h, err := ReadHeader(d.part, d.have)
	if err != nil {
		d.discard()
		return Pulled{}, err
	}
	if err := d.part.Sync(); err != nil {
		return Pulled{}, err
	}
	record := fmt.Sprintf("%s  %s\n", got, filepath.Base(d.dest))
	if err := os.WriteFile(d.dest+checksumSuffix, []byte(record), 0o644); err != nil {
		return Pulled{}, err
	}
	if err := os.Rename(d.dest+partSuffix, d.dest); err != nil {
		return Pulled{}, err
	}
	os.Remove(d.statePath())
	return Pulled{Path: d.dest, SHA256: got, Bytes: d.have, Header: h, ResumedBytes: d.resumed, Verified: d.want != ""}, nil
}
