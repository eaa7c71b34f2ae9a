package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/judge"
)

func newMIGApplyCommand(e *env) *cobra.Command {
	var apply, force bool
	cmd := &cobra.Command{
		Use:   "apply NODE CONFIG",
		Short: "Show what would block a MIG change; with --apply, start the change",
		Long: `apply shows what would block a MIG change on a node: pods that hold its GPUs, agents that the MIG
manager cannot evict, GPUs that the config does not cover, a config that the ConfigMap lacks, or another change in
progress. It also predicts the resources that the node will offer.

Without --apply this is a dry run. With --apply, if nothing blocks the change, it sets the node label
nvidia.com/mig.config and nothing else. To wait for the end of the change, run gpuop verify --wait --node NODE.

Exit codes: 0 nothing blocks the change, 1 something does, 2 bad input, 3 the cluster cannot be reached.`,
		Example: `  gpuop mig apply gpu-1 all-1g.10gb
  gpuop mig apply gpu-1 all-1g.10gb --apply
  gpuop mig apply gpu-1 all-1g.10gb --from must-gather/`,
		Args: exactly(2, "a node and the name of a MIG config"),
	}
	c := connect(cmd)
	cmd.Flags().BoolVar(&apply, "apply", false, "set the label nvidia.com/mig.config on the node")
	cmd.Flags().BoolVar(&force, "force", false, "set the label even if problems were found")
	e.verboseFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if force && !apply {
			return fmt.Errorf("%w: --force needs --apply", errUsage)
		}
		if apply && c.from != "" {
			return fmt.Errorf("%w: --apply cannot be combined with --from: it needs a live cluster", errUsage)
		}
		return e.migApply(cmd.Context(), c, apply, force, args[0], args[1])
	}
	return cmd
}

func (e *env) migApply(ctx context.Context, c *connection, apply, force bool, node, config string) error {
	source, err := e.source(c)
	if err != nil {
		return err
	}
	s, err := c.read(ctx, source, judge.VerifyKinds()...)
	if err != nil {
		return err
	}
	findings, err := judge.Prepare(s, judge.Options{Table: e.table}, node, config)
	if err != nil {
		return err
	}
	tree := clusterReport(s, findings)
	f := check.Finding{
		Check: migLabel, Severity: check.Note, Node: node, Subject: judge.LabelMIG,
		Reason: "dry run: add --apply to set the label",
		Fix:    fmt.Sprintf("kubectl label node %s %s=%s --overwrite", node, judge.LabelMIG, config),
	}
	client, isLive := source.(*cluster.Client)
	switch {
	case !apply || !isLive:
	case tree.AtLeast(check.Error) && !force:
		f.Severity, f.Reason, f.Fix = check.Error,
			"the label was not set because of the problems above; add --force to set it anyway", ""
	default:
		if err := client.Label(ctx, node, judge.LabelMIG, config); err != nil {
			return err
		}
		f.Reason, f.Fix = "the label was set to "+config, "gpuop verify --wait --node "+node
	}
	tree.Add(f)
	return e.answer(answer{Report: tree})
}
