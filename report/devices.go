package report

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"kvbench/internal/hostinfo"
	"kvbench/transport"
)

// TransportState is the state of a transport of this build on this host.
type TransportState struct {
	Name         string
	Capabilities transport.Capabilities
	Err          error // the reason if it cannot be used, else nil
	Lanes        []transport.Lane
}

// Label is the name, followed by the memory if that is not host memory and differs from the
// name.
func (t TransportState) Label() string {
	can := t.Capabilities.Memory
	if slices.Contains(can, transport.HostMemory) || len(can) == 0 || string(can[0]) == t.Name {
		return t.Name
	}
	return fmt.Sprintf("%s (%s memory)", t.Name, can[0])
}

// CUDAState is the CUDA driver's view for this process.
type CUDAState struct {
	Devices []CUDADevice
	Links   []GPULink
	Version string // the newest CUDA that the driver supports
	Err     error  // the reason if there is no device; nil if there is one, or if the driver was not queried
}

// CUDADevice is a GPU in the CUDA driver's numbering.
type CUDADevice struct {
	Ordinal     int // as counted by --gpu-device and --memory cuda:N
	Name        string
	MemoryBytes int64
	PCIAddress  string
	UUID        string
}

// GPULink is the link between two devices.
type GPULink struct {
	Ordinal, Peer int
	Link          string // such as "NVLink 4 x18 through NVSwitch"; empty if unknown
	Err           error  // the reason if Link is unknown
}

// DevicesView is the output of `kvbench devices`: a host's devices and limits, and the
// transports and lanes that can use them.
type DevicesView struct {
	Inventory  hostinfo.Inventory
	CUDA       CUDAState
	Transports []TransportState
}

