package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
)

// connection holds the flags that select a cluster.
type connection struct {
	kubeconfig, context, namespace, from string
	timeout                              time.Duration
	// managed means that managedFields are kept. They record who last wrote each field.
	managed bool
}

// connect registers the flags that select a cluster, or a gathered folder with --from.
func connect(cmd *cobra.Command) *connection {
	c := &connection{}
	flags := cmd.Flags()
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig `file` (default: KUBECONFIG, else ~/.kube/config)")
	flags.StringVar(&c.context, "context", "", "kubeconfig `context` (default: the current context)")
	flags.StringVarP(&c.namespace, "namespace", "n", "", "the operator's `namespace` (default: detected)")
	flags.DurationVar(&c.timeout, "timeout", cluster.DefaultTimeout, "timeout for the API server's first response")
	flags.StringVar(&c.from, "from", "",
		"check a `folder` of must-gather.sh or kubectl get -o yaml files instead of a live cluster")
	return c
}

// source opens the cluster or folder that the flags select.
func (e *env) source(c *connection) (cluster.Source, error) {
	if c.from == "" {
		if c.timeout <= 0 {
			return nil, fmt.Errorf("%w: --timeout %s must be greater than 0", errUsage, c.timeout)
		}
		return cluster.Open(cluster.Options{Kubeconfig: c.kubeconfig, Context: c.context, Namespace: c.namespace,
			Timeout: c.timeout, ManagedFields: c.managed})
	}
	if c.kubeconfig != "" || c.context != "" {
		return nil, fmt.Errorf("%w: --from cannot be combined with --kubeconfig or --context", errUsage)
	}
	e.inputs = append(e.inputs, c.from)
	folder, err := cluster.OpenFolder(c.from)
	if err != nil {
		return nil, err
	}
	folder.ManagedFields = c.managed
	return folder, nil
}

// state opens the selected source and reads the given kinds.
func (e *env) state(ctx context.Context, c *connection, kinds ...cluster.Kind) (*cluster.State, error) {
	source, err := e.source(c)
	if err != nil {
		return nil, err
	}
	return c.read(ctx, source, kinds...)
}

// read reads the given kinds from a source. --namespace overrides the operator's namespace.
func (c *connection) read(ctx context.Context, source cluster.Source, kinds ...cluster.Kind) (*cluster.State, error) {
	s, err := source.Read(ctx, kinds...)
	if err != nil {
		return nil, err
	}
	if c.namespace != "" {
		s.Namespace = c.namespace
	}
	return s, nil
}

func clusterReport(s *cluster.State, findings []check.Finding) check.Report {
	return check.Report{Judged: true, Title: s.Title, At: s.At, Findings: findings}
}
