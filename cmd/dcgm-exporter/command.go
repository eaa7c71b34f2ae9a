package main

import (
	"context"
	"os"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command/check"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command/doctor"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command/fields"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command/once"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command/probe"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command/topo"
)

// commands are the subcommands; each returns its exit code.
func commands() map[string]func(context.Context, []string) int {
	process := func(ctx context.Context, args []string) command.Process {
		return command.Process{
			Args: args, Env: os.LookupEnv, ReadFile: app.ReadFile,
			In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		}
	}
	all := map[string]func(context.Context, []string) int{
		"check": func(ctx context.Context, args []string) int {
			return check.Command{Process: process(ctx, args), Open: app.NewBackend}.Run(ctx)
		},
		"doctor": func(ctx context.Context, args []string) int {
			return doctor.Command{Process: process(ctx, args), Open: app.NewBackend, Unmatched: app.Unmatched}.Run(ctx)
		},
		"fields": func(ctx context.Context, args []string) int {
			return fields.Command{Process: process(ctx, args)}.Run()
		},
		"once": func(ctx context.Context, args []string) int {
			return once.Command{Process: process(ctx, args), Page: app.Page}.Run(ctx)
		},
		"probe": func(ctx context.Context, args []string) int {
			return probe.Command{Process: process(ctx, args)}.Run(ctx)
		},
		"topo": func(ctx context.Context, args []string) int {
			return topo.Command{Process: process(ctx, args), Open: app.NewBackend}.Run(ctx)
		},
		"version": func(ctx context.Context, _ []string) int { return serve(ctx, []string{"--version"}) },
	}
	all["help"] = func(ctx context.Context, args []string) int { return help(ctx, args, all, os.Stdout, os.Stderr) }
	return all
}
