package mig

import (
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// Profile is a kind of GPU instance on a board.
type Profile struct {
	// Name is the driver's spelling, such as "1g.10gb+me".
	Name string `json:"profile"`
	// Compute is the number of compute slices of an instance.
	Compute int `json:"compute"`
	// Memory is the number of memory slices of an instance.
	Memory int `json:"memory"`
	// Max is how many instances of only this profile fit on a GPU.
	Max int `json:"max"`
	// Starts lists the memory slices at which an instance may start, in ascending order.
	Starts []int `json:"starts"`
	// SMs is the number of streaming multiprocessors of an instance; 0 if unknown.
	SMs int `json:"sms,omitempty"`
	// Synonym means that only some drivers use this name. Another profile of the board describes the same instance.
	Synonym bool `json:"-"`
}

// Standard reports whether the profile is a plain fraction of the board. It is false for variants with other engines
// (+me, -me, +gfx), for the one-slice instance with double memory, and for synonyms.
func (p Profile) Standard() bool {
	return !p.Synonym && !strings.ContainsAny(p.Name, "+-") && (p.Compute > 1 || p.Memory == 1)
}

// Board is a group of GPU models with the same MIG geometry.
type Board struct {
	// Name is the name of the group, such as "A100/A800-40GB".
	Name string `json:"board"`
	// Aliases are other names that users may type.
	Aliases []string `json:"-"`
	// Products are normalized prefixes of the nvidia.com/gpu.product label.
	Products []string `json:"-"`
	// Typical is the nvidia.com/gpu.product label of the most common model.
	Typical string `json:"product"`
	// PCIIDs are the device IDs as in mig-parted's device-filter: 0x<device>10DE.
	PCIIDs []string `json:"pciIDs"`
	// MemorySlices and ComputeSlices are the capacity of a GPU.
	MemorySlices  int `json:"memorySlices"`
	ComputeSlices int `json:"computeSlices"`
	// MemoryMiB is the total memory that nvidia-smi reports for a typical model; 0 if unknown.
	MemoryMiB int `json:"-"`
	// Family and ComputeCapability are derived from the architecture, as in GPU Feature Discovery.
	Family            string `json:"-"`
	ComputeCapability string `json:"-"`
	// Profiles are sorted from small to large. GPUs without MIG have none.
	Profiles []Profile `json:"profiles"`
	// Evidence is "attested" if a driver printed the placements, or if NVIDIA's simulated device has them. It is
	// "assumed" if they follow the pattern of similar boards.
	Evidence string `json:"evidence"`
	Source   string `json:"source"`
}

// Profile returns the profile of the given name, and whether the board has it.
func (b Board) Profile(name string) (Profile, bool) {
	if i := slices.Index(b.names(), name); i >= 0 {
		return b.Profiles[i], true
	}
	return Profile{}, false
}

func (b Board) names() (names []string) {
	for _, p := range b.Profiles {
		names = append(names, p.Name)
	}
	return names
}

//go:embed boards.yaml
var boardsText []byte

// table is the content of boards.yaml. Boards has the boards with MIG, then GPUs without MIG. Unattested has GPUs whose
// MIG geometry is unknown.
var table = sync.OnceValue(func() (t struct {
	Boards     []Board
	Unattested []struct{ Product, Differs, Source string }
}) {
	_ = yaml.Unmarshal(boardsText, &t) // cannot fail: a test parses the file
	return t
})

// Boards returns all boards with MIG, oldest architecture first. Callers must not change the result.
func Boards() []Board {
	all := table().Boards
	return all[:slices.IndexFunc(all, func(b Board) bool { return len(b.Profiles) == 0 })]
}

var separators = regexp.MustCompile(`[\s_/-]+`)

// normal normalizes a board's name: lower case, words joined by single hyphens, without the prefix "nvidia-".
func normal(s string) string {
	return strings.TrimPrefix(strings.Trim(separators.ReplaceAllString(strings.ToLower(s), "-"), "-"), "nvidia-")
}

// ErrNoMIG is returned for a GPU that does not support MIG, if one that does is needed.
var ErrNoMIG = errors.New("GPU does not support MIG")

// FindBoard finds a MIG-capable board by name, alias ("A100-40GB") or nvidia.com/gpu.product label. Suffixes for MIG
// (-MIG-1g.5gb) and sharing (-SHARED) are ignored. The error wraps ErrNoMIG or suggests similar names.
func FindBoard(word string) (Board, error) {
	b, err := find(word)
	if err == nil && len(b.Profiles) == 0 {
		return Board{}, fmt.Errorf("%w: %q", ErrNoMIG, word)
	}
	return b, err
}

// suffix matches what GPU Feature Discovery appends to the product label of GPUs that are partitioned or shared.
var suffix = regexp.MustCompile(`(?i)(-MIG-[^-]+)?(-SHARED)?$`)

// FindGPU finds a GPU, with or without MIG. It accepts the same names as FindBoard. If word is the product label of a
// GPU with MIG, it becomes the GPU's Product. Otherwise Product is the board's typical label.
func FindGPU(word string) (GPU, error) {
	b, err := find(word)
	if err != nil {
		return GPU{}, err
	}
	label := suffix.ReplaceAllString(strings.Join(strings.Fields(strings.ReplaceAll(word, "_", " ")), "-"), "")
	if strings.HasPrefix(strings.ToLower(label), "nvidia-") && len(b.Profiles) > 0 {
		return b.GPU(label), nil
	}
	return b.GPU(""), nil
}

func find(word string) (Board, error) {
	n := normal(word)
	for _, u := range table().Unattested {
		if strings.HasPrefix(n, u.Product) {
			return Board{}, fmt.Errorf("unknown GPU %q: %s, but gpuop has no MIG profiles for it (%s)",
				word, u.Differs, u.Source)
		}
	}
	var best Board
	length := 0 // length of the longest matching prefix
	var names, begun []string
	for _, b := range table().Boards {
		all := append(slices.Clone(b.Aliases), b.Name)
		if slices.ContainsFunc(all, func(name string) bool { return normal(name) == n }) {
			return b, nil
		}
		for _, p := range b.Products {
			if strings.HasPrefix(n+"-", p+"-") && len(p) > length {
				best, length = b, len(p)
			}
		}
		names = append(names, all[0])
		if n != "" && strings.HasPrefix(normal(all[0]), n) {
			begun = append(begun, all[0])
		}
	}
	hint := check.Ask(word, names,
		"expected a name such as T4, L40S or A100-80GB, or the nvidia.com/gpu.product label")
	switch {
	case length > 0:
		return best, nil
	case len(begun) > 0:
		hint = "expected one of " + strings.Join(begun, ", ")
	}
	return Board{}, fmt.Errorf("unknown GPU %q: %s", word, hint)
}
