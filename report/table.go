// Package report formats records and predictions for people and programs: aligned text with
// scaled units, JSON rows, and CSV with units in the keys.
package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
)

// Format is a way to print a table.
type Format string

// The formats.
const (
	Text Format = "text"
	JSON Format = "json"
	CSV  Format = "csv"
)

// ParseFormat reads a Format.
func ParseFormat(s string) (Format, error) {
	switch f := Format(s); f {
	case Text, JSON, CSV:
		return f, nil
	}
	return "", fmt.Errorf("format %q is not known: choose text, json or csv", s)
}

// Column is one column of a table.
type Column struct {
	Key  string // in JSON and CSV, with its unit; empty omits the column there
	Head string // in text; empty omits the column there
}

// Cell is one value: Value for programs (nil is null in JSON, Absent omits the key), Text
// for people.
type Cell struct {
	Value any
	Text  string
}

type absent struct{}

// Absent is the value of a key that a JSON row omits.
var Absent = absent{}

// Table is rows under columns.
type Table struct {
	Columns []Column
	Rows    [][]Cell
	Notes   []string // lines under the text table, and beside the rows of JSON
	Left    bool     // align the text left: for words rather than numbers
}

// Write prints the table.
func (t Table) Write(w io.Writer, f Format) error {
	switch f {
	case JSON:
		return t.writeJSON(w)
	case CSV:
		return t.writeCSV(w)
	}
	return t.writeText(w)
}

func (t Table) writeText(w io.Writer) error {
	var b bytes.Buffer
	align, end := tabwriter.AlignRight, "\t"
	if t.Left {
		align, end = 0, "" // the last column needs no padding
	}
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', align)
	line := func(text func(int) string) {
		var cells []string
		for i, c := range t.Columns {
			if c.Head != "" {
				cells = append(cells, printable(text(i)))
			}
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t")+end)
	}
	line(func(i int) string { return t.Columns[i].Head })
	for _, row := range t.Rows {
		line(func(i int) string { return row[i].Text })
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, n := range t.Notes {
		fmt.Fprintln(&b, printable(n))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// printable replaces control characters, since text may come from a file.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

func (t Table) writeJSON(w io.Writer) error {
	var b bytes.Buffer
	b.WriteString("{\"rows\": [")
	for i, row := range t.Rows {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString("\n  {")
		first := true
		for j, c := range t.Columns {
			if c.Key == "" || row[j].Value == Absent {
				continue
			}
			if !first {
				b.WriteString(", ")
			}
			first = false
			v, err := json.Marshal(row[j].Value)
			if err != nil {
				return fmt.Errorf("print %s: %w", c.Key, err)
			}
			fmt.Fprintf(&b, "%q: %s", c.Key, v)
		}
		b.WriteString("}")
	}
	b.WriteString("\n], \"notes\": [")
	for i, n := range t.Notes {
		v, err := json.Marshal(n)
		if err != nil {
			return fmt.Errorf("print a note: %w", err)
		}
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, "\n  %s", v)
	}
	if len(t.Notes) > 0 {
		b.WriteString("\n")
	}
	b.WriteString("]}\n")
	_, err := w.Write(b.Bytes())
	return err
}

func (t Table) writeCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	line := func(text func(int) string) error {
		var fields []string
		for i, col := range t.Columns {
			if col.Key != "" {
				fields = append(fields, text(i))
			}
		}
		return c.Write(fields)
	}
	if err := line(func(i int) string { return t.Columns[i].Key }); err != nil {
		return err
	}
	for _, row := range t.Rows {
		err := line(func(i int) string {
			if row[i].Value == nil || row[i].Value == Absent {
				return ""
			}
			v, err := json.Marshal(row[i].Value)
			if err != nil {
				return ""
			}
			var s string
			if json.Unmarshal(v, &s) == nil {
				return s
			}
			return string(v)
		})
		if err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}
