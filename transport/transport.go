// Package transport is the contract between a benchmark run and the code that moves
// bytes: one-sided WRITE and READ between registered memory of two processes, completed
// only on delivery.
//
// One side is the initiator: it posts transfers. The other is the target: its memory is
// written or read, and it receives a notice of each delivered transfer. Either role may
// dial, so that only one host needs a reachable port: Dial makes an initiator, DialTarget
// makes a target, and a Listener accepts the opposite role.
//
// Everything that must reach the peer before data can flow (the listener's Address, the
// Advertisement of the target's memory) is opaque bytes. The caller's control channel
// carries them.
//
// Package bench calls this package, and the packages below it implement it. It uses the
// standard library only. Package transporttest holds the conformance suite that every
// implementation passes.
package transport

import (
	"context"
	"time"
)

// Transport makes connections of one kind. Its methods are safe for concurrent use.
type Transport interface {
	// Name returns the transport's name on the command line: tcp, rdma, cuda.
	Name() string

	// Probe returns nil if the transport can be used on this host. Otherwise it returns
	// an error that wraps ErrUnavailable and names the cause and the fix.
	Probe(ctx context.Context) error

	// Capabilities returns the transport's abilities.
	Capabilities() Capabilities

	// Listen opens a listener. The context bounds only the call.
	Listen(ctx context.Context, cfg Config) (Listener, error)

	// Dial connects as initiator to a listener that calls AcceptTarget.
	Dial(ctx context.Context, addr Address, cfg Config) (Initiator, error)

	// DialTarget connects as target to a listener that calls AcceptInitiator.
	DialTarget(ctx context.Context, addr Address, cfg Config) (Target, error)
}

// Checker is implemented by a transport that, even if Probe returns nil, cannot be used
// with every configuration: lanes and devices.
type Checker interface {
	// Check returns nil if connections with cfg can be made on this host. Otherwise it
	// returns an error that wraps ErrUnavailable, or ErrUnsupported if no host supports
	// cfg.
	Check(ctx context.Context, cfg Config) error
}

// DirectMover is implemented by a transport that moves GPU memory directly if this host
// supports it. It does so when Config.Memory is CUDAMemory.
type DirectMover interface {
	// CheckDirect returns nil if connections with cfg move GPU memory without passing
	// through host memory, as far as this side can determine. Otherwise its error names
	// the obstacle.
	CheckDirect(ctx context.Context, cfg Config) error
}

// Allocator is implemented by an endpoint that moves data best, or only, in memory that
// it allocates.
type Allocator interface {
	// Allocate returns size bytes of memory, or ErrUnsupported if any memory does as
	// well. The memory must be registered like other memory. It lives until Free, even if
	// the connection fails, but must not be used after Close.
	Allocate(size int64) (Memory, error)
	// Free releases memory that Allocate returned and that is not registered. It may come
	// after Close.
	Free(m Memory) error
}

// Copier is implemented by an endpoint that allocates memory that Go must not touch. Its
// copies are complete when they return. They may be slow: callers keep them apart from
// transfers.
type Copier interface {
	// CopyIn copies from to the memory at off. It returns ErrBounds for a range outside
	// the memory, and ErrRegion for memory that Allocate did not return.
	CopyIn(m Memory, off int64, from []byte) error
	// CopyOut copies the memory at off to to. It returns the same errors as CopyIn.
	CopyOut(m Memory, off int64, to []byte) error
}

// Address is the information that a dialler needs to reach a Listener. Its content
// belongs to the transport. It may hold a secret that admits the dialler, so it travels
// only on an authenticated control channel.
type Address []byte

// Advertisement describes a target's registered regions to an initiator. Its
// content belongs to the transport.
type Advertisement []byte

// Capabilities are a transport's abilities.
type Capabilities struct {
	Write        bool         // the initiator can write the target's memory
	Read         bool         // the initiator can read the target's memory
	Memory       []MemoryKind // kinds of memory that can be registered
	HostBytes    int64        // host memory in bytes that each side of a connection takes beside registered memory
	SameHostOnly bool         // both processes must run on one host
	MaxStreams   int          // largest Config.Streams; 0 means no limit
}

// MemoryKind is the place of memory: host or device.
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

