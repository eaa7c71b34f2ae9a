package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/judge"
)

func newPreflightCommand(e *env) *cobra.Command {
	var (
		version     string
		files, sets []string
		where       *connection
	)
	cmd := &cobra.Command{
		Use:   "preflight",
		Short: "Check whether the GPU Operator can be installed or upgraded on a cluster",
		Long: `preflight finds problems that an installation or upgrade of the GPU Operator would have on a cluster:
versions outside the support matrix, nodes that would get the driver image or runtime configuration of another node,
taints that are not tolerated, a second device plugin or Node Feature Discovery, pod security, quotas, missing
CustomResourceDefinitions, and GPU clients that block MIG changes and upgrades. It writes nothing to the cluster.

preflight uses the values of -f and --set. Without them it uses those of the installed ClusterPolicy, or the chart's
defaults.`,
		Example: `  gpuop preflight
  gpuop preflight --version v26.7.0 -f values.yaml
  gpuop preflight --from must-gather/ -o json`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			values, err := e.intended(files, sets)
			if err != nil {
				return err
			}
			wanted, err := e.resolve(version)
			if err != nil {
				return err
			}
			o := judge.Options{Table: e.table, Values: values.Intended}
			if version != "" {
				o.Release = wanted
			}
			s, err := e.state(cmd.Context(), where, judge.PreflightKinds()...)
			if err != nil {
				return err
			}
			r := clusterReport(s, judge.Preflight(s, o))
			r.Start = true
			return e.answer(answer{Report: r})
		},
	}
	where = connect(cmd)
	flags := cmd.Flags()
	flags.StringVar(&version, "version", "", "chart `release` (default: the installed one, else the newest)")
	flags.StringArrayVarP(&files, "file", "f", nil, "a values `file`, as in helm upgrade; - for standard "+
		"input; may be repeated; the last one wins")
	flags.StringArrayVar(&sets, "set", nil, "a value as in helm's --set: `KEY=VALUE`; may be repeated")
	e.verboseFlag(cmd)
	return cmd
}

// resolve returns the chart release that version refers to. If the release is unknown, it returns the nearest older
// release and prints a note; if there is none, that is a usage error. If version is empty, it returns the newest
// release.
func (e *env) resolve(version string) (chart.Version, error) {
	v, exact, err := e.table.Resolve(version)
	if err != nil {
		return v, fmt.Errorf("%w: --version: %w", errUsage, err)
	}
	if !exact {
		fmt.Fprintf(e.Err, "unknown release %s: checking against %s\n", version, v)
	}
	return v, nil
}
