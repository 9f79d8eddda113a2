package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"kvbench/bench"
	"kvbench/internal/control"
	"kvbench/internal/hostinfo"
	"kvbench/internal/units"
)

type consumerFlags struct {
	listen      string
	once        bool
	maxMemory   string
	maxSessions int
	token       string
	insecure    bool
	tls         tlsFlags
	device      string
	gpu         int
	untilEOF    bool
}

func (a *app) consumerCommand() *cobra.Command {
	var f consumerFlags
	cmd := &cobra.Command{
		Use:   "consumer",
		Short: "Serve runs: the side that receives the KV cache",
		Long: `consumer waits for producers and serves their runs until it is stopped.

It listens on loopback unless told otherwise. Beyond loopback it asks for a
token; without --token it makes one and prints the producer's command with it.
The control channel uses the given port; each run's data connections come in on
ports of the kernel's choice on the same address, which a firewall must let
through. RDMA has ports of its own, at both hosts: see docs/rdma.md.`,
		Example: `  kvbench consumer --listen 0.0.0.0:9400
  kvbench consumer --listen 10.0.0.7:9400 --token "$SECRET" --max-memory 64GiB`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.consume(cmd.Context(), &f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:9400", "control address, HOST:PORT; port 0 lets the kernel choose")
	flags.BoolVar(&f.once, "once", false, "serve one run, and exit with 1 if it failed")
	flags.StringVar(&f.maxMemory, "max-memory", "", "most memory of one run, such as 64GiB (default: four fifths of what is available)")
	flags.IntVar(&f.maxSessions, "max-sessions", 1, "runs served at a time")
	flags.StringVar(&f.token, "token", "", "secret that producers must know")
	flags.BoolVar(&f.insecure, "insecure", false, "ask for no token beyond loopback: anyone who reaches the port may use this host's memory")
	registerDevice(cmd, &f.device)
	registerGPU(cmd, &f.gpu)
	f.tls.register(cmd)
	flags.BoolVar(&f.untilEOF, "until-eof", false, "end when standard input does")
	flags.Lookup("until-eof").Hidden = true
	return cmd
}

func (a *app) consume(ctx context.Context, f *consumerFlags) error {
	limits := bench.Limits{Sessions: f.maxSessions}
	var err error
	if f.maxMemory != "" {
		if limits.MemoryBytes, err = units.ParseBytes(f.maxMemory); err != nil || limits.MemoryBytes == 0 {
			return usagef("--max-memory %q is not a size such as 64GiB", f.maxMemory)
		}
	}
	if err := checkAddress("listen", f.listen, 0); err != nil {
		return err
	}
	secure, err := f.tls.server()
	if err != nil {
		return err
	}
	network := "tcp"
	if host, _, _ := net.SplitHostPort(f.listen); net.ParseIP(host).To4() != nil {
		network = "tcp4" // 0.0.0.0 means all IPv4 addresses, and no IPv6
	}
	l, err := net.Listen(network, f.listen)
	if err != nil {
		return fmt.Errorf("listen: %w; choose another --listen", err)
	}
	defer l.Close()
	addr := l.Addr().(*net.TCPAddr)
	if asked, err := netip.ParseAddrPort(f.listen); err == nil && addr.Zone == "" { // the kernel drops the zone
		addr.Zone = asked.Addr().Zone()
	}
	if f.token == "" && !addr.IP.IsLoopback() && !f.insecure {
		f.token = control.NewToken()
	}
	a.announce(addr, f, secure != nil)
	if f.untilEOF {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		go func() {
			io.Copy(io.Discard, a.in)
			cancel()
		}()
	}
	var mu sync.Mutex
	c := &bench.Consumer{
		Transports: a.transports,
		Control:    control.Options{Token: f.token, Build: version(), TLS: secure},
		Limits:     limits,
		Device:     f.device,
		GPU:        f.gpu,
		Host:       hostinfo.Gather,
		Log: func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintf(a.err, "%s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
		},
	}
	err = c.Serve(ctx, l, f.once)
	if f.once && errors.Is(err, context.Canceled) {
		return errors.New("stopped before the run was done")
	}
	if errors.Is(err, context.Canceled) || ctx.Err() != nil && !f.once {
		return nil // stopped on purpose
	}
	return err
}

// announce prints the consumer's address and the command for a producer.
func (a *app) announce(addr *net.TCPAddr, f *consumerFlags, secure bool) {
	fmt.Fprintf(a.out, "listening on %s\n", addr)
	if addr.IP.IsLoopback() {
		return
	}
	extra, with := "", ""
	switch {
	case f.token == "":
	case fromVariable("token", f.token): // keep it off command lines and out of the output
		with = " with the same " + variable("token")
	default:
		extra += " --token " + quoted(f.token)
	}
	if secure {
		extra += " --tls-ca CA.pem"
	}
	if f.tls.ca != "" { // producers need certificates from this CA
		extra += " --tls-cert CERT.pem --tls-key KEY.pem"
	}
	fmt.Fprintf(a.out, "on the prefill host, run%s:\n", with)
	for _, host := range reachable(addr) {
		fmt.Fprintf(a.out, "  kvbench producer --connect %s%s\n", net.JoinHostPort(host, fmt.Sprint(addr.Port)), extra)
	}
	if addr.Zone != "" {
		fmt.Fprintln(a.out, "where INTERFACE is the one of that host that leads here")
	}
	if f.insecure && f.token == "" {
		fmt.Fprintf(a.err, "warning: no token: anyone who reaches %s can use this host's memory\n", addr)
	}
}

// quoted returns a word quoted for a shell.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./+=:@%,", r)
	}
	if word != "" && strings.TrimFunc(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// reachable returns the host names and addresses that producers can dial.
func reachable(addr *net.TCPAddr) []string {
	if addr.IP.To4() == nil && addr.IP.IsLinkLocalUnicast() { // each host names the link differently
		return []string{addr.IP.String() + "%INTERFACE"}
	}
	if !addr.IP.IsUnspecified() {
		return []string{addr.IP.String()}
	}
	var hosts []string
	addrs, err := net.InterfaceAddrs()
	if err == nil {
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && (addr.IP.To4() == nil || n.IP.To4() != nil) {
				hosts = append(hosts, n.IP.String())
			}
		}
	}
	if len(hosts) == 0 {
		return []string{"THIS-HOST"}
	}
	return hosts
}

// listeningOn returns the address in a line that announce printed.
func listeningOn(line string) (string, bool) {
	return strings.CutPrefix(strings.TrimSpace(line), "listening on ")
}