// Config configures a connection. The zero value is usable.
type Config struct {
	// Listen is the address that a network transport binds its listener to, as host:port;
	// port 0 lets the kernel choose. Empty means 127.0.0.1:0.
	Listen string `json:"listen,omitempty"`
	// Advertise is the host that a dialler should use in place of the bound one,
	// for a listener bound to every interface. Empty keeps the bound host.
	Advertise string `json:"advertise,omitempty"`
	// Streams is the number of parallel connections that carry one initiator's transfers.
	// 0 means 1.
	Streams int `json:"streams"`
	// MaxOutstanding bounds the transfers posted and not yet completed. 0 means 256.
	MaxOutstanding int `json:"max_outstanding"`
	// MaxDescriptors bounds the descriptors of one transfer. 0 means 1<<20.
	MaxDescriptors int `json:"max_descriptors"`
	// SocketBuffer is the size of each socket's send and receive buffer in bytes. 0
	// leaves them to the kernel.
	SocketBuffer int `json:"socket_buffer_bytes,omitempty"`
	// BusyPoll spins for data instead of sleeping: lower and steadier latency at the cost
	// of a whole core.
	BusyPoll bool `json:"busy_poll,omitempty"`
	// PeerTimeout is how long a transfer stays outstanding after the peer has stopped
	// answering, before it fails with ErrPeer. 0 means 10 s.
	PeerTimeout time.Duration `json:"peer_timeout_ns,omitempty"`
	// Lane is the kind of path that must carry the data, if a transport has several. A
	// connection that uses another path fails. Empty leaves the choice to the transport.
	Lane string `json:"lane,omitempty"`
	// Operation is the way to carry out a transfer, if a transport has several. Empty
	// leaves the choice to the transport.
	Operation string `json:"operation,omitempty"`
	// Memory is the kind of memory that the connection moves, if a transport has several.
	// Empty means host memory.
	Memory MemoryKind `json:"-"`
	// GPU is the CUDA device of this side for memory from Allocate, as this process
	// counts its devices. Each side sets its own.
	GPU int `json:"-"`
	// Device is the device of this side that must carry the data. Empty leaves the choice
	// to the transport. Each side sets its own.
	Device string `json:"-"`
	// Zone is the dialler's IPv6 zone, such as eth0, for dialling a link-local address of
	// a listener: the listener's own zone means nothing on another host. Empty keeps the
	// zone in the address.
	Zone string `json:"-"`
}

// The defaults for Config's zero values.
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

// Listener accepts connections in the role opposite to the dialler's.
type Listener interface {
	// Address returns the address to dial.
	Address() Address
	// AcceptTarget returns the target of the next connection made with Dial.
	AcceptTarget(ctx context.Context) (Target, error)
	// AcceptInitiator returns the initiator of the next connection made with DialTarget.
	AcceptInitiator(ctx context.Context) (Initiator, error)
	// Close stops accepting. Accepted connections live on.
	Close() error
}

// Endpoint is the part that initiators and targets share.
type Endpoint interface {
	// Register makes memory usable for transfers. It may be slow (pinning,
	// mapping): callers time it apart from transfers.
	Register(m Memory) (Region, error)
	// Deregister ends the use of a region. It returns ErrBusy while a transfer posted
	// here still uses the region, and ErrRegion for a region that is not registered here.
	// A target also returns ErrBusy if its initiator has not released the region within
	// PeerTimeout; the call may then be repeated.
	Deregister(r Region) error
	// Path returns the lane that carries the data. The lane is final once a transfer has
	// completed. The counters remain available after the endpoint has ended.
	Path() Path
	// Close ends the connection. It is safe to call twice, and at any time.
	Close() error
}

// Initiator posts transfers. Post and Poll must not be called concurrently, nor Poll and
// Wait. Post may run while Wait is blocked.
type Initiator interface {
	Endpoint
	// Import imports the regions of the target's advertisement, in the order of the
	// advertisement. Importing a region again changes nothing.
	Import(ad Advertisement) ([]RemoteRegion, error)
	// Post queues a transfer and never waits for the network. The transfer's descriptors
	// must stay unchanged until its delivery. Post returns ErrQueueFull when
	// MaxOutstanding transfers are outstanding, ErrBounds or ErrRegion for a transfer
	// that does not fit the regions, and ErrClosed or an error that wraps ErrPeer,
	// ErrDevice or ErrLocal once the connection has ended.
	Post(t Transfer) error
	// Poll fills done with completions that have arrived and returns their number. It
	// does not wait. Each posted transfer is delivered or fails exactly once.
	Poll(done []Completion) (int, error)
	// Wait returns once Poll has something to return, or with the context's error.
	Wait(ctx context.Context) error
}

// Target offers its memory to an initiator.
type Target interface {
	Endpoint
	// Advertise describes regions registered here to the peer's Import.
	Advertise(regions ...Region) (Advertisement, error)
	// Notifications waits for delivered transfers, fills notices with them in the order
	// of delivery and returns their number. After a WRITE's notice its bytes are visible
	// here; after a READ's notice the initiator has them. If MaxOutstanding notices wait
	// to be taken, the target may hold its initiator back. Notifications returns
	// ErrClosed after Close, an error that wraps ErrLocal if this side has ended the
	// connection, and an error that wraps ErrPeer if the peer has gone.
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
	// ReportLocal requests a completion of stage LocallyComplete too.
	ReportLocal bool
}

// Stage is the event that a completion reports.
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
	// Delivered is when this side saw the delivery: for a WRITE the target's
	// acknowledgement, for a READ the last byte in place.
	Delivered time.Duration
	// Err is nil, or the reason why the transfer failed: it wraps ErrClosed, ErrPeer,
	// ErrDevice, ErrLocal or ErrProtocol.
	Err error
}

