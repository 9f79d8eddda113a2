package report

import (
	"fmt"
	"strconv"
	"strings"

	"kvbench/internal/hostinfo"
	"kvbench/internal/units"
)

// Cells of facts that may be unknown: null for programs, - for people.

func word(s string) Cell {
	if s == "" {
		return Cell{nil, "-"}
	}
	return Cell{s, s}
}

// words is a list; an empty list is [], not null.
func words(s []string) Cell {
	return Cell{append([]string{}, s...), word(strings.Join(s, " ")).Text}
}

func count(n int) Cell {
	if n == 0 {
		return Cell{nil, "-"}
	}
	return Cell{n, strconv.Itoa(n)}
}

func known(v float64) Cell {
	if v == 0 {
		return Cell{nil, "-"}
	}
	return Cell{WholeNumber(v), number(v)}
}

func bitRate(bytesPerSecond float64) Cell {
	c := known(bytesPerSecond)
	if bytesPerSecond != 0 {
		c.Text = units.BitRate(bytesPerSecond)
	}
	return c
}

func size(n int64) Cell {
	if n == 0 {
		return Cell{nil, "-"}
	}
	return Cell{n, units.BinaryBytes(n)}
}

func numaNode(n int) Cell {
	if n == hostinfo.UnknownNode {
		return Cell{nil, "-"}
	}
	return Cell{n, strconv.Itoa(n)}
}

func pcieLink(p hostinfo.PCI) string {
	if p.BytesPerSecond() == 0 {
		return "-"
	}
	return fmt.Sprintf("%g GT/s x%d", p.GTPerSecond, p.Width)
}

func yes(b bool) Cell { return Cell{b, ifElse(b, "yes", "no")} }

func ifElse(b bool, yes, no string) string {
	if b {
		return yes
	}
	return no
}
