//go:build ignore

// Command hold waits for a termination signal. It is the process in the pod sandboxes and in most containers of the
// test node.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	<-signals
}