// Notice reports one delivered transfer to the target.
type Notice struct {
	ID    uint64
	Op    Op
	Bytes int64
	At    time.Duration // the target's clock, as returned by Now
}

// Path describes the path that carried the data.
type Path struct {
	Lane     string `json:"lane"`               // protocol and device, such as tcp/eth0
	Device   string `json:"device"`             // network device, or empty if unknown
	Protocol string `json:"protocol,omitempty"` // the operation used, if the lane has several
	// Emulated is set if software stands in for the hardware that the lane's name
	// implies: SoftwareDevice for an RDMA device, or messages for one-sided operations.
	Emulated       bool           `json:"emulated"`
	SoftwareDevice bool           `json:"software_device,omitempty"`
	Port           *Port          `json:"port,omitempty"`    // behind Device, unless Device is a network interface
	Counters       Counters       `json:"counters"`          // of this side as a sender, over the connection's life
	Staging        *Staging       `json:"staging,omitempty"` // nil unless device memory went through host memory
	Details        map[string]any `json:"details,omitempty"`
}

// Port is the port of an RDMA device. Fields that the device does not report are zero.
type Port struct {
	Link           LinkLayer `json:"link"`
	MTU            int       `json:"mtu,omitempty"`              // largest payload of a packet, bytes
	BytesPerSecond float64   `json:"bytes_per_second,omitempty"` // line rate, one way; software has none
}

// LinkLayer is the protocol that carries a port's packets.
type LinkLayer string

// The link layers of RDMA.
const (
	RoCE       LinkLayer = "roce"
	InfiniBand LinkLayer = "infiniband"
	IWARP      LinkLayer = "iwarp" // TCP
)

// Staging describes how device memory went through host memory: in chunks, each from
// device to host at its source, over the wire, and from host to device at its
// destination. Several chunks are in flight at a time. A side measures its own copies,
// and the initiator measures the wire.
type Staging struct {
	// Reason is why the memory, of this side or of the peer, was not moved directly
	// although the transport below could have moved it.
	Reason      string    `json:"reason,omitempty"`
	ChunkBytes  int64     `json:"chunk_bytes"`  // most bytes of one chunk
	PinnedBytes int64     `json:"pinned_bytes"` // host memory of this side that chunks go through, bytes
	PinSeconds  float64   `json:"pin_seconds"`  // time to make that memory, outside every measurement
	ToHost      StageTime `json:"device_to_host"`
	Wire        StageTime `json:"wire"`
	FromHost    StageTime `json:"host_to_device"`
}

// StageTime is the time that one stage of staging took at one side.
type StageTime struct {
	Chunks int64 `json:"chunks"`
	Bytes  int64 `json:"bytes"`
	// Seconds is the sum of the chunks' times. A copy is timed by the device's clock. The
	// wire's time starts when a chunk was posted and the one before it delivered.
	Seconds float64 `json:"seconds"`
	// BytesPerSecond is Bytes / Seconds, or 0 without chunks.
	BytesPerSecond float64 `json:"bytes_per_second"`
	// AloneAlpha and AloneBandwidth are the startup of a chunk and the bandwidth,
	// measured with the stage alone when the connection was made. Both are 0 if this side
	// did not time them.
	AloneAlpha     float64 `json:"alone_alpha_seconds"`
	AloneBandwidth float64 `json:"alone_bytes_per_second"`
}

// Counters are the counts of a lane's device or kernel. Counts that are not available are
// zero.
type Counters struct {
	Packets     int64 `json:"packets"`     // sent with data
	Retransmits int64 `json:"retransmits"` // packets sent again, included in Packets
	// ReceiveWindowLimited is the share, 0 to 1, of the time with data to send during
	// which the peer's window held the sender back.
	ReceiveWindowLimited float64 `json:"receive_window_limited"`
	// PortBytes is the count of the RDMA device's ports, in the direction of the data,
	// while PayloadBytes were delivered here. It includes other traffic. For a device
	// that counts only packets, it is the most bytes that they can have held.
	PortBytes    int64 `json:"port_bytes,omitempty"`
	PayloadBytes int64 `json:"payload_bytes,omitempty"`
	// PortCounted is set if every such port has a counter for that direction of the whole
	// port, and at least one of the counters has ever counted. A PortBytes of 0 is then a
	// count, not a missing one.
	PortCounted bool `json:"port_counted,omitempty"`
}

// Accounted reports whether the ports counted at least nine tenths of the delivered
// bytes. It is true if the ports do not count.
func (c Counters) Accounted() bool { return !c.PortCounted || c.PortBytes >= c.PayloadBytes/10*9 }

var epoch = time.Now()

// Now returns the process's monotonic clock, which Completion and Notice use.
func Now() time.Duration { return time.Since(epoch) }
