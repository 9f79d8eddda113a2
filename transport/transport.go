// Package transport is the contract between a benchmark run and the thing that
// moves bytes: one-sided WRITE and READ between registered memory of two
// processes, completed only on delivery.
//
// One side is the initiator: it posts transfers. The other is the target: its
// memory is written or read, and it is told of each transfer that was
// delivered. Which side dials and which listens is a separate question, so that
// only one host needs a reachable port: Dial makes an initiator and DialTarget
// a target, and a Listener accepts the opposite role.
//
// Everything that must reach the peer before data can flow (the listener's
// Address, the Advertisement of the target's memory) is opaque bytes carried by
// the caller's control channel.
//
// The package is called by bench and implemented by the packages below it. It
// uses the standard library only. Package transporttest holds the conformance
// suite that every implementation passes.
package transport

import (
	"context"
	"time"
)

// Transport makes connections of one kind. Its methods are safe for concurrent use.
type Transport interface {
	// Name is what the command line calls the transport: tcp, rdma, cuda.
	Name() string

	// Probe returns nil where the transport can be used on this host. Otherwise
	// it returns an error that wraps ErrUnavailable and says what is missing and
	// how to mend it.
	Probe(ctx context.Context) error

	// Capabilities says what the transport can do, as data.
	Capabilities() Capabilities

	// Listen opens a place to connect to. The context bounds the call only.
	Listen(ctx context.Context, cfg Config) (Listener, error)

	// Dial connects as initiator to a listener that calls AcceptTarget.
	Dial(ctx context.Context, addr Address, cfg Config) (Initiator, error)

	// DialTarget connects as target to a listener that calls AcceptInitiator.
	DialTarget(ctx context.Context, addr Address, cfg Config) (Target, error)
}

// Checker is implemented by a transport whose Probe cannot say whether it can be
// used with every configuration: lanes and devices.
type Checker interface {
	// Check returns nil where connections with cfg can be made on this host.
	// Otherwise it returns an error that wraps ErrUnavailable, or ErrUnsupported for
	// a configuration that can never be.
	Check(ctx context.Context, cfg Config) error
}

// DirectMover is implemented by a transport that moves GPU memory by itself where this
// host has what that takes. It does so with a Config whose Memory is CUDAMemory.
type DirectMover interface {
	// CheckDirect returns nil where connections with cfg move GPU memory with nothing of
	// the host's memory in between, as far as this side is concerned. Otherwise its error
	// says what is in the way.
	CheckDirect(ctx context.Context, cfg Config) error
}

// Allocator is implemented by an endpoint that moves data best, or only, in memory
// of its own making.
type Allocator interface {
	// Allocate returns size bytes of memory, or ErrUnsupported where any memory does
	// as well. It is to be registered like other memory, and lives until Free, also
	// where the connection has ended by itself. It is not for use after Close.
	Allocate(size int64) (Memory, error)
	// Free gives back memory that Allocate returned and that is not registered. It may
	// come after Close.
	Free(m Memory) error
}

// Copier is implemented by an endpoint whose Allocate returns memory that Go must not
// touch. Its copies have ended when they return. They may be slow: callers keep them
// apart from transfers.
type Copier interface {
	// CopyIn copies from to the memory at off. A range outside the memory is
	// ErrBounds; memory that Allocate did not return is ErrRegion.
	CopyIn(m Memory, off int64, from []byte) error
	// CopyOut copies the memory at off to to. Its errors are those of CopyIn.
	CopyOut(m Memory, off int64, to []byte) error
}

// Address says how to reach a Listener. Its content belongs to the transport; it
// may hold a secret that admits the dialler, so it travels only on an
// authenticated control channel.
type Address []byte

// Advertisement describes a target's registered regions to an initiator. Its
// content belongs to the transport.
type Advertisement []byte

// Capabilities says what a transport can do.
type Capabilities struct {
	Write        bool         // the initiator can write the target's memory
	Read         bool         // the initiator can read the target's memory
	Memory       []MemoryKind // kinds of memory that can be registered
	HostBytes    int64        // host memory that each side of a connection takes beside what is registered
	SameHostOnly bool         // both processes must run on one host
	MaxStreams   int          // largest Config.Streams; 0 is no limit
}

// MemoryKind is where memory lives.
type MemoryKind string

// The kinds of memory.
const (
	HostMemory MemoryKind = "host"
	CUDAMemory MemoryKind = "cuda"
)

