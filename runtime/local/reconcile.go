package local

import (
	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/gather"
	"github.com/briefing-swarm/briefing-swarm/runtime/report"
)

// maxSamples is how many briefings the report shows.
const maxSamples = 10

// settled is what reconciling needs of a row.
type settled struct {
	UserID           string `parquet:"user_id"`
	Status           string `parquet:"status"`
	ErrorCode        string `parquet:"error_code"`
	FinishReason     string `parquet:"finish_reason"`
	PromptTokens     int32  `parquet:"prompt_tokens"`
	CachedTokens     int32  `parquet:"cached_tokens"`
	CompletionTokens int32  `parquet:"completion_tokens"`
}

// reconcile reads back what was written and compares it with the input: every
// user must have exactly one row. It returns some rows for the report.
func (r *run) reconcile() ([]briefing.Row, error) {
	dir := r.path(BriefingsDir)
	c := &r.manifest.Counts
	c.OK, c.Failed, c.Missing, c.Duplicate = 0, 0, 0, 0
	c.ByErrorCode, c.ByFinish = map[string]int64{}, map[string]int64{}
	r.manifest.Tokens = Tokens{}
	seen := make(idSet, r.summary.Records)
	for row, err := range gather.DirRows[settled](dir) {
		if err != nil {
			return nil, err
		}
		if key := keyOf(row.UserID); !seen.hasKey(key) {
			seen[key] = struct{}{}
		} else {
			c.Duplicate++
			continue
		}
		if row.Status == briefing.StatusOK {
			c.OK++
			c.ByFinish[row.FinishReason]++
		} else {
			c.Failed++
			c.ByErrorCode[row.ErrorCode]++
		}
		r.times.prompt.add(int(row.PromptTokens))
		if row.Status == briefing.StatusOK {
			r.times.output.add(int(row.CompletionTokens))
		}
		t := &r.manifest.Tokens
		t.Prompt += int64(row.PromptTokens)
		t.Cached += int64(row.CachedTokens)
		t.Completion += int64(row.CompletionTokens)
	}
	var err error
	if c.Missing, err = r.countWithout(seen); err != nil {
		return nil, err
	}
	if r.manifest.Files, err = r.files(); err != nil {
		return nil, err
	}
	return samples(dir)
}

// samples returns up to maxSamples good rows, of different locales where there
// are some among the first.
func samples(dir string) ([]briefing.Row, error) {
	var picked, rest []briefing.Row
	locales := map[string]bool{}
	n := 0
	for row, err := range gather.DirRows[briefing.Row](dir) {
		if err != nil {
			return nil, err
		}
		if n++; len(picked) == maxSamples || n > 1000 {
			break
		}
		if row.Status != briefing.StatusOK {
			continue
		}
		if !locales[row.Locale] {
			locales[row.Locale] = true
			picked = append(picked, row)
		} else if len(rest) < maxSamples {
			rest = append(rest, row)
		}
	}
	for len(picked) < maxSamples && len(rest) > 0 {
		picked, rest = append(picked, rest[0]), rest[1:]
	}
	return picked, nil
}

// histogram counts values exactly up to a bound.
type histogram struct{ counts []int64 }

const histogramMax = 1 << 16

func (h *histogram) add(v int) {
	v = max(0, min(v, histogramMax))
	for len(h.counts) <= v {
		h.counts = append(h.counts, make([]int64, max(64, len(h.counts)))...)
	}
	h.counts[v]++
}

// bins puts the counts into at most n bins of a round width.
func (h *histogram) bins(n int) []report.Bin {
	lo, hi := -1, -1
	for v, c := range h.counts {
		if c > 0 {
			if lo < 0 {
				lo = v
			}
			hi = v
		}
	}
	if lo < 0 {
		return nil
	}
	width := 1
	for _, step := range []int{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000} {
		if width = step; (hi/step-lo/step)+1 <= n {
			break
		}
	}
	var bins []report.Bin
	for from := lo / width * width; from <= hi; from += width {
		b := report.Bin{From: from, To: from + width}
		for v := from; v < min(from+width, len(h.counts)); v++ {
			b.N += h.counts[v]
		}
		bins = append(bins, b)
	}
	return bins
}
