package object

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/go-cmp/cmp"

	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
)

// noise returns bytes that are nowhere the same.
func noise(n int) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{1})
	rng.Read(b)
	return b
}

func TestParseRef(t *testing.T) {
	t.Parallel()
	got, err := ParseRef("s3://b/k/e y")
	if d := cmp.Diff(Ref{Bucket: "b", Key: "k/e y"}, got); d != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, d)
	}
	for _, bad := range []string{"", "s3://", "s3://b", "s3://b/", "s3:///k", "http://b/k", "/b/k"} {
		if ref, err := ParseRef(bad); err == nil {
			t.Errorf("%q is %v", bad, ref)
		}
	}
}

func TestObjects(t *testing.T) {
	server := mototest.Start(t)
	front := mototest.NewFront(t, server)
	c := mototest.Clients(t, front.URL)
	mototest.Bucket(t, c, "objects")
	whole := noise(3<<20 + 17)
	mototest.Put(t, c, "objects", "whole", whole)
	ref := func(key string) Ref { return Ref{Bucket: "objects", Key: key} }

	// failing fails the first calls of a method.
	failing := func(method string, faults ...mototest.Fault) {
		front.Fail(func(call mototest.Call) mototest.Fault {
			if len(call.Operation) > len(method) && call.Operation[:len(method)] == method && call.N < len(faults) {
				return faults[call.N]
			}
			return mototest.None
		})
	}

	t.Run("read", func(t *testing.T) {
		for name, faults := range map[string][]mototest.Fault{
			"calm":              nil,
			"broken connection": {mototest.CutBody, mototest.CutBody, mototest.CutBody},
			"all kinds":         {mototest.Throttle, mototest.CutBefore, mototest.CutBody, mototest.ServerError, mototest.CutAfter, mototest.CutBody, mototest.Slow},
		} {
			t.Run(name, func(t *testing.T) {
				failing("GET", faults...)
				in, err := Open(t.Context(), c.S3, ref("whole"))
				if err != nil {
					t.Fatal(err)
				}
				defer in.Close()
				got, err := io.ReadAll(in)
				if err != nil || !bytes.Equal(got, whole) {
					t.Errorf("%d bytes, error %v", len(got), err)
				}
			})
		}
	})

	t.Run("read_missing", func(t *testing.T) {
		failing("GET")
		var missing *NotFoundError
		if _, err := Open(t.Context(), c.S3, ref("none")); !errors.As(err, &missing) || missing.Ref.Key != "none" {
			t.Errorf("error %v", err)
		}
		if n := front.Calls("GET"); n != 1 {
			t.Errorf("%d calls, want 1: the answer stays the same", n)
		}
	})

	t.Run("read_empty", func(t *testing.T) {
		mototest.Put(t, c, "objects", "empty", nil)
		in, err := Open(t.Context(), c.S3, ref("empty"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(in); err != nil || len(got) != 0 {
			t.Errorf("%d bytes, error %v", len(got), err)
		}
	})

	t.Run("replaced_while_read", func(t *testing.T) {
		mototest.Put(t, c, "objects", "moving", whole)
		failing("GET", mototest.CutBody)
		in, err := Open(t.Context(), c.S3, ref("moving"))
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		mototest.Put(t, c, "objects", "moving", whole[1:])
		var changed *ChangedError
		if _, err := io.ReadAll(in); !errors.As(err, &changed) {
			t.Errorf("error %v: two files were read as one", err)
		}
	})

	t.Run("read_cancelled", func(t *testing.T) {
		front.Fail(nil)
		ctx, cancel := context.WithCancel(t.Context())
		in, err := Open(ctx, c.S3, ref("whole"))
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := io.ReadAll(in); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})

	t.Run("read_at", func(t *testing.T) {
		failing("GET", mototest.CutBody, mototest.Throttle, mototest.CutBefore, mototest.CutBody)
		in, err := OpenAt(t.Context(), c.S3, ref("whole"), int64(len(whole)))
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(3, 3))
		want := io.NewSectionReader(bytes.NewReader(whole), 0, int64(len(whole)))
		for range 30 {
			off, n := rng.Int64N(int64(len(whole))), rng.IntN(200<<10)
			a, b := make([]byte, n), make([]byte, n)
			gotN, gotErr := in.ReadAt(a, off)
			wantN, wantErr := want.ReadAt(b, off)
			if gotN != wantN || gotErr != wantErr || !bytes.Equal(a, b) {
				t.Fatalf("%d bytes at %d: %d, %v; want %d, %v", n, off, gotN, gotErr, wantN, wantErr)
			}
		}
		// The tail is in memory.
		calls := front.Calls("GET")
		if _, err := in.ReadAt(make([]byte, 1000), int64(len(whole))-1000); err != nil || front.Calls("GET") != calls {
			t.Errorf("error %v, %d calls for the tail", err, front.Calls("GET")-calls)
		}
	})

	t.Run("write", func(t *testing.T) {
		for name, test := range map[string]struct {
			size, chunk int
			method      string
			faults      []mototest.Fault
		}{
			"nothing":           {size: 0, chunk: 1},
			"one part":          {size: 1000, chunk: 7},
			"one part, failing": {size: 1000, chunk: 700, method: "PUT", faults: []mototest.Fault{mototest.ServerError, mototest.CutBefore, mototest.CutAfter}},
			"exactly two parts": {size: 2 * partForTest, chunk: 1 << 20},
			"parts":             {size: 3*partForTest + 123, chunk: 100_001},
			"parts, failing": {size: 3*partForTest + 123, chunk: 1 << 20, method: "PUT",
				faults: []mototest.Fault{mototest.None, mototest.Throttle, mototest.CutAfter, mototest.CutBefore, mototest.Slow, mototest.CutBody}},
			"completing, failing": {size: partForTest + 1, chunk: 1 << 20, method: "POST",
				faults: []mototest.Fault{mototest.ServerError, mototest.None, mototest.CutAfter}},
		} {
			t.Run(name, func(t *testing.T) {
				front.Fail(nil)
				if test.method != "" {
					failing(test.method, test.faults...)
				}
				body := noise(test.size)
				w := Create(t.Context(), c.S3, ref("written"))
				w.partSize = partForTest
				for rest := body; len(rest) > 0; {
					n, err := w.Write(rest[:min(test.chunk, len(rest))])
					if err != nil {
						t.Fatal(err)
					}
					rest = rest[n:]
				}
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				front.Fail(nil)
				if got := mototest.Get(t, c, "objects", "written"); sha256.Sum256(got) != sha256.Sum256(body) || w.Bytes() != int64(len(body)) {
					t.Errorf("%d bytes were written and %d arrived, and they differ", len(body), len(got))
				}
				noUploads(t, c.S3)
			})
		}
	})

	t.Run("write_fails", func(t *testing.T) {
		front.Fail(func(call mototest.Call) mototest.Fault {
			if call.Operation[:3] == "PUT" && call.N == 2 {
				return mototest.Denied
			}
			return mototest.None
		})
		w := Create(t.Context(), c.S3, ref("half"))
		w.partSize = partForTest
		_, err := w.Write(noise(4 * partForTest))
		if closeErr := w.Close(); err == nil && closeErr == nil {
			t.Fatal("a part that was refused is not noticed")
		}
		front.Fail(nil)
		if keys := mototest.Keys(t, c, "objects", "half"); len(keys) > 0 {
			t.Error("half an object appeared")
		}
		noUploads(t, c.S3)
	})

	t.Run("abort", func(t *testing.T) {
		front.Fail(nil)
		ctx, cancel := context.WithCancel(t.Context())
		w := Create(ctx, c.S3, ref("aborted"))
		w.partSize = partForTest
		if _, err := w.Write(noise(partForTest + 1)); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := w.Abort(); err != nil {
			t.Error(err)
		}
		if err := w.Close(); err == nil {
			t.Error("an aborted object was closed")
		}
		if keys := mototest.Keys(t, c, "objects", "aborted"); len(keys) > 0 {
			t.Error("an aborted object appeared")
		}
		noUploads(t, c.S3)
	})
}

// partForTest is S3's smallest part.
const partForTest = 5 << 20

// noUploads fails where an upload was left open: it would be paid for.
func noUploads(t *testing.T, client *s3.Client) {
	t.Helper()
	bucket := "objects"
	out, err := client.ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: &bucket})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Uploads) > 0 {
		t.Errorf("%d uploads are left open", len(out.Uploads))
	}
}

func ExampleRef_String() {
	fmt.Println(Ref{Bucket: "runs", Key: "runs/1/manifest.json"})
	// Output: s3://runs/runs/1/manifest.json
}
