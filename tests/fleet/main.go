// Command fleet measures two Prometheus servers that scrape simulated nodes. One has no rules, and the other has the
// recording rules of deployment/rules. Both start with an empty database. The command prints the tables of the section
// "Ten thousand GPUs" in docs/performance.md.
//
// Run it in the root of the repository. It listens only on loopback, and removes its temporary directory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

// interval is the collection interval and the scrape interval.
const interval = 30 * time.Second

func run(ctx context.Context) error {
	nodes := flag.Int("nodes", 1250, "number of simulated nodes with eight GPUs each")
	minutes := flag.Int("minutes", 20, "minutes that Prometheus scrapes")
	program := flag.String("prometheus", "prometheus", "path of Prometheus")
	flag.Parse()
	if *nodes < 1 || *minutes < 2 || flag.NArg() > 0 {
		return fmt.Errorf("-nodes=%d -minutes=%d, arguments %q: "+
			"expected at least one node, at least two minutes, and no arguments", *nodes, *minutes, flag.Args())
	}
	f, err := newFleet(*nodes)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{Handler: f, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 2)
	go func() { ended <- server.Serve(listener) }()
	go func() { ended <- f.run(ctx) }()

	measured := make(chan error, 1)
	go func() {
		measured <- measure(ctx, f, listener.Addr().String(), *program, time.Duration(*minutes)*time.Minute)
	}()
	select {
	case err = <-measured:
	case err = <-ended:
		cancel()
		err = errors.Join(err, <-measured)
	}
	return errors.Join(err, server.Close())
}

// progress prints a line with the time of day to standard error.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}
