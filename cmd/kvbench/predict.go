package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kvbench/bench"
	"kvbench/internal/units"
	"kvbench/model"
	"kvbench/payload"
	"kvbench/report"
)

type predictFlags struct {
	shape shapeFlags
	linkFlags
	links     []string
	transport string
	fit       string
	rate      string
	overlap   string
	prefill   prefillFlags
	saved     string
	sweep     string
	format    string
}

func (a *app) predictCommand() *cobra.Command {
	var f predictFlags
	cmd := &cobra.Command{
		Use:   "predict",
		Short: "Predict transfer times, load and break-even from arithmetic alone",
		Example: `  kvbench predict --model llama-2-70b --context 1K,8K,32K --link 100gbe,ib-ndr
  kvbench predict --model opt-66b --context 512 --link 100gbe --rate 10/s
  kvbench predict --model llama-3.1-70b --context 8K --link 100gbe --gpu h100 --gpus 8 --overlap layer --saved 20%
  kvbench predict --model llama-3.1-8b --fit run.json --sweep context`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.fit != "" && !cmd.Flags().Changed("link") {
				f.links = nil
			}
			return a.predict(&f)
		},
	}
	f.shape.register(cmd, []string{"1K", "4K", "8K", "32K"})
	f.linkFlags.register(cmd)
	f.prefill.register(cmd, "how long a prefill takes, such as 500ms, or auto: computed, from --gpu")
	flags := cmd.Flags()
	flags.StringSliceVar(&f.links, "link", defaultLinks, linkHelp)
	flags.StringVar(&f.transport, "transport", "tcp", "what links of Ethernet carry: tcp, or rdma (RoCEv2)")
	flags.StringVar(&f.fit, "fit", "", "a run record: predict with what it measured of its path, in place of or beside --link")
	flags.StringVar(&f.rate, "rate", "", "requests a second that share the link, such as 10/s: adds utilization and waits")
	flags.StringVar(&f.overlap, "overlap", "none", "none: a request moves after its prefill; layer: each layer as it is made")
	flags.StringVar(&f.saved, "saved", "", "what disaggregation removes from a request's prefill, as a time or a share of it, such as 50ms or 20%: adds a verdict")
	flags.StringVar(&f.sweep, "sweep", "", "a row for each step of context, rate or bandwidth")
	registerFormat(cmd, &f.format)
	return cmd
}

// forecast is a prediction in progress: the state that all rows share.
type forecast struct {
	*predictFlags
	rank    bench.Rank
	routes  []route
	rates   []float64                 // requests per second; 0 means no load
	prefill *prefillTimes             // nil without a prefill
	sizes   map[int64]model.Transfers // by tokens
	// savedSeconds and savedShare hold --saved, in seconds or as a share of the prefill.
	savedSeconds, savedShare float64
	// cheap holds, by the route's name, the least context in tokens such that the exposed
	// transfer stays a small part of TTFT up to mostCheap, or 0 if there is none. It is
	// nil without a prefill that grows with the context.
	cheap map[string]int64
	table report.Table
}

func (a *app) predict(f *predictFlags) error {
	if err := checkFormat(f.format); err != nil {
		return err
	}
	p, specs, err := f.prepare()
	if err != nil {
		return err
	}
	p.findCheap(specs[0])
	for _, s := range specs {
		if err := p.add(s); err != nil {
			return err
		}
	}
	p.noteCheap()
	p.noteSpread(specs[0])
	p.table.Columns = p.headings()
	return a.print(p.table, f.format)
}

