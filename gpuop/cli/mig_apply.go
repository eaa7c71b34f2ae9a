package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/migchange"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/verdict"
)

// migApply are the flags of mig apply.
type migApply struct {
	apply, force bool
	deadline     time.Duration
}

func newMIGApplyCommand(e *env) *cobra.Command {
	var a migApply
	cmd := &cobra.Command{
		Use:   "apply NODE CONFIG",
		Short: "Say what blocks a MIG change, then make it and follow it",
		Long: `apply says what stands in the way of a MIG config on a node before anything is changed: pods that hold its
GPUs, agents that the MIG manager cannot take away, GPUs that the config leaves out, a config that its ConfigMap does
not have, a change that is under way. It predicts what the node will show.

With --apply, and when nothing stands in the way, it writes the label nvidia.com/mig.config, and follows the change until
it has succeeded or failed for a named reason. That label is all that it writes.

Exit codes: 0 nothing stands in the way, or the change has succeeded; 1 something does, or it has not; 2 bad input; 3 the
cluster cannot be reached.`,
		Example: `  gpuop mig apply gpu-1 all-1g.10gb
  gpuop mig apply gpu-1 all-1g.10gb --apply
  gpuop mig apply gpu-1 all-1g.10gb --from must-gather/`,
		Args: exactly(2, "a node and the name of a MIG config"),
	}
	c := connectOrRead(cmd)
	changeFlags(cmd, &a.deadline)
	cmd.Flags().BoolVar(&a.apply, "apply", false, "write the label, and follow the change")
	cmd.Flags().BoolVar(&a.force, "force", false, "write the label in spite of what stands in the way")
	e.verboseFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := positive(a.deadline); err != nil {
			return err
		}
		if a.force && !a.apply {
			return fmt.Errorf("%w: --force is for --apply", errUsage)
		}
		if a.apply && c.from != "" {
			return fmt.Errorf("%w: --from and --apply: what was gathered cannot be changed", errUsage)
		}
		return e.migApply(cmd.Context(), c, a, args[0], args[1])
	}
	return cmd
}

// labeled is a cluster whose nodes can be labeled, and that is watched.
type labeled interface {
	watched
	Label(ctx context.Context, node, key, value string) error
}

func (e *env) migApply(ctx context.Context, c *connection, a migApply, node, config string) error {
	source, err := e.source(c)
	if err != nil {
		return err
	}
	s, err := c.read(ctx, source, migchange.Kinds()...)
	if err != nil {
		return err
	}
	tree, err := e.change(ctx, source, s, c.namespace, a, node, config)
	if err != nil {
		return err
	}
	return e.answer(answer{Tree: tree})
}

// change judges, and where it is to be, makes and follows the change.
func (e *env) change(ctx context.Context, source cluster.Source, s *cluster.State, namespace string, a migApply, node, config string) (*verdict.Tree, error) {
	plan, err := migchange.Prepare(s, node, config)
	if err != nil {
		return nil, err
	}
	tree := &verdict.Tree{Title: s.Title, At: s.At, Verdicts: plan.Rows}
	command := fmt.Sprintf("kubectl label node %s %s=%s --overwrite", node, migchange.ConfigLabel, config)
	row := verdict.Verdict{ID: "mig-label", State: verdict.Note, Node: node, Subject: migchange.ConfigLabel, Source: "gpuop"}
	to, live := source.(labeled)
	switch {
	case !a.apply || !live:
		row.Reason, row.Next = "nothing was written: --apply writes the label", command
		tree.Add(row)
		return tree, nil
	case plan.Blocked() && !a.force:
		row.State, row.Reason = verdict.Failed, "nothing was written, for what stands in the way; --force writes it in spite of that"
		tree.Add(row)
		return tree, nil
	}
	begun := time.Now()
	if err := to.Label(ctx, node, migchange.ConfigLabel, config); err != nil {
		return nil, err
	}
	row.Reason = fmt.Sprintf("%s was written", config)
	tree.Add(row)
	f := &following{env: e, namespace: namespace, deadline: a.deadline, begin: func(*cluster.State) ([]migchange.Target, error) {
		target := plan.Target
		target.Begun = begun
		return []migchange.Target{target}, nil
	}}
	followed, err := f.follow(ctx, to)
	if err != nil {
		return nil, err
	}
	if plan.Blocked() {
		// what was in the way and did not stop it is history
		for i := range tree.Verdicts {
			if tree.Verdicts[i].State == verdict.Failed {
				tree.Verdicts[i].State = verdict.Warning
			}
		}
	}
	tree.At = followed.At
	tree.Add(followed.Verdicts...)
	return tree, nil
}
