package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kvbench/model"
)

// settings are the current values of a command's flags, from the command line, the
// environment or defaults.
type settings struct{ flags *pflag.FlagSet }

// text returns a flag's value as text, or an empty string if the command lacks the flag.
func (s settings) text(name string) string {
	f := s.flags.Lookup(name)
	if f == nil {
		return ""
	}
	return f.Value.String()
}

func (s settings) is(name string, values ...string) bool {
	return slices.Contains(values, s.text(name))
}

func (s settings) given(name string) bool { return !s.is(name, "", "false") }

// framingGiven reports whether --framing is off or a factor, so that no headers are
// counted.
func (s settings) framingGiven() bool { return !s.is("framing", "auto", "shaped") }

const besideFraming = "beside a --framing that does not come from it: leave one of the two out"

// onlyNVLink reports whether every named link is NVLink, which has no headers to count.
func (s settings) onlyNVLink() bool {
	return !s.anyLink(func(k model.LinkKind) bool { return k != model.NVLink })
}

// noEthernet reports whether no named link is Ethernet.
func (s settings) noEthernet() bool {
	return !s.anyLink(func(k model.LinkKind) bool { return k == model.Ethernet })
}

// anyLink reports whether any named link satisfies the predicate or cannot be parsed.
func (s settings) anyLink(is func(model.LinkKind) bool) bool {
	names := strings.Split(strings.Trim(s.text("link"), "[]"), ",")
	return slices.ContainsFunc(names, func(name string) bool {
		l, err := model.ParseLink(name)
		return err != nil || is(l.Kind)
	})
}

// fitAlone reports whether predict uses a fit and no link.
func (s settings) fitAlone() bool { return s.given("fit") && !s.flags.Changed("link") }

// idle is a rule for flags that have no effect beside others. Such a flag is refused, not
// ignored, because the user who wrote it expects an effect.
type idle struct {
	commands []string // commands that the rule applies to; nil: all with the flags
	flags    []string
	when     func(settings) bool
	why      string // follows "--flag has no effect", and gives advice
}

var (
	runCommands  = []string{"loopback", "producer"}
	sizeCommands = []string{"shape", "predict"}
	// specFlags describe the data sheet of the named link.
	specFlags = []string{"mtu", "framing", "alpha", "gamma"}
	// judgeFlags control the comparison of measurements with predictions.
	judgeFlags = []string{"check", "tolerance", "against"}
	// gpuFlags are the inputs of a computed prefill.
	gpuFlags = []string{"gpu", "gpus", "mfu", "gpu-fp8"}
)