// Memory is a piece of memory to register. The caller keeps it alive and in
// place until the region is deregistered or the connection closed.
type Memory struct {
	Kind  MemoryKind
	Bytes []byte // host memory

	// Device memory, which Go must not touch.
	Device  int
	Pointer uintptr
	Length  int64
}

// HostBytes describes host memory.
func HostBytes(b []byte) Memory { return Memory{Kind: HostMemory, Bytes: b} }

// Size returns the length in bytes.
func (m Memory) Size() int64 {
	if m.Kind == CUDAMemory {
		return m.Length
	}
	return int64(len(m.Bytes))
}

// Config is what a connection is made with. The zero value is usable.
type Config struct {
	// Listen is where a network transport binds its listener, as host:port; port
	// 0 lets the kernel choose. Empty means 127.0.0.1:0.
	Listen string `json:"listen,omitempty"`
	// Advertise is the host that a dialler should use in place of the bound one,
	// for a listener bound to every interface. Empty keeps the bound host.
	Advertise string `json:"advertise,omitempty"`
	// Streams is how many parallel connections carry one initiator's transfers. 0 means 1.
	Streams int `json:"streams"`
	// MaxOutstanding bounds the transfers posted and not yet completed. 0 means 256.
	MaxOutstanding int `json:"max_outstanding"`
	// MaxDescriptors bounds the descriptors of one transfer. 0 means 1<<20.
	MaxDescriptors int `json:"max_descriptors"`
	// SocketBuffer is the size of each socket's send and receive buffer in bytes. 0
	// leaves them to the kernel.
	SocketBuffer int `json:"socket_buffer_bytes,omitempty"`
	// BusyPoll spins for data instead of sleeping: a lower and steadier latency
	// for a whole core.
	BusyPoll bool `json:"busy_poll,omitempty"`
	// PeerTimeout is how long a peer that stopped answering keeps a transfer
	// outstanding before it fails with ErrPeer. 0 means 10 s.
	PeerTimeout time.Duration `json:"peer_timeout_ns,omitempty"`
	// Lane is the kind of path that must carry the data, where a transport has
	// several. A connection that finds itself on another fails. Empty is the
	// transport's own meaning.
	Lane string `json:"lane,omitempty"`
	// Operation is how a transfer is carried out, where a transport has several
	// ways. Empty is the transport's choice.
	Operation string `json:"operation,omitempty"`
	// Memory is the kind of memory that the connection moves, where a transport has
	// several. Empty is host memory.
	Memory MemoryKind `json:"-"`
	// GPU is the CUDA device of this side in whose memory Allocate makes memory, as
	// this process counts its devices. Each side has its own.
	GPU int `json:"-"`
	// Device is the device of this side that must carry the data. Empty leaves it to
	// the transport. Each side has its own.
	Device string `json:"-"`
	// Zone is the dialler's IPv6 zone, such as eth0, in which a link-local address of a
	// listener is to be dialled: the listener's own zone means nothing on another host.
	// Empty keeps the one that the address has.
	Zone string `json:"-"`
}

// The defaults behind Config's zero values.
const (
	DefaultMaxOutstanding = 256
	DefaultMaxDescriptors = 1 << 20
	DefaultPeerTimeout    = 10 * time.Second
)

// WithDefaults returns c with its zero values replaced.
func (c Config) WithDefaults() Config {
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if c.Streams == 0 {
		c.Streams = 1
	}
	if c.MaxOutstanding == 0 {
		c.MaxOutstanding = DefaultMaxOutstanding
	}
	if c.MaxDescriptors == 0 {
		c.MaxDescriptors = DefaultMaxDescriptors
	}
	if c.PeerTimeout == 0 {
		c.PeerTimeout = DefaultPeerTimeout
	}
	return c
}

// Listener accepts connections in whichever role the dialler left over.
type Listener interface {
	// Address is what a dialler needs.
	Address() Address
	// AcceptTarget returns the target of the next connection made with Dial.
	AcceptTarget(ctx context.Context) (Target, error)
	// AcceptInitiator returns the initiator of the next connection made with DialTarget.
	AcceptInitiator(ctx context.Context) (Initiator, error)
	// Close stops accepting. Connections already accepted live on.
	Close() error
}

