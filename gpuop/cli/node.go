package cli

import (
	"fmt"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/host"
)

// cudaVersion is a CUDA toolkit's version as NVIDIA writes it: "12.4".
var cudaVersion = regexp.MustCompile(`^[1-9][0-9]?(\.[0-9]{1,2}){0,2}$`)

func newNodeCommand(e *env) *cobra.Command {
	opt := host.Options{}
	cmd := &cobra.Command{
		Use:   "node [--root FOLDER]",
		Short: "Say what is broken on a GPU node, from its own files",
		Long: `node reads the files of the node that it runs on, in the order in which they depend on each other, and names the
first broken link: GPUs on the PCI bus, nouveau, the NVIDIA kernel module, the driver's libraries, CUDA, device nodes,
fabric manager, the operator's validation files, the container runtime's configuration, CDI specifications.

It runs no program, needs no API server and writes nothing. In a pod, mount / of the node read-only and name the folder
with --root; a copy of the files works as well. What may not be read is unknown, with the reason.`,
		Example: `  sudo gpuop node
  gpuop node --root /host --cuda 13.0
  gpuop node --root ./sosreport-gpu-1 -v`,
		Args: exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			if opt.CUDA != "" && !cudaVersion.MatchString(opt.CUDA) {
				return fmt.Errorf("%w: --cuda %q: want a version of the CUDA toolkit, such as 12.4", errUsage, opt.CUDA)
			}
			opt.At = time.Now()
			tree, err := host.Inspect(opt)
			if err != nil {
				return err
			}
			return e.answer(answer{Report: tree})
		},
	}
	cmd.Flags().StringVar(&opt.Root, "root", "/", "`folder` in which / of the node is mounted, or to which its files were copied")
	cmd.Flags().StringVar(&opt.CUDA, "cuda", "", "`version` of the CUDA toolkit that the images to run are built with")
	e.verboseFlag(cmd)
	return cmd
}
