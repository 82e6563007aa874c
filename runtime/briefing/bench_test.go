package briefing

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"
)

// syntheticCSV writes rows of about 200 bytes.
func syntheticCSV(rows int) []byte {
	var b bytes.Buffer
	b.WriteString("user_id,email,name,locale,city,weather,calendar,tasks\n")
	for i := range rows {
		fmt.Fprintf(&b, "user-%07d,user%d@example.com,Ana Maria %d,de-CH,Lisbon,\"sunny, 24 degrees\","+
			"09:30 design review with the team; 14:00 dentist,renew the passport; call the bank about the card\n", i, i, i)
	}
	return b.Bytes()
}

func BenchmarkReaderCSV(b *testing.B) { benchmarkReader(b, syntheticCSV(20_000), FormatCSV) }

func BenchmarkReaderJSONL(b *testing.B) {
	var out bytes.Buffer
	r, err := NewReader(bytes.NewReader(syntheticCSV(20_000)), ReaderOptions{})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := Normalise(context.Background(), r, &out, nil, NormaliseOptions{}); err != nil {
		b.Fatal(err)
	}
	benchmarkReader(b, out.Bytes(), FormatJSONL)
}

// benchmarkReader measures one row through Reader and canonical encoding.
func benchmarkReader(b *testing.B, data []byte, format Format) {
	b.ReportAllocs()
	var (
		r    *Reader
		line []byte
		rows int
	)
	for b.Loop() {
		if r == nil {
			var err error
			if r, err = NewReader(bytes.NewReader(data), ReaderOptions{Format: format}); err != nil {
				b.Fatal(err)
			}
		}
		rec, err := r.Next()
		if err == io.EOF {
			r = nil
			continue
		}
		if err != nil {
			b.Fatal(err)
		}
		if line, err = rec.AppendJSON(line[:0]); err != nil {
			b.Fatal(err)
		}
		rows++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rows), "ns/row")
}

func BenchmarkNormalise(b *testing.B) {
	data := syntheticCSV(20_000)
	b.ReportAllocs()
	for b.Loop() {
		r, err := NewReader(bytes.NewReader(data), ReaderOptions{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := Normalise(context.Background(), r, io.Discard, nil, NormaliseOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/20_000, "ns/row")
}

func BenchmarkRender(b *testing.B) {
	t, err := ParseTemplate(DefaultSystemPrompt(), DefaultUserTemplate())
	if err != nil {
		b.Fatal(err)
	}
	r, err := NewReader(bytes.NewReader(syntheticCSV(1)), ReaderOptions{})
	if err != nil {
		b.Fatal(err)
	}
	rec, err := r.Next()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := t.Render(rec); err != nil {
			b.Fatal(err)
		}
	}
}