// Endpoint is what an initiator and a target have in common.
type Endpoint interface {
	// Register makes memory usable for transfers. It may be slow (pinning,
	// mapping): callers time it apart from transfers.
	Register(m Memory) (Region, error)
	// Deregister ends the use of a region. It returns ErrBusy while a transfer
	// posted here still uses it and ErrRegion for a region that is not registered here.
	// A target whose initiator has not let go of the region within PeerTimeout returns
	// ErrBusy too, and may be asked again.
	Deregister(r Region) error
	// Path says which lane carries the data. What it says of the lane is final
	// once a transfer has completed, and what was counted stays known when the
	// endpoint has ended.
	Path() Path
	// Close ends the connection. It is safe to call twice, and at any time.
	Close() error
}

// Initiator posts transfers. Post and Poll are called one at a time, and Poll and Wait
// are: Wait may be under way while something is posted.
type Initiator interface {
	Endpoint
	// Import makes the regions of the target's advertisement known, in the
	// order in which they were advertised. Importing a region again changes nothing.
	Import(ad Advertisement) ([]RemoteRegion, error)
	// Post hands over a transfer and never waits for the network. The
	// transfer's descriptors must stay unchanged until its delivery. It returns
	// ErrQueueFull when MaxOutstanding transfers are outstanding, ErrBounds or
	// ErrRegion for a transfer that does not fit the regions, and ErrClosed or an
	// error that wraps ErrPeer, ErrDevice or ErrLocal once the connection has ended.
	Post(t Transfer) error
	// Poll fills done with completions that have arrived and returns how many. It
	// does not wait. Each posted transfer is delivered or fails exactly once.
	Poll(done []Completion) (int, error)
	// Wait returns once Poll would find something, or with the context's error.
	Wait(ctx context.Context) error
}

// Target offers its memory to an initiator.
type Target interface {
	Endpoint
	// Advertise describes regions registered here to the peer's Import.
	Advertise(regions ...Region) (Advertisement, error)
	// Notifications waits for transfers that were delivered, fills notices with
	// them in the order of delivery and returns how many. After a WRITE's notice
	// its bytes are visible here; after a READ's notice the initiator has them.
	// A target whose notices are not taken may hold its initiator back once
	// MaxOutstanding of them wait. It returns ErrClosed after Close, an error that wraps
	// ErrLocal when this side has ended the connection, and one that wraps ErrPeer when the
	// peer has gone.
	Notifications(ctx context.Context, notices []Notice) (int, error)
}

// Region is memory registered at this side of a connection.
type Region struct {
	ID   uint32
	Size int64
}

// RemoteRegion is the peer's registered memory, as imported here.
type RemoteRegion struct {
	ID   uint32
	Size int64
}

// Op is the direction of a one-sided operation.
type Op uint8

// The operations.
const (
	Write Op = iota + 1 // the initiator's memory to the target's
	Read                // the target's memory to the initiator's
)

// String returns WRITE or READ.
func (o Op) String() string {
	switch o {
	case Write:
		return "WRITE"
	case Read:
		return "READ"
	}
	return "unknown operation"
}

// Descriptor is one contiguous range of bytes to move. Descriptors of one
// transfer must not overlap at the side that is written.
type Descriptor struct {
	Local  int64 // offset in the initiator's region
	Remote int64 // offset in the target's region
	Length int64
}

// Transfer is a set of descriptors posted together: normally one layer of one request.
type Transfer struct {
	ID          uint64 // the caller's name for it; seen in Completion and Notice
	Op          Op
	Local       Region
	Remote      RemoteRegion
	Descriptors []Descriptor
	// ReportLocal asks for a completion of stage LocallyComplete too.
	ReportLocal bool
}

// Stage says what a completion is of.
type Stage uint8

// The stages.
const (
	LocallyComplete Stage = iota + 1 // a WRITE's source may be reused
	Delivered                        // every byte is visible at its destination
)

// Completion reports on one posted transfer. Times are on the initiator's
// clock, as returned by Now.
type Completion struct {
	ID    uint64
	Stage Stage
	Bytes int64
	// Local is when the source of a WRITE became reusable. For a READ it equals Delivered.
	Local time.Duration
	// Delivered is when delivery was known here: for a WRITE the target's
	// acknowledgement, for a READ the last byte in place.
	Delivered time.Duration
	// Err is nil, or says why the transfer failed: it wraps ErrClosed, ErrPeer,
	// ErrDevice, ErrLocal or ErrProtocol.
	Err error
}

// Notice tells a target of one delivered transfer.
type Notice struct {
	ID    uint64
	Op    Op
	Bytes int64
	At    time.Duration // the target's clock, as returned by Now
}

