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
		Long: `node reads the files of the node that it runs on, in the order in which they depend on each other, and names the
first broken link: GPUs on the PCI bus, nouveau, the NVIDIA kernel module, the driver's libraries, device nodes, fabric
manager, the operator's validation files, the container runtime's configuration, CDI specifications.

It runs no program, needs no API server and writes nothing. In a pod, mount / of the node read-only and name the folder
with --root; a copy of the files works as well. What may not be read is unknown, with the reason.`,
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
