package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
)

// hardware holds the flags that describe GPUs: a model and a count, or a Node.
type hardware struct {
	gpu, nodeFile string
	count         int
}

func (h *hardware) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&h.gpu, "gpu", "", "GPU `model`: A100-40GB, T4, or the value of the nvidia.com/gpu.product label")
	cmd.Flags().IntVar(&h.count, "gpus", 1, "`number` of GPUs of the node")
	cmd.Flags().StringVar(&h.nodeFile, "node", "", "a `file` with a Node: kubectl get node NAME -o json (or yaml), or kubectl describe node NAME; - for standard input")
}

// read returns the given Node, its GPUs, and the findings about it. Without a Node, n is empty.
func (h *hardware) read(e *env) (n *corev1.Node, gpus []mig.GPU, findings []check.Finding, err error) {
	n = &corev1.Node{}
	if h.count < 1 || h.count > 256 {
		return nil, nil, nil, fmt.Errorf("%w: --gpus is %d, expected 1 to 256", errUsage, h.count)
	}
	if h.nodeFile != "" {
		data, err := e.read(h.nodeFile)
		if err != nil {
			return nil, nil, nil, err
		}
		if n, err = node.Parse(data); err != nil {
			return nil, nil, nil, fmt.Errorf("%s: %w", inputName(h.nodeFile), err)
		}
		findings = inFile(node.Check(n), h.nodeFile)
	}
	switch {
	case h.gpu != "":
		g, err := mig.FindGPU(h.gpu)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("--gpu: %w", err)
		}
		gpus = slices.Repeat([]mig.GPU{g}, h.count)
	case h.nodeFile != "":
		if gpus, err = node.GPUs(n); err != nil {
			return nil, nil, nil, fmt.Errorf("%s: %w; specify them with --gpu and --gpus", inputName(h.nodeFile), err)
		}
	default:
		return nil, nil, nil, fmt.Errorf("%w: specify the GPUs with --gpu MODEL (and --gpus N) or --node FILE", errUsage)
	}
	return n, gpus, findings, nil
}

// gpuLine describes GPUs, such as "8 × NVIDIA-A100-SXM4-40GB".
func gpuLine(gpus []mig.GPU) string {
	var parts []string
	for i := 0; i < len(gpus); {
		n := 1
		for i+n < len(gpus) && gpus[i+n].Product == gpus[i].Product {
			n++
		}
		parts = append(parts, fmt.Sprintf("%d × %s", n, gpus[i].Product))
		i += n
	}
	return strings.Join(parts, ", ")
}
