//go:build ignore

// Command hold does nothing until it gets a signal to end: it is the process of the test node's
// pods, and of their sandboxes.
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
