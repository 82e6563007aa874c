package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"github.com/briefing-swarm/briefing-swarm/runtime/local"
)

// plainEvery is how often progress is written where there is no terminal.
const plainEvery = 5 * time.Second

// progressTo returns a function that shows progress on w, and one that ends it:
// a bar on a terminal, plain lines elsewhere.
func progressTo(w io.Writer) (show func(local.Progress), done func()) {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		b := &barProgress{container: mpb.New(mpb.WithOutput(w), mpb.WithWidth(64))}
		return b.show, b.done
	}
	p := &plainProgress{w: w, now: time.Now}
	return p.show, p.done
}

// barProgress draws one bar per stage.
type barProgress struct {
	container *mpb.Progress
	bar       *mpb.Bar
	stage     string
	total     int64
}

func (b *barProgress) show(p local.Progress) {
	if p.Stage != b.stage || p.Total != b.total {
		b.finish()
		b.stage, b.total = p.Stage, p.Total
		b.bar = b.container.AddBar(p.Total,
			mpb.PrependDecorators(decor.Name(p.Stage, decor.WC{W: 10, C: decor.DindentRight}), decor.CountersNoUnit("%d / %d", decor.WC{W: 16})),
			mpb.AppendDecorators(decor.AverageSpeed(0, "%.1f/s", decor.WC{W: 10}), decor.Name("  "), decor.OnComplete(decor.AverageETA(decor.ET_STYLE_GO), "done")),
		)
	}
	b.bar.SetCurrent(p.Done)
}

// finish ends the bar of a stage. One that never had a total is taken away.
func (b *barProgress) finish() {
	if b.bar == nil || b.bar.Completed() {
		return
	}
	b.bar.Abort(b.total == 0)
}

func (b *barProgress) done() {
	b.finish()
	b.container.Wait()
}

// plainProgress writes a line when a stage begins and ends, and every few
// seconds between.
type plainProgress struct {
	w     io.Writer
	now   func() time.Time
	last  local.Progress
	began time.Time
	wrote time.Time
	told  int64 // Done of the stage's last line
}

func (p *plainProgress) show(now local.Progress) {
	if now.Stage != p.last.Stage {
		p.ended()
		p.last, p.began, p.wrote, p.told = now, p.now(), p.now(), 0
		fmt.Fprintf(p.w, "swarm: %s\n", now.Stage)
		return
	}
	if p.last.Total != now.Total {
		p.began = p.now()
	}
	p.last = now
	if p.now().Sub(p.wrote) >= plainEvery && now.Done > 0 {
		p.wrote = p.now()
		p.line()
	}
}

// ended writes how far the stage came, unless its last line said so.
func (p *plainProgress) ended() {
	if p.last.Done > p.told {
		p.line()
	}
}

// line writes how far the stage is, how fast, and how long it may still take.
func (p *plainProgress) line() {
	sec := p.now().Sub(p.began).Seconds()
	if sec <= 0 {
		sec = 1e-3
	}
	rate := float64(p.last.Done) / sec
	p.told = p.last.Done
	fmt.Fprintf(p.w, "swarm: %s %d", p.last.Stage, p.last.Done)
	if p.last.Total > 0 {
		fmt.Fprintf(p.w, " of %d", p.last.Total)
	}
	fmt.Fprintf(p.w, ", %.1f/s", rate)
	if left := p.last.Total - p.last.Done; p.last.Total > 0 && left > 0 && rate > 0 {
		fmt.Fprintf(p.w, ", %s left", (time.Duration(float64(left)/rate*1000) * time.Millisecond).Round(time.Second))
	}
	if p.last.Failed > 0 {
		fmt.Fprintf(p.w, ", %d failed", p.last.Failed)
	}
	fmt.Fprintln(p.w)
}

func (p *plainProgress) done() { p.ended() }
