package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/host"
)

func newNodeCommand(e *env) *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use:   "node [--root FOLDER]",
		Short: "Check a GPU node from its files, or predict its labels and resources",
		Long: `node checks the node that it runs on and names the first broken component, in order of dependency:
GPUs on the PCI bus, nouveau, the NVIDIA kernel module, the driver's libraries, device nodes, fabric manager, the
operator's validation files, the container runtime's configuration, CDI specifications.

It only reads files: it runs no program, needs no API server and writes nothing. In a pod, mount the node's /
read-only and set --root to it. A copy of the files works as well. If a file cannot be read, the check says so and
why.`,
		Example: `  sudo gpuop node
  gpuop node --root /host
  gpuop node --root ./sosreport-gpu-1 -v`,
		Args: exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			tree, err := host.Inspect(root, time.Now())
			if err != nil {
				return err
			}
			return e.answer(answer{Report: tree})
		},
	}
	cmd.Flags().StringVar(&root, "root", "/", "`folder` with the node's root file system, mounted or copied")
	e.verboseFlag(cmd)
	cmd.AddCommand(newPredictCommand(e))
	return cmd
}
