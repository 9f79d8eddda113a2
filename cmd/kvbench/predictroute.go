package main

import (
	"errors"
	"fmt"
	"slices"

	"kvbench/bench"
	"kvbench/internal/units"
	"kvbench/model"
	"kvbench/report"
	"kvbench/results"
)

// route is a path for the bytes: a link's spec, or a fit.
type route struct {
	name string
	cost model.Cost
	// lineRate is the base of the overhead, in bytes per second; 0 means the cost's
	// bandwidth.
	lineRate float64
	// framingFactor is the payload's share of the line rate, and framingBasis explains it
	// for people. A fit has it in its bandwidth.
	framingFactor float64
	framingBasis  string
	notes         []string
	fit           *model.Fit // nil for a spec
}

// defaultLinks are predict's links if none is named. A default link that does not fit
// --mtu or --framing is left out, with a note.
var defaultLinks = []string{"100gbe", "ib-ndr", "nvlink4"}

// bandwidthSteps are the multiples of a link's rate in a sweep.
var bandwidthSteps = []float64{1. / 8, 1. / 4, 1. / 2, 1, 2, 4, 8}

func (f *predictFlags) parseRoutes() ([]route, error) {
	framing, err := f.parse()
	if err != nil {
		return nil, err
	}
	// The environment may hold cuda, which crosses no Ethernet. It is meant for runs.
	if !slices.Contains([]string{"tcp", "rdma", "cuda"}, f.transport) {
		return nil, usagef("--transport %q is not known: choose tcp or rdma", f.transport)
	}
	routes, leftOut, err := f.specRoutes(framing)
	if err != nil {
		return nil, err
	}
	if f.fit != "" {
		r, err := fittedRoute(f.fit)
		if err != nil {
			return nil, err
		}
		routes = append(routes, r)
	}
	for _, why := range leftOut {
		if len(routes) == 0 {
			return nil, why
		}
		routes[0].notes = append(routes[0].notes, fmt.Sprintf("left out: %v", why))
	}
	if len(routes) == 0 {
		return nil, usagef("--link is empty: name one, such as 100gbe")
	}
	return routes, nil
}

// specRoutes returns the links at each step of a sweep, and the reasons why default links
// are left out.
func (f *predictFlags) specRoutes(framing model.Framing) (routes []route, leftOut []error, err error) {
	steps := []float64{1}
	if f.sweep == "bandwidth" {
		steps = bandwidthSteps
	}
	byDefault := slices.Equal(f.links, defaultLinks)
	for _, name := range f.links {
		link, err := f.parseLink(name, framing)
		if byDefault && errors.Is(err, model.ErrFraming) {
			leftOut = append(leftOut, err)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if slices.ContainsFunc(routes, func(r route) bool { return r.name == link.Name }) {
			return nil, nil, usagef("--link names %s twice", link.Name)
		}
		for _, step := range steps {
			l := link
			if l.BytesPerSecond *= step; step != 1 {
				l.Name = fmt.Sprintf("%s x%g", link.Name, step)
			}
			routes = append(routes, f.specRoute(l, framing))
		}
	}
	return routes, leftOut, nil
}

func (f *predictFlags) parseLink(name string, framing model.Framing) (model.Link, error) {
	if name == "auto" {
		return model.Link{}, usagef("--link auto: predict moves nothing, so it has no path whose rate it could read; name the link, such as 100gbe or 25Gbit/s, or give --fit RUN.json of a run over the path")
	}
	if name == "" {
		return model.Link{}, usagef("--link has an empty part: name a link between the commas, such as 100gbe")
	}
	link, err := model.ParseLink(name)
	if err != nil {
		return link, usagef("--link: %w", err)
	}
	if f.transport == "rdma" {
		link = link.OverRDMA()
	}
	if err := link.Check(f.mtu, framing); err != nil {
		return link, usagef("--link %s: %w", link.Name, err)
	}
	return link, nil
}

// specRoute returns a link as its data sheet describes it.
func (f *predictFlags) specRoute(l model.Link, framing model.Framing) route {
	_, factor, basis := l.Goodput(f.mtu, framing)
	return route{
		name: l.Name, lineRate: l.BytesPerSecond, framingFactor: factor, framingBasis: basis,
		cost:  model.SpecCost(l, f.mtu, framing, f.alpha, f.gamma),
		notes: []string{fmt.Sprintf("%s: %s one way; %s", l.Name, units.BitRate(l.BytesPerSecond), basis)},
	}
}

// fittedRoute returns the path that a run calibrated.
func fittedRoute(path string) (route, error) {
	record, err := results.ReadFile(path)
	if err != nil {
		return route{}, err
	}
	fit, found, err := bench.FitOf(record)
	if err != nil {
		return route{}, fmt.Errorf("--fit %s: %w", path, err)
	}
	notes := []string{fmt.Sprintf("fit: as measured over %s: %s", record.Transport.Lane, report.FitText(found))}
	for _, n := range found.Notes {
		notes = append(notes, "fit: "+n)
	}
	return route{name: "fit", cost: fit.Cost(), fit: fit, notes: notes}, nil
}
