package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/judge"
)

func newPreflightCommand(e *env) *cobra.Command {
	version := ""
	cmd := &cobra.Command{Use: "preflight", Args: exactly(0, "no arguments"),
		Short: "Check whether the GPU Operator can be installed or upgraded on a cluster"}
	c, v := e.connect(cmd), addValueFlags(cmd)
	cmd.Flags().StringVar(&version, "version", "", "chart `release` (default: the installed one, else the newest)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		intended, err := e.intended(v)
		if err != nil {
			return err
		}
		o := judge.Options{Table: e.table, Values: intended.Intended}
		if version != "" {
			exact := false
			if o.Release, exact, err = e.table.Resolve(version); err != nil {
				return fmt.Errorf("--version: %w", err)
			}
			if !exact {
				fmt.Fprintf(e.Err, "unknown release %s: checking against %s\n", version, o.Release)
			}
		}
		s, err := e.state(cmd.Context(), c, judge.PreflightKinds()...)
		if err != nil {
			return err
		}
		r := clusterReport(s, judge.Preflight(s, o))
		r.Start = true
		return e.answer(answer{Report: r})
	}
	return cmd
}