// Path says what really carried the data.
type Path struct {
	Lane     string `json:"lane"`               // protocol and device, such as tcp/eth0
	Device   string `json:"device"`             // network device, or empty where unknown
	Protocol string `json:"protocol,omitempty"` // the operation that a lane of several used
	// Emulated says that software stands in for what the lane's name promises:
	// SoftwareDevice for an RDMA device, or messages for one-sided operations.
	Emulated       bool           `json:"emulated"`
	SoftwareDevice bool           `json:"software_device,omitempty"`
	Port           *Port          `json:"port,omitempty"`    // behind Device, where that is no network interface
	Counters       Counters       `json:"counters"`          // of this side as a sender, over the connection's life
	Staging        *Staging       `json:"staging,omitempty"` // of device memory that went through host memory
	Details        map[string]any `json:"details,omitempty"`
}

// Port is the port of an RDMA device. What it does not tell is zero.
type Port struct {
	Link           LinkLayer `json:"link"`
	MTU            int       `json:"mtu,omitempty"`              // the most payload of a packet, bytes
	BytesPerSecond float64   `json:"bytes_per_second,omitempty"` // line rate, one way; software has none
}

// LinkLayer is what a port puts its packets into.
type LinkLayer string

// The link layers of RDMA.
const (
	RoCE       LinkLayer = "roce"
	InfiniBand LinkLayer = "infiniband"
	IWARP      LinkLayer = "iwarp" // TCP
)

// Staging says how device memory went through host memory: in chunks, each from
// device to host at its source, over the wire, and from host to device at its
// destination, with several chunks under way at a time. A side knows its own copies,
// and the initiator the wire.
type Staging struct {
	// Reason is what kept the memory from being moved directly, where the transport below
	// could have: of this side, or of the peer.
	Reason      string    `json:"reason,omitempty"`
	ChunkBytes  int64     `json:"chunk_bytes"`  // the most of one chunk
	PinnedBytes int64     `json:"pinned_bytes"` // host memory of this side that chunks go through
	PinSeconds  float64   `json:"pin_seconds"`  // that making it took, outside every measurement
	ToHost      StageTime `json:"device_to_host"`
	Wire        StageTime `json:"wire"`
	FromHost    StageTime `json:"host_to_device"`
}

// StageTime is what one stage of staging took at one side.
type StageTime struct {
	Chunks int64 `json:"chunks"`
	Bytes  int64 `json:"bytes"`
	// Seconds is the sum of the chunks' own times: a copy's by the device's clock, and
	// the wire's from when a chunk was posted and the one before it delivered.
	Seconds float64 `json:"seconds"`
	// BytesPerSecond is Bytes over Seconds, 0 before there are any.
	BytesPerSecond float64 `json:"bytes_per_second"`
	// What the stage did alone when the connection was made: the startup of a chunk and
	// the bandwidth. Both are 0 where that was not timed at this side.
	AloneAlpha     float64 `json:"alone_alpha_seconds"`
	AloneBandwidth float64 `json:"alone_bytes_per_second"`
}

// Counters are what a lane's device or kernel counted. What it does not count is zero.
type Counters struct {
	Packets     int64 `json:"packets"`     // sent with data
	Retransmits int64 `json:"retransmits"` // of them, sent again
	// ReceiveWindowLimited is the share of the time with data to send in which the
	// peer's window held the sender back, 0 to 1.
	ReceiveWindowLimited float64 `json:"receive_window_limited"`
	// PortBytes is what the ports of an RDMA device counted in the direction of the
	// data while PayloadBytes were delivered here. Other traffic counts too; where a
	// device counts packets only, it is the most that they can have held.
	PortBytes    int64 `json:"port_bytes,omitempty"`
	PayloadBytes int64 `json:"payload_bytes,omitempty"`
	// PortCounted says that every such port has a counter of that direction, of the whole
	// port, and that one of them has ever counted: PortBytes of 0 is then a count, and
	// not the want of one.
	PortCounted bool `json:"port_counted,omitempty"`
}

// Accounted reports whether the ports counted what was delivered, to a tenth. Where
// they do not count there is nothing to doubt.
func (c Counters) Accounted() bool { return !c.PortCounted || c.PortBytes >= c.PayloadBytes/10*9 }

var epoch = time.Now()

// Now returns the process's monotonic clock, which Completion and Notice use.
func Now() time.Duration { return time.Since(epoch) }
