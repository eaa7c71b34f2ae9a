package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/judge"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// waiting are the flags of commands that wait.
type waiting struct {
	wait     bool
	deadline time.Duration
}

func (w *waiting) flags(cmd *cobra.Command, what string) {
	cmd.Flags().BoolVar(&w.wait, "wait", false, "wait until "+what+", and show what for")
	cmd.Flags().DurationVar(&w.deadline, "wait-timeout", 15*time.Minute, "how long to wait at most; then the exit code is 1")
}

func newVerifyCommand(e *env) *cobra.Command {
	var w waiting
	var smoke bool
	var image, namespace, node string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Judge whether the operator, its operands and each GPU node do what they are meant to",
		Long: `verify reads a cluster, or what was gathered of one, and shows a row for each thing that it looked at: the
custom resources, the DaemonSet of each operand, and on each node with a GPU the operands in the order in which they
depend on each other, the states of a driver upgrade and of a MIG change, and what the node offers against what its
configuration predicts. A row that is not as intended says what was found, what was expected, and the next step.

It only reads, unless --smoke is given: then it creates a pod that uses a GPU, says so before, and deletes it.

Exit codes: 0 as intended, 1 something is not (or the deadline has passed), 2 bad input, 3 the cluster cannot be reached.`,
		Example: `  gpuop verify
  gpuop verify --from must-gather/
  gpuop verify --wait --wait-timeout 30m
  gpuop verify --wait --node gpu-1
  gpuop verify --smoke --image registry.example.com/cuda-sample:vectoradd-cuda12.5.0-ubuntu22.04`,
		Args: exactly(0, "no arguments"),
	}
	c := connectOrRead(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case c.from != "" && (w.wait || smoke):
			return fmt.Errorf("%w: --from and --wait or --smoke: what was gathered does not change, and runs nothing", errUsage)
		case w.deadline <= 0:
			return fmt.Errorf("%w: --wait-timeout %s: want more than 0", errUsage, w.deadline)
		case !smoke && (cmd.Flags().Changed("image") || cmd.Flags().Changed("smoke-namespace")):
			return fmt.Errorf("%w: --image and --smoke-namespace are for --smoke", errUsage)
		}
		source, err := e.source(c)
		if err != nil {
			return err
		}
		tree, state, err := e.judged(cmd.Context(), c, source, w, judging{
			command: strings.TrimSpace("gpuop verify --wait " + nodeFlag(node)), start: true, kinds: judge.VerifyKinds(),
			judge: func(s *cluster.State) ([]report.Row, error) {
				return ofNode(s, judge.Verify(s, judge.Options{Table: e.table}), node)
			},
		})
		if err != nil {
			return err
		}
		if pods, live := source.(judge.Pods); live && smoke && cmd.Context().Err() == nil {
			rows, err := e.smoke(cmd.Context(), state, pods, w, namespace, image, node)
			if err != nil {
				return err
			}
			tree.Add(rows...)
		}
		return e.answer(answer{Report: *tree})
	}
	w.flags(cmd, "nothing waits or has failed")
	cmd.Flags().BoolVar(&smoke, "smoke", false, "create a pod that uses a GPU, NVIDIA's vectorAdd; it is deleted at the end")
	cmd.Flags().StringVar(&image, "image", judge.SampleImage, "the `image` of the smoke test")
	cmd.Flags().StringVar(&namespace, "smoke-namespace", "default", "the `namespace` of the smoke test's pod")
	cmd.Flags().StringVar(&node, "node", "", "only the rows of this `node`; the smoke test runs on it")
	e.verboseFlag(cmd)
	return cmd
}

func nodeFlag(node string) string {
	if node == "" {
		return ""
	}
	return "--node " + node
}

// ofNode are the rows of one node and of what could not be read; without a name all rows.
func ofNode(s *cluster.State, rows []report.Row, name string) ([]report.Row, error) {
	if name == "" {
		return rows, nil
	}
	rows = slices.DeleteFunc(rows, func(v report.Row) bool {
		return v.Node != name && !slices.Contains(strings.Split(v.Nodes, ", "), name) && (v.Node != "" || v.ID != "unread")
	})
	if len(rows) > 0 || s.Lacks(cluster.Nodes) != nil {
		return rows, nil
	}
	if slices.ContainsFunc(s.Nodes, func(n corev1.Node) bool { return n.Name == name }) {
		return nil, fmt.Errorf("%w: the node %s has no GPU", errUsage, name)
	}
	return nil, fmt.Errorf("%w: no node %q among %d%s", errUsage, name, len(s.Nodes), judge.Nearest(s, name))
}

// smoke runs the smoke test and deletes its pods, also when it is interrupted.
func (e *env) smoke(ctx context.Context, state *cluster.State, pods judge.Pods, w waiting, namespace, image, node string) ([]report.Row, error) {
	row := report.Row{ID: "smoke-vectoradd", State: report.Failed, Subject: "vectorAdd", Node: node, Fix: "gpuop verify", Source: "GPU Operator documentation, verification"}
	if m := state.Lacks(cluster.Nodes); m != nil && m.Why != cluster.Partial {
		row.State, row.Reason = report.Unknown, "the nodes could not be read, so it is not known what a pod may request: "+m.Detail
		return []report.Row{row}, nil
	}
	plan, err := judge.PlanSmoke(state, node, namespace, image)
	if errors.Is(err, judge.ErrNoGPU) {
		row.Reason = err.Error()
		return []report.Row{row}, nil
	}
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(e.Err, "smoke test: %s\n", plan.Describe())
	e.cleans.Store(true)
	id := make([]byte, 4)
	_, _ = rand.Read(id) // it never fails
	run := judge.NewSmoke(plan, pods, "gpuop-smoke-"+hex.EncodeToString(id), w.deadline)
	err = until(ctx, e.Err, time.Second, w.deadline, run.Look)
	rows := run.Rows()
	switch {
	case errors.Is(err, errDeadline):
		rows = run.Stop(w.deadline.String() + " have passed")
	case errors.Is(err, context.Canceled):
		rows = run.Stop("the test was interrupted")
	case err != nil:
		rows = run.Stop(err.Error())
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return append(rows[:len(rows):len(rows)], run.Clean(clean)...), nil
}
