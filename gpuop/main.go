// Command gpuop finds what is wrong with an installation of NVIDIA's GPU Operator before it is
// applied, and writes the files and commands that are right. It is also kubectl-gpuop, a plugin of
// kubectl.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cli"
)

// version is set by the linker; a build without it takes the module's version.
var version string

// memoryLimit is where the collector begins to work harder: 5,000 nodes and their pods are about 200 MiB,
// and without a limit garbage doubles that. GOMEMLIMIT overrides it.
const memoryLimit = 320 << 20

func main() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Run(ctx, os.Args, programVersion(), cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Terminal: terminal(os.Stdout)})
	stop()
	os.Exit(code)
}

func programVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}

// terminal reports whether f shows color: a character device, unless the user said no
// (https://no-color.org).
func terminal(f *os.File) bool {
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
