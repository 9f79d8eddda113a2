package main

import (
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"kvbench/bench"
	"kvbench/internal/units"
)

// progress shows a run's progress on a terminal, and nothing elsewhere.
type progress struct {
	mu    sync.Mutex
	bars  *mpb.Progress
	bar   *mpb.Bar
	stage string
}

func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return &progress{}
	}
	return &progress{bars: mpb.New(mpb.WithOutput(w), mpb.WithWidth(40))}
}

// observe shows one step of the run.
func (p *progress) observe(o bench.Progress) {
	if p.bars == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	stage := o.Stage
	if o.ContextTokens > 0 {
		stage = fmt.Sprintf("%s %s tokens", o.Stage, units.Tokens(o.ContextTokens))
	}
	if stage != p.stage {
		p.finish()
		p.stage = stage
		p.bar = p.bars.AddBar(o.Total, mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.Name(fmt.Sprintf("%-24s", stage))),
			mpb.AppendDecorators(decor.CurrentNoUnit("%d"), decor.Name(" of "), decor.TotalNoUnit("%d")))
	}
	p.bar.SetCurrent(o.Done)
}

func (p *progress) finish() {
	if p.bar != nil {
		p.bar.Abort(true)
		p.bar = nil
	}
}

// close removes the bars from the terminal.
func (p *progress) close() {
	if p.bars == nil {
		return
	}
	p.mu.Lock()
	p.finish()
	p.mu.Unlock()
	p.bars.Wait()
}
