package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// help prints the subcommands, or the help of one, and returns the exit code.
func help(ctx context.Context, args []string, all map[string]func(context.Context, []string) int, out, errors io.Writer) int {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		_, _ = io.WriteString(out, command.Overview()) // the reader may be gone
		return command.OK
	}
	run, ok := all[args[0]]
	if !ok || args[0] == "help" {
		return unknown(args[0], errors)
	}
	return run(ctx, []string{"--help"})
}

// unknown says that a word is no subcommand, with the nearest that is one.
func unknown(word string, errors io.Writer) int {
	var names []string
	for _, s := range command.List() {
		names = append(names, s.Name)
	}
	hint := ""
	if near := text.Nearest(word, names); near != "" {
		hint = fmt.Sprintf(", did you mean %q?", near)
	}
	fmt.Fprintf(errors, "dcgm-exporter: %q is no subcommand%s; \"dcgm-exporter help\" lists them\n", word, hint)
	return command.Unable
}
