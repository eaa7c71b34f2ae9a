// Command gpuop checks NVIDIA GPU Operator values, manifests, clusters and nodes, and writes correct values and
// commands. Installed as kubectl-gpuop, it is a kubectl plugin.
package main

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cli"
)

// version is set by the linker. If it is empty, the module's version is used.
var version string

// memoryLimit is the soft memory limit. The state of 5,000 nodes and 60,000 pods takes about 500 MiB; without a limit
// the heap grows to twice that. GOMEMLIMIT overrides it.
const memoryLimit = 800 << 20

func main() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	streams := cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Terminal: terminal(os.Stdout)}
	code := cli.Run(ctx, os.Args, programVersion(), streams)
	stop()
	os.Exit(code)
}

func programVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && version == "" {
		version = info.Main.Version
	}
	return cmp.Or(version, "(unknown)")
}

// terminal reports whether f can show color: f is a character device, NO_COLOR is not set (https://no-color.org), and
// TERM is not "dumb".
func terminal(f *os.File) bool {
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
