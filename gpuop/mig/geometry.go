package mig

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// Profile is one kind of GPU instance on one board.
type Profile struct {
	// Name is the driver's spelling, for example "1g.10gb+me".
	Name string `json:"profile"`
	// Compute is the number of compute slices an instance takes.
	Compute int `json:"compute"`
	// Memory is the number of memory slices an instance takes.
	Memory int `json:"memory"`
	// Max is the most instances of this profile alone that one GPU can hold.
	Max int `json:"max"`
	// Starts lists the memory slices at which an instance may begin, ascending.
	Starts []int `json:"starts"`
	// SMs is the number of streaming multiprocessors of an instance, or 0 where it is not attested.
	SMs int `json:"sms,omitempty"`
	// Synonym marks a name that only some drivers use for a slice that the row has under another.
	Synonym bool `json:"-"`
}

// Standard reports whether the profile is a plain division of the board: neither a variant with
// extra or fewer media engines (+me, -me, +gfx), nor the one-slice instance with doubled memory,
// nor another driver's name for the same slice.
func (p Profile) Standard() bool {
	return !p.Synonym && !strings.ContainsAny(p.Name, "+-") && (p.Compute > 1 || p.Memory == 1)
}

// exclusive reports whether the instance claims the board's one set of extra media engines (JPEG and optical flow).
func (p Profile) exclusive() bool { return strings.Contains(p.Name, "+me") }

// Board is one GPU model with respect to MIG: all boards of a row share one geometry.
type Board struct {
	// Name is the row's title, for example "A100/A800-40GB".
	Name string `json:"board"`
	// Aliases are further spellings that a user may type.
	Aliases []string `json:"-"`
	// Products are normalised beginnings of the nvidia.com/gpu.product label.
	Products []string `json:"-"`
	// Typical is the nvidia.com/gpu.product label of the row's most common board.
	Typical string `json:"product"`
	// PCIIDs are the device ids as mig-parted's device-filter spells them: 0x<device>10DE.
	PCIIDs []string `json:"pciIDs"`
	// MemorySlices and ComputeSlices are the capacity of one GPU.
	MemorySlices  int `json:"memorySlices"`
	ComputeSlices int `json:"computeSlices"`
	// MemoryMiB is the total that nvidia-smi prints for a typical board of the row, 0 if unknown.
	MemoryMiB int `json:"-"`
	// Family and ComputeCapability follow from the architecture, as GPU Feature Discovery derives them.
	Family            string `json:"-"`
	ComputeCapability string `json:"-"`
	// Profiles are in the order in which tables print them: small to large.
	Profiles []Profile `json:"profiles"`
	// Evidence is attested where a driver printed the placements, assumed where they follow the pattern of those.
	Evidence string `json:"evidence"`
	Source   string `json:"source"`
}

// Profile returns the board's profile of that name.
func (b Board) Profile(name string) (Profile, bool) {
	i := slices.Index(b.names(), name)
	if i < 0 {
		return Profile{}, false
	}
	return b.Profiles[i], true
}

func (b Board) names() []string {
	names := make([]string, len(b.Profiles))
	for i, p := range b.Profiles {
		names[i] = p.Name
	}
	return names
}

//go:embed boards.yaml
var boardsText []byte

// table has the boards with MIG, behind them GPUs without, and the boards whose geometry nothing attests.
var table = sync.OnceValue(func() (t struct {
	Boards     []Board
	Unattested []struct{ Product, Differs, Source string }
}) {
	_ = yaml.Unmarshal(boardsText, &t) // a test reads every row
	return t
})

// Boards returns the geometry table, one row per geometry, oldest architecture first. The result is shared: callers
// must not change it.
func Boards() []Board {
	all := table().Boards
	return all[:slices.IndexFunc(all, func(b Board) bool { return len(b.Profiles) == 0 })]
}

// normal brings the spellings that users, labels and tables have for one board to one form:
// lower case, words joined by single hyphens, without the leading maker.
func normal(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == '_' || r == '-' || r == '/' }), "-")
	return strings.TrimPrefix(s, "nvidia-")
}

// ErrUnknownGPU is returned for a word that names no GPU of the table, or several, and for a GPU without
// MIG where one with MIG is wanted.
var ErrUnknownGPU = errors.New("unknown GPU")

// FindBoard finds the row for what a user knows a GPU with MIG by: the row's name, an everyday name
// ("A100-40GB"), or the value of the nvidia.com/gpu.product label, with or without the suffixes that MIG and sharing add
// to it. The error wraps ErrUnknownGPU and names the spellings that were probably meant.
func FindBoard(word string) (Board, error) {
	b, err := find(word)
	if err == nil && len(b.Profiles) == 0 {
		return Board{}, fmt.Errorf("%w with MIG: %q has none", ErrUnknownGPU, word)
	}
	return b, err
}

// FindGPU finds a GPU, with or without MIG, by what FindBoard takes. A product label stays the GPU's.
func FindGPU(word string) (GPU, error) {
	b, err := find(word)
	if err != nil {
		return GPU{}, err
	}
	label := strings.Join(strings.Fields(strings.ReplaceAll(word, "_", " ")), "-")
	if !strings.HasPrefix(strings.ToLower(label), "nvidia-") || len(b.Profiles) == 0 {
		label = ""
	}
	return b.GPU(label), nil
}

func find(word string) (Board, error) {
	n := normal(word)
	for _, u := range table().Unattested {
		if strings.HasPrefix(n, u.Product) {
			return Board{}, fmt.Errorf("%w %q: %s, and its MIG profiles are not known here (%s)", ErrUnknownGPU, word, u.Differs, u.Source)
		}
	}
	var best Board
	length := 0 // of the longest product name that n begins with
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
	near := report.Nearest(word, names)
	switch {
	case length > 0:
		return best, nil
	case len(begun) > 0:
		return Board{}, fmt.Errorf("%w %q: want one of %s", ErrUnknownGPU, word, strings.Join(begun, ", "))
	case near != "":
		return Board{}, fmt.Errorf("%w %q: did you mean %s?", ErrUnknownGPU, word, near)
	}
	return Board{}, fmt.Errorf("%w %q: want a name such as T4, L40S or A100-80GB, or the nvidia.com/gpu.product label", ErrUnknownGPU, word)
}