// prepare reads the flags. Every error is the caller's mistake.
func (f *predictFlags) prepare() (*forecast, []payload.Spec, error) {
	p := &forecast{predictFlags: f, sizes: make(map[int64]model.Transfers)}
	var err error
	if f.sweep == "context" {
		f.shape.context = doublings(256, 128<<10)
	}
	specs, err := f.shape.specs()
	if err != nil {
		return nil, nil, err
	}
	if p.rank, err = f.shape.parseRank(); err != nil {
		return nil, nil, err
	}
	if f.overlap != "none" && f.overlap != "layer" {
		return nil, nil, usagef("--overlap %q is not known: choose none or layer", f.overlap)
	}
	if !slices.Contains([]string{"", "context", "rate", "bandwidth"}, f.sweep) {
		return nil, nil, usagef("--sweep %q is not known: choose context, rate or bandwidth", f.sweep)
	}
	if p.routes, err = f.parseRoutes(); err != nil {
		return nil, nil, err
	}
	rate, err := parseArrivals(f.rate)
	if err != nil {
		return nil, nil, err
	}
	p.rates = []float64{rate}
	f.passOver()
	if p.prefill, err = f.prefill.times(specs[0].Geometry); err != nil {
		return nil, nil, err
	}
	if p.prefill == nil && (f.saved != "" || f.overlap == "layer") {
		return nil, nil, usagef("--saved and --overlap layer need the prefill: give --prefill, or --gpu")
	}
	if p.savedSeconds, p.savedShare, err = f.parseSaved(); err != nil {
		return nil, nil, err
	}
	for _, r := range p.routes {
		p.table.Notes = append(p.table.Notes, r.notes...)
	}
	if p.prefill != nil && p.prefill.estimate != nil {
		p.table.Notes = append(p.table.Notes, p.prefill.estimate.basis)
	}
	return p, specs, nil
}

// passOver drops prefill settings from the environment, which are meant for runs, if this
// prediction has no prefill.
func (f *predictFlags) passOver() {
	if f.prefill.gpu == "" && f.prefill.prefill == "auto" && fromVariable("prefill", "auto") {
		f.prefill.prefill = ""
	}
	if f.prefill.gpu != "" || f.prefill.prefill != "" {
		return
	}
	if fromVariable("overlap", f.overlap) {
		f.overlap = "none"
	}
	if fromVariable("saved", f.saved) {
		f.saved = ""
	}
}

func doublings(from, to int64) (list []string) {
	for n := from; n <= to; n *= 2 {
		list = append(list, strconv.FormatInt(n, 10))
	}
	return list
}

// mostSaved bounds --saved as a share of a prefill. It is far more than any node's queue.
const mostSaved = 1e4

// parseSaved parses --saved: seconds, or a share of the prefill alone on its node.
// Interference and queueing can exceed the whole prefill.
func (f *predictFlags) parseSaved() (seconds, share float64, err error) {
	if f.saved == "" {
		return 0, 0, nil
	}
	if strings.HasSuffix(f.saved, "%") {
		share, err := parseShare(f.saved)
		if err == nil && share > mostSaved {
			return 0, 0, usagef("--saved %q: give at most %.0f %% of the prefill, or a time", f.saved, 100*mostSaved)
		}
		if err == nil && share >= 0 {
			return 0, share, nil
		}
	} else if d, err := time.ParseDuration(f.saved); err == nil && d >= 0 {
		return d.Seconds(), 0, nil
	}
	return 0, 0, usagef("--saved %q is not a time such as 50ms, nor a share of the prefill such as 20%%", f.saved)
}

// add adds the rows of one context.
func (p *forecast) add(s payload.Spec) error {
	for _, r := range p.routes {
		scenario, err := p.scenario(r, s)
		if err != nil {
			return err
		}
		for _, scenario.ArrivalsPerSecond = range p.arrivals(scenario) {
			p.row(r, scenario)
		}
	}
	return nil
}

// noteSpread adds a note if layers overlap with prefill but only some of them move: the
// prefill is then spread over the layers that move. The rows of s must have been added.
func (p *forecast) noteSpread(s payload.Spec) {
	t, all := p.sizes[s.Tokens], s.Geometry.AttentionLayers()
	if p.overlap == "layer" && t.Layers() < all {
		p.table.Notes = append(p.table.Notes, fmt.Sprintf("prefill is spread evenly over the %s that move, of %d", units.Count(t.Layers(), "layer"), all))
	}
}

