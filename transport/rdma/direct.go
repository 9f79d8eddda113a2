package rdma

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"kvbench/internal/hostinfo"
	"kvbench/internal/ucx"
	"kvbench/transport"
)

// WithReachableGPUs returns a transport for tests on hosts without the UCX and GPUs
// that GPU memory needs. It skips the checks of the host, and passes GPU memory to UCX
// as host memory, which works for a test double.
func WithReachableGPUs() Transport { return Transport{reachable: true} }

// CheckDirect implements transport.DirectMover.
func (t Transport) CheckDirect(ctx context.Context, cfg transport.Config) error {
	if err := t.Probe(ctx); err != nil {
		return err
	}
	cfg, f, err := checkConfig(cfg)
	if err != nil {
		return err
	}
	if cfg.Operation == opAM {
		return errors.New("active messages are put in place by a CPU")
	}
	if t.reachable {
		return nil
	}
	devices, _ := rdmaDevices()
	if err := f.reachesGPUs(portsOf(devices, cfg.Device)); err != nil {
		return err
	}
	version, err := ucx.Version()
	if err != nil {
		return err
	}
	cfg.Memory = transport.CUDAMemory
	types, err := memoryTypes(settings(f, cfg))
	if err != nil {
		return explain(err, f, cfg.Device)
	}
	return checkDirect(version, types, environment(), hostinfo.ReadPeerMemory())
}

// reachesGPUs returns an error if a family's one-sided operations cannot reach GPU
// memory from ports.
func (f family) reachesGPUs(ports []port) error {
	hardware := func(p port) bool { return !p.device.Software }
	switch {
	case !f.rdma:
		return fmt.Errorf("%v has no device that reaches GPU memory", f)
	case f.name == "ud":
		return fmt.Errorf("%v has no one-sided operations: UCX would copy GPU memory through host memory", f)
	case !slices.ContainsFunc(ports, hardware):
		return errors.New("there is no RDMA device but software, which does not reach GPU memory")
	}
	return nil
}

// directMajor and directMinor are the first UCX version for GPU memory. Puts and gets
// of it need UCX's second generation of protocols, which is on by default since 1.16.
const directMajor, directMinor = 1, 16

// checkDirect returns an error if UCX or the host's modules prevent direct transfers.
// The arguments are the facts to check.
func checkDirect(version string, types ucx.MemoryTypes, environment map[string]string, peers hostinfo.PeerMemory) error {
	tls, chosen := environment["UCX_TLS"]
	switch {
	case !types.Has(ucx.CUDAMemory) && chosen:
		return fmt.Errorf("UCX %s takes no CUDA memory with UCX_TLS=%s in the environment: add cuda_copy, if this UCX was built with CUDA", version, tls)
	case !types.Has(ucx.CUDAMemory):
		return fmt.Errorf("UCX %s takes no CUDA memory: it was built without CUDA, or its CUDA part is not installed (ucx-cuda on RHEL)", version)
	case !atLeast(version, directMajor, directMinor):
		return fmt.Errorf("UCX %s cannot put and get CUDA memory: that takes UCX %d.%d or newer", version, directMajor, directMinor)
	}
	for _, name := range []string{"UCX_PROTO_ENABLE", "UCX_IB_GPU_DIRECT_RDMA"} {
		if value, set := environment[name]; set && isNo(value) {
			return fmt.Errorf("%s=%s in the environment turns direct RDMA of GPU memory off: unset it", name, value)
		}
	}
	if len(peers.Modules) == 0 {
		return errors.New("UCX registers GPU memory with a NIC only where nvidia_peermem is loaded, and it is not: modprobe nvidia-peermem")
	}
	return nil
}

// isNo reports whether UCX reads a value as no.
func isNo(value string) bool {
	return slices.Contains([]string{"n", "no", "off", "0"}, strings.ToLower(value))
}

// atLeast reports whether a version such as 1.16.0 is at least major.minor. It returns
// false if the version cannot be parsed.
func atLeast(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	a, errMajor := strconv.Atoi(parts[0])
	b, errMinor := strconv.Atoi(parts[1])
	return errMajor == nil && errMinor == nil && (a > major || a == major && b >= minor)
}

// known caches UCX's memory types, because a query opens UCX's devices and a run makes
// one per connection.
var known struct {
	sync.Mutex
	types map[string]ucx.MemoryTypes // by settings
}

// memoryTypes returns the memory types that UCX supports with settings.
func memoryTypes(settings []ucx.Setting) (ucx.MemoryTypes, error) {
	known.Lock()
	defer known.Unlock()
	key := fmt.Sprint(settings, os.Getenv("UCX_TLS"))
	if types, ok := known.types[key]; ok {
		return types, nil
	}
	types, err := ucx.TypesOf(settings)
	if err != nil {
		return 0, err
	}
	if known.types == nil {
		known.types = make(map[string]ucx.MemoryTypes)
	}
	known.types[key] = types
	return types, nil
}

// checkUsedDirectly returns an error if UCX emulates the one-sided operations on GPU
// memory with messages, because then the bytes go through host memory.
func (c *connection) checkUsedDirectly(u used) error {
	if c.gpu == nil || c.gpu.kind != ucx.CUDAMemory || !u.emulated {
		return nil
	}
	return fmt.Errorf("%w: GPU memory was to move directly, and UCX has %s on %v, which goes through host memory: ask for --lane rc, or for --lane ud, which is staged", errWrongLane, u.protocol, u.lane)
}
