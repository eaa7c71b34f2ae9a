package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/topo"
)

func newTopoCommand(e *env) *cobra.Command {
	var m measured
	var root string
	var nodes []string
	cmd := &cobra.Command{
		Use:   "topo [--prometheus URL | --scrape URL|FILE... | --root DIR]",
		Short: "Show how GPUs, network cards and NUMA nodes are connected",
		Long: `topo prints for each node the matrix that "nvidia-smi topo -m" prints: from the topology series of this project's
exporter, in a Prometheus or on a /metrics page, or without either flag from the sysfs of this machine. Series have
NVLinks and no paths to network cards; sysfs has the PCIe paths of both and no NVLinks.`,
		Example: `  gpuop topo --prometheus http://prometheus:9090 --node gpu-1
  gpuop topo --scrape http://gpu-1:9400/metrics
  gpuop topo --root /host`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := placements(cmd.Context(), e, &m, root)
			if err != nil {
				return err
			}
			if len(nodes) > 0 {
				var names []string
				for _, n := range all {
					names = append(names, n.Name)
				}
				all = slices.DeleteFunc(all, func(n *topo.Node) bool { return !slices.Contains(nodes, n.Name) })
				if len(all) == 0 {
					hint := ""
					if near := finding.Nearest(nodes[0], names); near != "" {
						hint = ", did you mean " + near + "?"
					}
					return fmt.Errorf("%w: no node %q has topology series%s", errUsage, nodes[0], hint)
				}
			}
			return e.answer(answer{Data: all, Text: func(w io.Writer, style finding.Style) error {
				for _, n := range all {
					fmt.Fprintln(w, style.Bold(n.Name))
					if err := n.Write(w); err != nil {
						return err
					}
					fmt.Fprintln(w)
				}
				_, err := io.WriteString(w, topo.Legend)
				return err
			}})
		},
	}
	m.flags(cmd)
	cmd.Flags().StringVar(&root, "root", "/", "where the machine's file system is mounted, as a `folder`")
	cmd.Flags().StringArrayVar(&nodes, "node", nil, "only this `node`, by the label hostname; may be repeated")
	return cmd
}

func placements(ctx context.Context, e *env, m *measured, root string) ([]*topo.Node, error) {
	if m.prometheus == "" && len(m.pages) == 0 {
		n, err := topo.Host(root)
		if err != nil {
			return nil, err
		}
		n.Name, err = os.Hostname()
		if root != "/" || err != nil {
			n.Name = root
		}
		return []*topo.Node{n}, nil
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	if len(m.pages) > 0 {
		return m.places(e).Placement(ctx)
	}
	s, at, err := m.server()
	if err != nil {
		return nil, err
	}
	return s.Placement(ctx, at)
}