// transfers returns the transfers of one request of a context between the rank pair. It
// keeps them, because a search over contexts needs hundreds, over each route.
func (p *forecast) transfers(s payload.Spec) (model.Transfers, error) {
	if t, ok := p.sizes[s.Tokens]; ok {
		return t, nil
	}
	sizes, err := s.Sizes(p.rank.Prefill, p.rank.Decode)
	if err != nil {
		return model.Transfers{}, asUsage(err)
	}
	each := make([]model.Transfer, len(sizes))
	made := 0 // layers so far
	for i, z := range sizes {
		each[i] = model.Transfer{Descriptors: int(z.Descriptors), Bytes: z.Bytes, Layers: z.Ready - made}
		made = z.Ready
	}
	t := model.NewTransfers(each)
	p.sizes[s.Tokens] = t
	return t, nil
}

// scenario returns one request over one route, without load.
func (p *forecast) scenario(r route, s payload.Spec) (model.Scenario, error) {
	transfers, err := p.transfers(s)
	if err != nil {
		return model.Scenario{}, err
	}
	scenario := model.Scenario{
		ContextTokens: s.Tokens, Transfers: transfers,
		Path: r.cost, Overlap: p.overlap == "layer",
		SavedSeconds: p.savedSeconds, SavedShare: p.savedShare, SavedKnown: p.saved != "",
	}
	if p.prefill != nil {
		scenario.PrefillSeconds, scenario.LeastPrefillSeconds = p.prefill.seconds(s.Tokens), p.prefill.least(s.Tokens)
	}
	return scenario, nil
}

// cheapShare is the largest share of TTFT for a cheap exposed transfer.
const cheapShare = 0.05

// leastCheap and mostCheap bound the search for a cheap context, in tokens.
const leastCheap, mostCheap = 16, 1 << 20

// findCheap fills in cheap for a request alone on each route. It needs a prefill that
// grows with the context.
func (p *forecast) findCheap(s payload.Spec) {
	if p.prefill == nil || p.prefill.estimate == nil {
		return
	}
	p.cheap = make(map[string]int64)
	for _, r := range p.routes {
		p.cheap[r.name], _ = model.BreakEvenContext(leastCheap, mostCheap, func(tokens int64) bool {
			s.Tokens = tokens
			scenario, err := p.scenario(r, s)
			return err == nil && scenario.Outcome().ExposedShare <= cheapShare
		})
	}
}

// noteCheap adds the results of findCheap as notes.
func (p *forecast) noteCheap() {
	if p.cheap == nil {
		return
	}
	what := "the exposed transfer"
	if p.rates[0] > 0 || p.sweep == "rate" {
		what += " of a request alone"
	}
	for _, r := range p.routes {
		where := fmt.Sprintf("under %.0f %% of TTFT from %d tokens on", 100*cheapShare, p.cheap[r.name])
		switch p.cheap[r.name] {
		case 0:
			where = fmt.Sprintf("more than %.0f %% of TTFT up to 1M tokens", 100*cheapShare)
		case leastCheap:
			where = fmt.Sprintf("under %.0f %% of TTFT at any context", 100*cheapShare)
		}
		p.table.Notes = append(p.table.Notes, fmt.Sprintf("over %s %s is %s", r.name, what, where))
	}
}

// arrivals returns the loads of a scenario: the requested rate, or the steps of a sweep.
func (p *forecast) arrivals(s model.Scenario) []float64 {
	if p.sweep != "rate" {
		return p.rates
	}
	capacity := 1 / s.Outcome().TransferSeconds
	var rates []float64
	for _, utilization := range []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.05} {
		rates = append(rates, utilization*capacity)
	}
	return rates
}

const mostArrivals = 1e9 // per second

// parseArrivals parses 10/s, 600/m or 10 as arrivals per second. Empty is 0.
func parseArrivals(s string) (float64, error) {
	if s == "" {
		return 0, nil
	}
	number, unit, _ := strings.Cut(s, "/")
	per, ok := map[string]time.Duration{"": time.Second, "s": time.Second, "m": time.Minute, "min": time.Minute, "h": time.Hour}[unit]
	v, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(v > 0) || math.IsInf(v, 0) {
		return 0, usagef("--rate %q is not a rate such as 10/s", s)
	}
	if v > mostArrivals*per.Seconds() {
		return 0, usagef("--rate %q: give at most a thousand million requests a second", s)
	}
	return v / per.Seconds(), nil
}