var idleFlags = []idle{
	{
		[]string{"shape"},
		[]string{"model", "context", "kv-dtype", "layers", "tp", "tp-decode", "pp", "pp-decode", "rank", "layout", "block-tokens", "block-order", "cross-layer", "fragmentation"},
		func(s settings) bool { return s.given("list") },
		"on --list, which shows every model: leave one of the two out",
	},
	{
		nil, []string{"fragmentation", "cross-layer"},
		func(s settings) bool { return s.is("layout", "contiguous") },
		"on the contiguous layout: add --layout paged",
	},
	{
		sizeCommands, []string{"block-tokens"},
		func(s settings) bool { return s.is("layout", "contiguous") },
		"on the contiguous layout: add --layout paged",
	},
	{
		runCommands, []string{"arrivals"},
		func(s settings) bool { return !s.given("rate") },
		"in a closed loop: add --rate, such as 10/s",
	},
	{
		runCommands, []string{"lane", "rdma-op"},
		func(s settings) bool { return !s.is("transport", "rdma") },
		"without --transport rdma: add it",
	},
	{
		runCommands, []string{"socket-buffer"},
		func(s settings) bool { return s.is("transport", "rdma") },
		"on rdma, whose sockets are UCX's (UCX_TCP_SNDBUF): leave it out",
	},
	{
		runCommands, []string{"hugepages", "lock"},
		func(s settings) bool { return s.is("lane", "shm") },
		"on lane shm, whose memory UCX makes (UCX_ALLOC_PRIO): leave it out",
	},
	{
		runCommands, []string{"gpu-device"},
		func(s settings) bool { return s.is("memory", "host") && !s.is("transport", "cuda") },
		"on host memory: add --memory cuda:0, or --transport cuda",
	},
	{
		runCommands, []string{"hugepages", "lock"},
		func(s settings) bool { return !s.is("memory", "host") || s.is("transport", "cuda") },
		"on GPU memory: leave it out",
	},
	{
		runCommands, []string{"socket-buffer", "device"},
		func(s settings) bool { return s.is("transport", "cuda") },
		"on CUDA IPC, which uses no network: leave it out",
	},
	{
		runCommands, []string{"requests"},
		func(s settings) bool { return !s.is("duration", "0s") },
		"beside --duration, which measures for so long instead: leave one of the two out",
	},
	{
		runCommands, []string{"prefill"},
		func(s settings) bool { return s.is("overlap", "none") },
		"unless it is emulated: add --overlap layer",
	},
	{
		runCommands, gpuFlags,
		func(s settings) bool { return !s.is("prefill", "auto") },
		"unless the prefill is computed from it: add --overlap layer --prefill auto",
	},
	{
		[]string{"predict"}, gpuFlags,
		func(s settings) bool { return !s.is("prefill", "", "auto") },
		"beside a --prefill of a given length: leave one of the two out",
	},
	{
		nil, []string{"gpus", "mfu", "gpu-fp8"},
		func(s settings) bool { return !s.given("gpu") },
		"without --gpu: add one of " + strings.Join(model.GPUNames(), ", "),
	},
	{
		[]string{"predict"}, []string{"context"},
		func(s settings) bool { return s.is("sweep", "context") },
		"beside --sweep context, which has steps of its own: leave one of the two out",
	},
	{
		[]string{"predict"}, []string{"rate"},
		func(s settings) bool { return s.is("sweep", "rate") },
		"beside --sweep rate, which has steps of its own: leave one of the two out",
	},
	{
		[]string{"predict"}, append([]string{"transport"}, specFlags...),
		settings.fitAlone,
		"on a fit, which measured it: leave it out, or add --link",
	},
	{
		[]string{"predict"}, []string{"sweep"},
		func(s settings) bool { return s.is("sweep", "bandwidth") && s.fitAlone() },
		"on bandwidth with --fit alone, whose bandwidth was measured: add --link",
	},
	{
		[]string{"loopback"}, specFlags,
		func(s settings) bool { return s.is("link", "auto") },
		"without a link, and loopback has none of its own: add --link, such as 100gbe",
	},
	{
		[]string{"loopback"}, judgeFlags,
		func(s settings) bool {
			return s.is("link", "auto") && (s.is("calibrate", "off") || s.is("against", "[spec]"))
		},
		"where nothing is predicted that it could judge: add --link, or judge by the fit",
	},
	{
		runCommands, judgeFlags,
		func(s settings) bool { return s.is("calibrate", "off") && s.is("against", "[fit]") },
		"where nothing is predicted that it could judge: leave --calibrate on, or judge by --link",
	},
	{
		nil, []string{"mtu"},
		settings.framingGiven, besideFraming,
	},
	{
		[]string{"predict"}, []string{"transport"},
		func(s settings) bool { return s.is("transport", "cuda") },
		"in a prediction, which takes what joins two GPUs as a link: add --link, such as nvlink4 or pcie5x16",
	},
	{
		[]string{"predict"}, []string{"transport"},
		func(s settings) bool { return s.is("transport", "rdma") && s.noEthernet() },
		"on links that are no Ethernet, which are counted as what they are: leave it out",
	},
	{
		[]string{"predict"}, []string{"transport"},
		settings.framingGiven, besideFraming,
	},
	{
		nil, []string{"mtu"},
		settings.onlyNVLink,
		"on NVLink, whose headers are not published: leave it out",
	},
	{
		[]string{"consumer"}, []string{"max-sessions"},
		func(s settings) bool { return s.given("once") },
		"beside --once, which serves one run: leave one of the two out",
	},
	{
		[]string{"consumer"}, []string{"insecure"},
		func(s settings) bool { return s.given("token") },
		"beside --token, which producers must know: leave one of the two out",
	},
}

// written returns the flags that a command line uses. An empty or false value, such as
// --token "", does not count as use.
func written(flags *pflag.FlagSet) (names []string) {
	flags.Visit(func(f *pflag.Flag) {
		if (settings{flags}).given(f.Name) {
			names = append(names, f.Name)
		}
	})
	return names
}

