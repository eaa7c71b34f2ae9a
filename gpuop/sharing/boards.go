package sharing

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// ErrUnknownGPU is returned for a word that names no GPU known here.
var ErrUnknownGPU = errors.New("unknown GPU")

// plain are common GPUs without MIG: what their users call them, and what a driver reports. Memory
// is the total that nvidia-smi prints on a typical board; it differs by a little with the driver.
var plain = [...]struct {
	name string
	gpu  mig.GPU
}{
	{"P4", mig.GPU{Product: "Tesla-P4", MemoryMiB: 7680, Family: "pascal", ComputeCapability: "6.1"}},
	{"P40", mig.GPU{Product: "Tesla-P40", MemoryMiB: 23040, Family: "pascal", ComputeCapability: "6.1"}},
	{"P100", mig.GPU{Product: "Tesla-P100-SXM2-16GB", MemoryMiB: 16384, Family: "pascal", ComputeCapability: "6.0"}},
	{"V100-16GB", mig.GPU{Product: "Tesla-V100-SXM2-16GB", MemoryMiB: 16384, Family: "volta", ComputeCapability: "7.0"}},
	{"V100-32GB", mig.GPU{Product: "Tesla-V100-SXM2-32GB", MemoryMiB: 32768, Family: "volta", ComputeCapability: "7.0"}},
	{"T4", mig.GPU{Product: "Tesla-T4", MemoryMiB: 15360, Family: "turing", ComputeCapability: "7.5"}},
	{"A2", mig.GPU{Product: "NVIDIA-A2", MemoryMiB: 15356, Family: "ampere", ComputeCapability: "8.6"}},
	{"A10", mig.GPU{Product: "NVIDIA-A10", MemoryMiB: 23028, Family: "ampere", ComputeCapability: "8.6"}},
	{"A10G", mig.GPU{Product: "NVIDIA-A10G", MemoryMiB: 23028, Family: "ampere", ComputeCapability: "8.6"}},
	{"A16", mig.GPU{Product: "NVIDIA-A16", MemoryMiB: 15356, Family: "ampere", ComputeCapability: "8.6"}},
	{"A40", mig.GPU{Product: "NVIDIA-A40", MemoryMiB: 46068, Family: "ampere", ComputeCapability: "8.6"}},
	{"L4", mig.GPU{Product: "NVIDIA-L4", MemoryMiB: 23034, Family: "ada-lovelace", ComputeCapability: "8.9"}},
	{"L40", mig.GPU{Product: "NVIDIA-L40", MemoryMiB: 46068, Family: "ada-lovelace", ComputeCapability: "8.9"}},
	{"L40S", mig.GPU{Product: "NVIDIA-L40S", MemoryMiB: 46068, Family: "ada-lovelace", ComputeCapability: "8.9"}},
}

// FindGPU finds a GPU by what users call it, its nvidia.com/gpu.product label, or (for GPUs with
// MIG) all that mig.FindBoard takes. The error wraps ErrUnknownGPU.
func FindGPU(word string) (mig.GPU, error) {
	label := strings.Join(strings.Fields(strings.ReplaceAll(word, "_", " ")), "-")
	bare := func(s string) string {
		return strings.TrimPrefix(strings.TrimPrefix(strings.ToLower(s), "nvidia-"), "tesla-")
	}
	var names []string
	for _, p := range plain {
		if bare(p.name) == bare(label) || bare(p.gpu.Product) == bare(label) {
			return p.gpu, nil
		}
		names = append(names, p.name)
	}
	b, err := mig.FindBoard(word)
	if err == nil {
		product := ""
		if strings.HasPrefix(strings.ToLower(label), "nvidia-") && label != b.Typical {
			product = label
		}
		return b.GPU(product), nil
	}
	for _, b := range mig.Boards() {
		names = append(append(names, b.Name), b.Aliases...)
	}
	begun := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasPrefix(bare(name), bare(label)) })
	near := report.Nearest(word, names)
	switch {
	case len(label) < 2:
	case len(begun) > 0:
		return mig.GPU{}, fmt.Errorf("%w %q: want one of %s", ErrUnknownGPU, word, strings.Join(begun, ", "))
	case near != "":
		return mig.GPU{}, fmt.Errorf("%w %q: did you mean %s?", ErrUnknownGPU, word, near)
	}
	return mig.GPU{}, fmt.Errorf("%w %q: want a name such as T4, L40S or A100-80GB, or the nvidia.com/gpu.product label", ErrUnknownGPU, word)
}
