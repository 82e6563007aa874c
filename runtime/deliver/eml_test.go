package deliver

import (
	"bytes"
	"errors"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// filesBelow returns every file below the folder with its content.
func filesBelow(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestEML(t *testing.T) {
	t.Parallel()
	for _, sharded := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "mail")
		composer, rows := testComposer(t, nil), sampleRows()
		var before map[string]string
		for range 2 { // the second time changes nothing
			sender, err := NewEML(dir, sharded)
			if err != nil {
				t.Fatal(err)
			}
			stats, err := Deliver(t.Context(), rowsOf(rows), Options{Composer: composer, Sender: sender})
			if err != nil || stats.Sent != len(rows) {
				t.Fatalf("stats %+v, %v", stats, err)
			}
			files := filesBelow(t, dir)
			if len(files) != len(rows) {
				t.Errorf("%d files, want %d", len(files), len(rows))
			}
			for _, row := range rows {
				name := sender.Name(row.UserID)
				if strings.Contains(name, row.UserID) || (filepath.Dir(name) != ".") != sharded {
					t.Errorf("%s: name %s", row.UserID, name)
				}
				content := files[name]
				message, err := mail.ReadMessage(strings.NewReader(content))
				if err != nil {
					t.Errorf("%s: %v", row.UserID, err)
					continue
				}
				if to, err := message.Header.AddressList("To"); err != nil || len(to) != 1 {
					t.Errorf("%s: To %v, %v", row.UserID, to, err)
				}
				text, page := alternatives(t, row.UserID, []byte(content))
				holdsBriefing(t, row, text, page)
			}
			if before != nil {
				if diff := cmp.Diff(before, files); diff != "" {
					t.Errorf("a second delivery changed the files:\n%s", diff)
				}
			}
			before = files
		}
	}
}

// TestEMLIsWholeOrNotThere: a mail that cannot be written leaves what was there,
// and what a killed process left is removed.
func TestEMLIsWholeOrNotThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{tempPrefix + "123", "keep.eml", filepath.Join("ab", tempPrefix+"456"), filepath.Join("ab", "keep.eml")} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sender, err := NewEML(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"keep.eml": "x", filepath.Join("ab", "keep.eml"): "x"}, filesBelow(t, dir)); diff != "" {
		t.Errorf("after opening (-want +got):\n%s", diff)
	}
	message := testMessage(t)
	if _, err := sender.Send(t.Context(), message); err != nil {
		t.Fatal(err)
	}
	before := filesBelow(t, dir)
	message.Subject = "two\r\nlines"
	var failure *SendError
	if _, err := sender.Send(t.Context(), message); !errors.As(err, &failure) || failure.Kind != Permanent || failure.Code != CodeMessage {
		t.Errorf("error %v, want permanent %s", err, CodeMessage)
	}
	if diff := cmp.Diff(before, filesBelow(t, dir)); diff != "" {
		t.Errorf("a refused mail changed the folder:\n%s", diff)
	}

	// A folder that goes away ends the run.
	gone := filepath.Join(dir, "gone")
	if sender, err = NewEML(gone, false); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	if _, err := sender.Send(t.Context(), testMessage(t)); !errors.As(err, &failure) || failure.Kind != Fatal || failure.Code != CodeWrite {
		t.Errorf("error %v, want fatal %s", err, CodeWrite)
	}
	if _, err := NewEML(filepath.Join(dir, "keep.eml"), false); err == nil {
		t.Error("a file was taken for the folder")
	}
}

// TestEMLLines: no line of a file is longer than RFC 5322 allows, and no
// line ends in less than CR LF.
func TestEMLLines(t *testing.T) {
	t.Parallel()
	composer := testComposer(t, nil)
	for _, row := range sampleRows() {
		message, err := composer.Compose(row)
		if err != nil {
			t.Fatal(err)
		}
		var raw bytes.Buffer
		if _, err := message.WriteTo(&raw); err != nil {
			t.Fatal(err)
		}
		checkLines(t, row.UserID, raw.Bytes(), needsSMTPUTF8(message.To.Address))
	}
}

// checkLines fails on bare line ends, on lines over 998 bytes, on control
// characters, and on bytes beyond ASCII unless they are allowed.
func checkLines(t *testing.T, name string, raw []byte, utf8Allowed bool) {
	t.Helper()
	rest := strings.ReplaceAll(string(raw), "\r\n", "\n")
	if strings.Contains(rest, "\r") || strings.Count(string(raw), "\n") != strings.Count(string(raw), "\r\n") {
		t.Errorf("%s: a line ends in CR or LF alone", name)
	}
	for line := range strings.SplitSeq(rest, "\n") {
		if len(line) > 998 {
			t.Errorf("%s: a line has %d bytes", name, len(line))
		}
		if i := strings.IndexFunc(line, func(r rune) bool { return isControl(r) && r != '\t' || r >= 0x80 && !utf8Allowed }); i >= 0 {
			t.Errorf("%s: %q at %d of line %q", name, line[i], i, line)
		}
	}
}
