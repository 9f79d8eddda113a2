package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kvbench/bench"
	"kvbench/internal/control"
)

func (a *app) loopbackCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "loopback",
		Short: "Run a consumer and a producer on this machine",
		Long: `loopback starts a consumer as a second process on this machine, runs the
workload against it, and ends it. It measures this host's memory and TCP stack, or its
GPUs, not a network.`,
		Example: `  kvbench loopback
  kvbench loopback --model llama-3.1-8b --context 1K,8K --verify full --out run.json
  kvbench loopback --transport cuda`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var peer *consumerProcess
			err := a.measure(cmd, &f, func(ctx context.Context) (*bench.Producer, error) {
				var err error
				if peer, err = startConsumer(ctx, "--device", f.device, "--gpu-device", strconv.Itoa(f.memory.gpu)); err != nil {
					return nil, err
				}
				return &bench.Producer{
					Connect:    peer.address,
					Control:    control.Options{Token: peer.token, Build: version()},
					SharesHost: true,
				}, nil
			})
			if peer == nil {
				return err
			}
			peer.stop()
			return err
		},
	}
	f.register(cmd)
	return cmd
}

// consumerProcess is a consumer that ends with this process.
type consumerProcess struct {
	cmd     *exec.Cmd
	stdin   io.Closer // closing it ends the consumer, even if this process is killed
	stderr  bytes.Buffer
	done    chan error
	address string
	token   string
}

// startConsumer starts a consumer with a new token, on a port that the kernel chooses.
func startConsumer(ctx context.Context, flags ...string) (*consumerProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program to start the consumer: %w", err)
	}
	p := &consumerProcess{token: control.NewToken(), done: make(chan error, 1)}
	p.cmd = exec.Command(self, "consumer", "--listen", "127.0.0.1:0", "--once", "--until-eof")
	p.cmd.Args = append(p.cmd.Args, flags...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "KVBENCH_") { // meant for this process only
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	p.cmd.Env = append(p.cmd.Env, "KVBENCH_TOKEN="+p.token)
	p.cmd.SysProcAttr = ownProcessGroup()
	p.cmd.Stderr = &p.stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start consumer: %w", err)
	}
	p.stdin = stdin
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start consumer: %w", err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start consumer: %w", err)
	}
	line := make(chan string, 1)
	go func() {
		r := bufio.NewReader(stdout)
		first, _ := r.ReadString('\n')
		line <- first
		io.Copy(io.Discard, r)
		p.done <- p.cmd.Wait()
	}()
	select {
	case first := <-line:
		var ok bool
		if p.address, ok = listeningOn(first); ok {
			return p, nil
		}
	case <-ctx.Done():
		p.stop()
		return nil, errInterruptedEarly
	case <-time.After(10 * time.Second):
	}
	return nil, fmt.Errorf("start consumer: it did not come up\n%s", p.stop())
}

// stop ends the consumer and returns its standard error, which matters only if the
// consumer never came up: a run's failure travels on the control channel.
func (p *consumerProcess) stop() string {
	p.stdin.Close()
	select {
	case <-p.done:
	case <-time.After(3 * time.Second):
		p.cmd.Process.Kill()
		<-p.done
	}
	return strings.TrimSpace(p.stderr.String())
}
