package sim

import (
	"fmt"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// A board is a product with GPUs, defined in data/boards.yaml. Memory is in MiB, clocks in MHz, power in watts, and
// temperatures in °C.
type board struct {
	Name, Model, Brand string
	Memory, Reserved   int64
	Unified            bool // the GPU uses the machine's memory, and the driver has no memory values
	// Lacks lists patterns of fields that the driver does not have for the board, in addition to those that its kind
	// lacks.
	Lacks  []string
	Power  struct{ Idle, Limit, Min, Max float64 }
	Clocks struct {
		SM, Memory, Video float64
		SMIdle            float64 `yaml:"sm-idle"`
		MemoryIdle        float64 `yaml:"memory-idle"`
	}
	Temperature struct {
		Ambient, Load, Operating, Slowdown, Shutdown float64 // Load is that at the power limit, settled

		MemoryOffset    float64 `yaml:"memory-offset"` // above the GPU temperature; 0 if there is no sensor
		MemoryOperating float64 `yaml:"memory-operating"`
	}
	PCIe   struct{ Generation, Width int64 }
	NVLink struct {
		Generation int
		Links      int64
		Rate       float64 // bytes per second, per link and direction
		Bridge     bool    // the links join two neighbors; otherwise they lead to switches
	}
	C2C           int64  // number of chip-to-chip links
	IdleState     int64  `yaml:"pstate-idle"`
	VBIOS, Serial string // Serial has the first digits of serial numbers
	Remap         bool   // remaps rows; older boards retire pages

	Fan, Energy, ECC, Profiling bool

	MIG []migProfile // empty for a board without MIG

	lacking map[gpu.FieldID]bool // fields that match Lacks
}

// pcieRate returns the bytes per second that the board's PCIe link carries in one direction.
func (b *board) pcieRate() float64 {
	return float64(int64(1)<<b.PCIe.Generation) * 0.123e9 * float64(b.PCIe.Width)
}

// The slices into which MIG divides a GPU, on every board.
const (
	memorySlices  = 8
	computeSlices = 7
)

type migProfile struct {
	Name    string
	Compute int   // number of compute slices
	Memory  int64 // in MiB
	Most    int   // maximum number on a GPU; 0 means as many as fit
	Size    int   // number of memory slices
	Starts  []int // first memory slice of each possible position
}

// An instance is a GPU instance: its profile and its first memory slice.
type instance struct {
	*migProfile
	start int
}

// id returns NVML's GPU instance ID. IDs number the nodes of a binary tree: 0 is the whole GPU, 1 and 2 its halves, 3
// to 6 its quarters.
func (i instance) id() uint32 { return uint32(memorySlices/i.Size - 1 + i.start/i.Size) }

// place finds positions for the named profiles on a board, in the given order if possible.
func (b *board) place(names []string) ([]instance, error) {
	if b.MIG == nil {
		return nil, fmt.Errorf("%s has no MIG", b.Name)
	}
	layout := make([]instance, 0, len(names))
	counts := map[string]int{}
	for _, name := range names {
		p, err := find(b.MIG, func(p *migProfile) string { return p.Name }, b.Name+" has no MIG profile", name)
		if err != nil {
			return nil, err
		}
		counts[name]++
		if p.Most > 0 && counts[name] > p.Most {
			return nil, fmt.Errorf("%s has room for %d of profile %s, not %d", b.Name, p.Most, name, counts[name])
		}
		layout = append(layout, instance{migProfile: p})
	}
	if !fit(layout, 0) {
		return nil, fmt.Errorf("the MIG profiles %s do not fit together on one %s", strings.Join(names, ", "), b.Name)
	}
	return layout, nil
}

// fit places the instances on the memory slices that are free.
func fit(layout []instance, taken uint) bool {
	if len(layout) == 0 {
		return true
	}
	for _, start := range layout[0].Starts {
		mask := uint(1<<layout[0].Size-1) << start
		if layout[0].start = start; taken&mask == 0 && fit(layout[1:], taken|mask) {
			return true
		}
	}
	return false
}

// find returns the element of list with the given name. Errors start with missing, which says what was not found.
func find[T any](list []T, nameOf func(*T) string, missing, name string) (*T, error) {
	names := make([]string, len(list))
	for i := range list {
		if names[i] = nameOf(&list[i]); names[i] == name {
			return &list[i], nil
		}
	}
	return nil, fmt.Errorf("%s %q, %s", missing, name, text.Suggest(name, names))
}
