package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"kvbench/transport"
)

// memoryFlags select the memory that holds the KV cache.
type memoryFlags struct {
	memory string
	gpu    int
}

func (f *memoryFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.memory, "memory", "host", "where the KV cache lies: host, or cuda:N, the memory of GPU N, on both sides (always with --transport cuda)")
	registerGPU(cmd, &f.gpu)
}

// registerGPU adds the flag for this side's GPU.
func registerGPU(cmd *cobra.Command, gpu *int) {
	cmd.Flags().IntVar(gpu, "gpu-device", 0, "GPU of this side whose memory is used, as CUDA counts them (after CUDA_VISIBLE_DEVICES)")
}

// parse returns the kind of memory for a transport, and makes both flags name this side's
// GPU. given reports whether a flag was set.
func (f *memoryFlags) parse(over string, given func(flag string) bool) (transport.MemoryKind, error) {
	kind, gpu, err := parseMemory(f.memory)
	switch {
	case err != nil:
		return kind, err
	case over != "cuda" && kind == transport.HostMemory:
		return kind, nil
	case kind == transport.HostMemory && given("memory"):
		return kind, usagef("--memory host with --transport cuda, which moves GPU memory only: leave --memory out, or give cuda:0")
	case kind == transport.HostMemory:
		gpu = f.gpu
	case given("gpu-device") && gpu != f.gpu:
		return kind, usagef("--memory %s and --gpu-device %d name two GPUs of this side: leave one of the two out", f.memory, f.gpu)
	}
	f.memory, f.gpu = fmt.Sprintf("cuda:%d", gpu), gpu
	return transport.CUDAMemory, nil
}

// parseMemory parses host or cuda:N.
func parseMemory(s string) (kind transport.MemoryKind, gpu int, err error) {
	if s == string(transport.HostMemory) {
		return transport.HostMemory, 0, nil
	}
	if index, ok := strings.CutPrefix(s, "cuda:"); ok {
		if gpu, err = strconv.Atoi(index); err == nil && gpu >= 0 {
			return transport.CUDAMemory, gpu, nil
		}
	}
	return "", 0, usagef("--memory %q is not known: choose host, or cuda:N for the memory of GPU N", s)
}
