package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
)

// connection holds the flags that select a cluster, or with --from the folder with its objects.
type connection struct {
	cluster.Options
	from string
}

// connect adds the flags that select a cluster, and -v.
func (e *env) connect(cmd *cobra.Command) *connection {
	c := &connection{}
	flags := cmd.Flags()
	flags.StringVar(&c.Kubeconfig, "kubeconfig", "", "kubeconfig `file` (default: KUBECONFIG, else ~/.kube/config)")
	flags.StringVar(&c.Context, "context", "", "kubeconfig `context` (default: the current context)")
	flags.StringVarP(&c.Namespace, "namespace", "n", "", "the operator's `namespace` (default: detected)")
	flags.DurationVar(&c.Timeout, "timeout", cluster.DefaultTimeout, "timeout for the API server's first response")
	flags.StringVar(&c.from, "from", "",
		"check a `folder` of must-gather.sh or kubectl get -o yaml files instead of a live cluster")
	e.verboseFlag(cmd)
	return c
}

// verboseFlag adds -v to a command that prints a report.
func (e *env) verboseFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&e.verbose, "verbose", "v", false, "also show checks that pass")
}

// state reads the given kinds from the cluster or the folder.
func (e *env) state(ctx context.Context, c *connection, kinds ...cluster.Kind) (s *cluster.State, err error) {
	switch {
	case c.from != "" && (c.Kubeconfig != "" || c.Context != ""):
		return nil, errors.New("--from cannot be combined with --kubeconfig or --context")
	case c.from == "" && c.Timeout <= 0:
		return nil, fmt.Errorf("--timeout %s must be greater than 0", c.Timeout)
	case c.from == "":
		client, err := cluster.Open(c.Options)
		if err != nil {
			return nil, err
		}
		return client.Read(ctx, kinds...)
	}
	e.inputs = append(e.inputs, c.from)
	if s, err = cluster.Folder(c.from).Read(ctx, kinds...); err == nil && c.Namespace != "" {
		s.Namespace = c.Namespace
	}
	return s, err
}

func clusterReport(s *cluster.State, findings []check.Finding) check.Report {
	return check.Report{Judged: true, Title: s.Title, At: s.At, Findings: findings}
}
