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
	Name     string `yaml:"name"`
	Model    string `yaml:"model"`
	Brand    string `yaml:"brand"`
	Memory   int64  `yaml:"memory"`
	Reserved int64  `yaml:"reserved"`
	Unified  bool   `yaml:"unified"` // the GPU uses the machine's memory, and the driver has no memory values
	// Lacks lists patterns of fields that the driver does not have for the board, in addition to those that its kind
	// lacks.
	Lacks []string `yaml:"lacks"`
	Power struct {
		Idle  float64 `yaml:"idle"`
		Limit float64 `yaml:"limit"`
		Min   float64 `yaml:"min"`
		Max   float64 `yaml:"max"`
	} `yaml:"power"`
	Clocks struct {
		SM         float64 `yaml:"sm"`
		SMIdle     float64 `yaml:"sm-idle"`
		Memory     float64 `yaml:"memory"`
		MemoryIdle float64 `yaml:"memory-idle"`
		Video      float64 `yaml:"video"`
	} `yaml:"clocks"`
	Temperature struct {
		Ambient         float64 `yaml:"ambient"`
		Load            float64 `yaml:"load"` // temperature at the power limit, settled
		Operating       float64 `yaml:"operating"`
		Slowdown        float64 `yaml:"slowdown"`
		Shutdown        float64 `yaml:"shutdown"`
		MemoryOffset    float64 `yaml:"memory-offset"` // above the GPU temperature; 0 if there is no sensor
		MemoryOperating float64 `yaml:"memory-operating"`
	} `yaml:"temperature"`
	PCIe struct {
		Generation int64 `yaml:"generation"`
		Width      int64 `yaml:"width"`
	} `yaml:"pcie"`
	NVLink struct {
		Generation int     `yaml:"generation"`
		Links      int64   `yaml:"links"`
		Rate       float64 `yaml:"rate"`   // bytes per second, per link and direction
		Bridge     bool    `yaml:"bridge"` // the links join two neighbors; otherwise they lead to switches
	} `yaml:"nvlink"`
	C2C       int64        `yaml:"c2c"` // number of chip-to-chip links
	IdleState int64        `yaml:"pstate-idle"`
	VBIOS     string       `yaml:"vbios"`
	Serial    string       `yaml:"serial"` // first digits of serial numbers
	Fan       bool         `yaml:"fan"`
	Energy    bool         `yaml:"energy"`
	ECC       bool         `yaml:"ecc"`
	Remap     bool         `yaml:"remap"` // remaps rows; older boards retire pages
	Profiling bool         `yaml:"profiling"`
	MIG       []migProfile `yaml:"mig"` // empty for a board without MIG

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
	Name    string `yaml:"name"`
	Compute int    `yaml:"compute"` // number of compute slices
	Memory  int64  `yaml:"memory"`  // in MiB
	Most    int    `yaml:"most"`    // maximum number on a GPU; 0 means as many as fit
	Size    int    `yaml:"size"`    // number of memory slices
	Starts  []int  `yaml:"starts"`  // first memory slice of each possible position
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