// Table holds all data for programs: a row for each item, with its kind in the first key. A
// row has only the keys of its kind; CSV has the columns of all kinds.
func (v DevicesView) Table() Table {
	sections := v.sections()
	var t Table
	place := make(map[string]int)
	for _, key := range keysOf(sections) {
		place[key] = len(t.Columns)
		t.Columns = append(t.Columns, Column{key, key})
	}
	for _, s := range sections {
		if s.kind == "" {
			continue
		}
		for _, cells := range s.rows {
			row := slices.Repeat([]Cell{{Value: Absent}}, len(t.Columns))
			row[place["kind"]] = Cell{s.kind, s.kind}
			for i, c := range cells {
				if key := s.columns[i].Key; key != "" {
					row[place[key]] = c
				}
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// keysOf lists the keys of all kinds, each once: the kind first, the faults last.
func keysOf(sections []section) []string {
	first, last := []string{"kind"}, []string{"reason", "mend"}
	for _, s := range sections {
		for _, c := range s.columns {
			if c.Key != "" && !slices.Contains(first, c.Key) && !slices.Contains(last, c.Key) {
				first = append(first, c.Key)
			}
		}
	}
	return append(first, last...)
}

// WriteText prints a short table for each kind, followed by the faults of its items.
func (v DevicesView) WriteText(w io.Writer) error {
	var b bytes.Buffer
	for _, s := range v.sections() {
		if s.title == "" {
			continue
		}
		if b.Len() > 0 {
			fmt.Fprintln(&b)
		}
		if err := s.writeText(&b); err != nil {
			return err
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// sections are the kinds in the order of display.
func (v DevicesView) sections() []section {
	i := v.Inventory
	ports := portsOf(i.RDMA)
	return []section{
		newSection("nic", "Network interfaces", i.NICs, nicColumns, func(n hostinfo.NIC) (string, hostinfo.Fault) { return n.Name, n.Fault }).lacking(i.Missing, "nic"),
		newSection("rdma", "RDMA devices", ports, rdmaColumns, port.fault).lacking(i.Missing, "rdma"),
		newSection("", "GIDs of RDMA ports", gidsOf(ports), gidColumns, nil).optional(),
		newSection("", "Counters of RDMA ports", countersOf(ports), counterColumns, nil).optional(),
		newSection("gpu", "GPUs", i.GPUs, gpuColumns, nil).lacking(i.Missing, "gpu"),
		v.cuda(),
		v.links(),
		newSection("numa", "NUMA nodes", i.NUMA, numaColumns, nil).optional(),
		newSection("limit", "Limits", limitsOf(i.Limits, i.Missing), limitColumns, limit.fault).optional(),
		newSection("transport", "Transports of this build", v.Transports, transportColumns, transportFault),
		newSection("lane", "Lanes", lanesOf(v.Transports), laneColumns, lane.fault).optional(),
		newSection("missing", "", i.Missing, missingColumns, nil),
	}
}

// cuda lists the CUDA driver's devices, or gives the reason for an empty list.
func (v DevicesView) cuda() section {
	var rows []cudaRow
	for _, d := range v.CUDA.Devices {
		rows = append(rows, cudaRow{d, v.CUDA.Version})
	}
	s := newSection("cuda", "CUDA devices", rows, cudaColumns, nil)
	if v.CUDA.Err == nil {
		return s.optional()
	}
	s.faults = append(s.faults, "none: "+v.CUDA.Err.Error())
	return s
}

// links lists the links between devices, and each reason for an unknown link once.
func (v DevicesView) links() section {
	s := newSection("gpu_link", "Links between CUDA devices", v.CUDA.Links, gpuLinkColumns, nil)
	for _, l := range v.CUDA.Links {
		if l.Err == nil {
			continue
		}
		if reason := "unknown: " + l.Err.Error(); !slices.Contains(s.faults, reason) {
			s.faults = append(s.faults, reason)
		}
	}
	return s.optional()
}

// section is one kind: its rows, and the sentences under them. Without a kind it is for
// people only, without a title for programs only.
type section struct {
	kind, title string
	columns     []Column
	rows        [][]Cell
	faults      []string
}

// column is a column of a kind, with the function that fills it from an item.
type column[T any] struct {
	key, head string
	cell      func(T) Cell
}

// newSection makes a row of each thing. fault, if not nil, returns a thing's name and
// fault.
func newSection[T any](kind, title string, things []T, columns []column[T], fault func(T) (string, hostinfo.Fault)) section {
	s := section{kind: kind, title: title}
	for _, c := range columns {
		s.columns = append(s.columns, Column{c.key, c.head})
	}
	for _, thing := range things {
		row := make([]Cell, len(columns))
		for i, c := range columns {
			row[i] = c.cell(thing)
		}
		s.rows = append(s.rows, row)
		if fault != nil {
			s.faults = append(s.faults, sentences(fault(thing))...)
		}
	}
	return s
}

// sentences describes a fault and its fix; it is empty without a fault.
func sentences(name string, f hostinfo.Fault) []string {
	if f.Reason == "" {
		return nil
	}
	lines := []string{name + ": " + f.Reason}
	if f.Mend != "" {
		lines = append(lines, "  mend: "+f.Mend)
	}
	return lines
}

// lacking adds the reason for the absence of a section's kind.
func (s section) lacking(missing []hostinfo.Missing, name string) section {
	for _, m := range missing {
		if m.Name == name {
			s.faults = append(s.faults, sentences("none", m.Fault)...)
		}
	}
	return s
}

// optional omits a section from the text if it has no rows.
func (s section) optional() section {
	if len(s.rows) == 0 {
		s.title = ""
	}
	return s
}

func (s section) writeText(w *bytes.Buffer) error {
	fmt.Fprintln(w, s.title)
	var b bytes.Buffer
	if len(s.rows) > 0 {
		if err := (Table{Columns: s.shown(), Rows: s.rows, Left: true}).Write(&b, Text); err != nil {
			return err
		}
	}
	for _, f := range s.faults {
		fmt.Fprintln(&b, printable(f))
	}
	for line := range strings.Lines(b.String()) {
		w.WriteString("  " + line)
	}
	return nil
}

// shown omits columns that are empty in every row of the text.
func (s section) shown() []Column {
	columns := slices.Clone(s.columns)
	for i := range columns {
		if !slices.ContainsFunc(s.rows, func(row []Cell) bool { return row[i].Text != "" && row[i].Text != "-" }) {
			columns[i].Head = ""
		}
	}
	return columns
}
