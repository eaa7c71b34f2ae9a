package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/judge"
)

const verifyHelp = `verify checks a cluster, or a folder with its objects: the custom resources, the DaemonSet of each
operand, and each node with a GPU with its operands, driver upgrade, MIG change and resources. Fix the first finding
first. Components that only wait for it are counted there and not listed.

Exit codes: 0 everything is ready, 1 something is not ready or a timeout expired, 2 bad input, 3 the cluster cannot
be reached.`

func newVerifyCommand(e *env) *cobra.Command {
	var wait bool
	var deadline time.Duration
	var node string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check the operator, its operands and each GPU node",
		Long:  verifyHelp,
		Example: `  gpuop verify
  gpuop verify --from must-gather/
  gpuop verify --wait --wait-timeout 30m
  gpuop verify --wait --node gpu-1`,
		Args: exactly(0, "no arguments"),
	}
	c := connect(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case c.from != "" && wait:
			return fmt.Errorf("%w: --wait cannot be combined with --from: it needs a live cluster", errUsage)
		case deadline <= 0:
			return fmt.Errorf("%w: --wait-timeout %s must be greater than 0", errUsage, deadline)
		}
		source, err := e.source(c)
		if err != nil {
			return err
		}
		look := func(ctx context.Context) (check.Report, error) {
			s, err := c.read(ctx, source, judge.VerifyKinds()...)
			if err != nil {
				return check.Report{}, err
			}
			findings, err := ofNode(s, judge.Verify(s, judge.Options{Table: e.table}), node)
			return clusterReport(s, findings), err
		}
		var r check.Report
		if wait {
			again := "gpuop verify --wait"
			if node != "" {
				again += " --node " + node
			}
			r, err = e.waited(cmd.Context(), deadline, again, look)
		} else {
			r, err = look(cmd.Context())
		}
		if err != nil {
			return err
		}
		r.Start = true
		return e.answer(answer{Report: r})
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until everything is ready, and print changes")
	cmd.Flags().DurationVar(&deadline, "wait-timeout", 15*time.Minute,
		"timeout for --wait; when it expires, the exit code is 1")
	cmd.Flags().StringVar(&node, "node", "", "show only the findings of this `node`")
	e.verboseFlag(cmd)
	return cmd
}

// ofNode keeps the findings about the named node, and those about kinds that could not be read. If none is left
// although the nodes were read, it returns an error that says whether the node exists. Without a name, it keeps all
// findings.
func ofNode(s *cluster.State, findings []check.Finding, name string) ([]check.Finding, error) {
	if name == "" {
		return findings, nil
	}
	findings = slices.DeleteFunc(findings, func(f check.Finding) bool {
		return f.Node != name && !slices.Contains(strings.Split(f.Nodes, ", "), name) &&
			(f.Node != "" || f.Check != judge.NotRead)
	})
	if len(findings) > 0 || s.Lacks(cluster.Nodes) != nil {
		return findings, nil
	}
	if slices.ContainsFunc(s.Nodes, func(n corev1.Node) bool { return n.Name == name }) {
		return nil, fmt.Errorf("%w: the node %s has no GPU", errUsage, name)
	}
	return nil, fmt.Errorf("%w: no node %q among %d nodes%s", errUsage, name, len(s.Nodes), judge.Nearest(s, name))
}