// refuseIdle returns a usage error for the written flags that have no effect, each with
// the first reason. Flags from the environment are exempt: they are set for many commands
// at once.
func refuseIdle(cmd *cobra.Command, written []string) error {
	var found []string
	for _, i := range idleOf(cmd) {
		if slices.Contains(written, i.flag) {
			found = append(found, fmt.Sprintf("--%s has no effect %s", i.flag, i.why))
		}
	}
	return usageOf(found)
}

// doingNothing is a flag that has no effect beside the others, given or not, and the
// first reason.
type doingNothing struct{ flag, why string }

// idleOf returns a command's flags that have no effect under the current values of the
// others, in the order of the rules.
func idleOf(cmd *cobra.Command) (found []doingNothing) {
	for _, rule := range idleFlags {
		if rule.commands != nil && !slices.Contains(rule.commands, cmd.Name()) || !rule.when(settings{cmd.Flags()}) {
			continue
		}
		for _, name := range rule.flags {
			if !slices.ContainsFunc(found, func(i doingNothing) bool { return i.flag == name }) {
				found = append(found, doingNothing{name, rule.why})
			}
		}
	}
	return found
}

// usageOf joins the findings into one usage error, or returns nil if there are none.
func usageOf(found []string) error {
	if len(found) == 0 {
		return nil
	}
	return usagef("%s", strings.Join(found, "; "))
}

// bound is the range of a number.
type bound struct {
	flags []string
	holds func(float64) bool
	mend  string
}

var bounds = []bound{
	{[]string{"tp", "pp", "gpus", "concurrency", "streams", "requests", "max-sessions"}, func(v float64) bool { return v >= 1 }, "give at least 1"},
	{[]string{"tp-decode", "pp-decode"}, func(v float64) bool { return v >= 1 }, "give at least 1, or leave it out for as many as at prefill"},
	{[]string{"block-tokens"}, func(v float64) bool { return v >= 1 }, "a block has at least one token; 16 is usual"},
	{[]string{"gpu-device"}, func(v float64) bool { return v >= 0 }, "give the number of a GPU, from 0"},
	{[]string{"warmup"}, func(v float64) bool { return v >= 0 }, "give 0 or more"},
	{[]string{"mtu"}, func(v float64) bool { return v >= 0 }, "give bytes, such as 1500"},
	{[]string{"alpha", "gamma"}, func(v float64) bool { return v >= 0 && v <= 3600 }, "give a time from 0 to 3600 seconds"},
	{[]string{"mfu"}, func(v float64) bool { return v >= 1e-12 && v <= 1 }, "give the share of the peak that prefill reaches, at least 1e-12 and at most 1; usual is 0.2 to 0.6"},
	{[]string{"fragmentation"}, func(v float64) bool { return v >= 0 && v <= 1 }, "give a share from 0 to 1"},
}

// refuseOutOfBounds returns a usage error for numbers out of range, among the flags that
// were set.
func refuseOutOfBounds(flags *pflag.FlagSet) error {
	var found []string
	for _, b := range bounds {
		for _, name := range b.flags {
			if f := flags.Lookup(name); f != nil && f.Changed {
				// The parser has already refused a value that is no number.
				if v, err := strconv.ParseFloat(f.Value.String(), 64); err == nil && !b.holds(v) {
					found = append(found, fmt.Sprintf("--%s %s: %s", name, f.Value, b.mend))
				}
			}
		}
	}
	return usageOf(found)
}

// kinds describes the values of each type of flag.
var kinds = map[string]string{
	"bool":        "true or false",
	"int":         "a whole number such as 8",
	"uint64":      "a whole number from 0 on",
	"float64":     "a number such as 0.5",
	"duration":    "a time such as 30s or 5m",
	"stringSlice": "a list with commas between its parts",
}

// inPlainWords replaces the parser's error with a description of the values that the flag
// takes.
func inPlainWords(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	kind, ok := kinds[bad.GetFlag().Value.Type()]
	if !ok {
		return err
	}
	return fmt.Errorf("--%s %q is not %s", bad.GetFlag().Name, bad.GetValue(), kind)
}
