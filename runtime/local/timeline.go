package local

import (
	"time"

	"github.com/briefing-swarm/briefing-swarm/runtime/report"
)

// maxPoints bounds a time line: twice what a chart can show.
const maxPoints = 1024

// timeline records how far a run is over time, at a resolution that halves
// whenever it would hold too many points.
type timeline struct {
	began  time.Time
	took   time.Duration
	every  time.Duration
	points []report.Point

	// Tokens of all rows, counted when the run is reconciled.
	prompt, output histogram
}

func (t *timeline) start() {
	t.began, t.every, t.points = time.Now(), 50*time.Millisecond, []report.Point{{}}
}

func (t *timeline) stop() { t.took = time.Since(t.began) }

func (t *timeline) add(p Progress) {
	since := time.Since(t.began)
	point := report.Point{Sec: since.Seconds(), Rows: p.Done, Tokens: p.Tokens}
	if p.Done < p.Total && since.Seconds()-t.points[len(t.points)-1].Sec < t.every.Seconds() {
		return
	}
	t.points = append(t.points, point)
	if len(t.points) < maxPoints {
		return
	}
	kept := t.points[:1]
	for i := 2; i < len(t.points); i += 2 {
		kept = append(kept, t.points[i])
	}
	if last := t.points[len(t.points)-1]; kept[len(kept)-1] != last {
		kept = append(kept, last)
	}
	t.points, t.every = kept, 2*t.every
}
