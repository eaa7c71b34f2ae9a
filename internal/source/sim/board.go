package sim

import (
	"fmt"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// A board is a product that GPUs are made of; data/boards.yaml has them. Memory is in MiB, clocks
// in MHz, power in watts, temperatures in °C.
type board struct {
	Line        text.Line
	Name        string       `yaml:"name"`
	Model       string       `yaml:"model"`
	Brand       string       `yaml:"brand"`
	Compute     string       `yaml:"compute"` // CUDA compute capability
	Memory      int64        `yaml:"memory"`
	Reserved    int64        `yaml:"reserved"`
	BAR1        int64        `yaml:"bar1"`
	Power       boardPower   `yaml:"power"`
	Clocks      boardClocks  `yaml:"clocks"`
	Temperature boardThermal `yaml:"temperature"`
	PCIe        boardPCIe    `yaml:"pcie"`
	NVLink      boardNVLink  `yaml:"nvlink"`
	C2C         int64        `yaml:"c2c"` // chip-to-chip links
	IdleState   int64        `yaml:"pstate-idle"`
	VBIOS       string       `yaml:"vbios"`
	Serial      string       `yaml:"serial"` // the first digits of serial numbers
	Fan         bool         `yaml:"fan"`
	Energy      bool         `yaml:"energy"`
	ECC         bool         `yaml:"ecc"`
	Remap       bool         `yaml:"remap"` // remaps rows; older boards retire pages
	Profiling   bool         `yaml:"profiling"`
	GPM         bool         `yaml:"gpm"`
	MIG         *boardMIG    `yaml:"mig"`
}

type boardPower struct {
	Idle  float64 `yaml:"idle"`
	Limit float64 `yaml:"limit"`
	Min   float64 `yaml:"min"`
	Max   float64 `yaml:"max"`
}

type boardClocks struct {
	SM         float64 `yaml:"sm"`
	SMIdle     float64 `yaml:"sm-idle"`
	Memory     float64 `yaml:"memory"`
	MemoryIdle float64 `yaml:"memory-idle"`
	Video      float64 `yaml:"video"`
}

type boardThermal struct {
	Ambient         float64 `yaml:"ambient"`
	Load            float64 `yaml:"load"` // at the power limit, settled
	Operating       float64 `yaml:"operating"`
	Slowdown        float64 `yaml:"slowdown"`
	Shutdown        float64 `yaml:"shutdown"`
	MemoryOffset    float64 `yaml:"memory-offset"` // memory above GPU; 0 without a sensor
	MemoryOperating float64 `yaml:"memory-operating"`
}

type boardPCIe struct {
	Generation int64 `yaml:"generation"`
	Width      int64 `yaml:"width"`
}

// rate returns the bytes per second that the link carries in one direction.
func (p boardPCIe) rate() float64 {
	return float64(int64(1)<<p.Generation) * 0.123e9 * float64(p.Width)
}

type boardNVLink struct {
	Links  int64   `yaml:"links"`
	Rate   float64 `yaml:"rate"`   // bytes per second, per link and direction
	Bridge bool    `yaml:"bridge"` // joins two neighbors; without, the links lead to switches
}

type boardMIG struct {
	MemorySlices  int           `yaml:"memory-slices"`
	ComputeSlices int           `yaml:"compute-slices"`
	Profiles      []*migProfile `yaml:"profiles"`
}

type migProfile struct {
	Name       string   `yaml:"name"`
	Compute    int      `yaml:"compute"` // compute slices
	Memory     int64    `yaml:"memory"`  // MiB
	Most       int      `yaml:"most"`    // how many a GPU can have; 0 means as many as fit
	Placements []string `yaml:"placements"`
}

// placements returns the first memory slice and the number of slices of every placement. The data's
// own test guards its form.
func (p *migProfile) placements() [][2]int {
	list := make([][2]int, len(p.Placements))
	for i, text := range p.Placements {
		fmt.Sscanf(text, "%d:%d", &list[i][0], &list[i][1])
	}
	return list
}

// A placed profile is a GPU instance's place on its GPU.
type placed struct {
	profile *migProfile
	start   int
	size    int
}

// place finds room for the named profiles on a board, in the order in which they are named where
// that is possible.
func (b *board) place(names []string) ([]placed, error) {
	if b.MIG == nil {
		return nil, fmt.Errorf("a %s has no MIG", b.Name)
	}
	layout := make([]placed, 0, len(names))
	counts := map[string]int{}
	compute := 0
	for _, name := range names {
		p := b.MIG.profile(name)
		if p == nil {
			return nil, fmt.Errorf("a %s has no MIG profile %q, %s", b.Name, name, text.Suggest(name, b.MIG.names()))
		}
		counts[name]++
		if p.Most > 0 && counts[name] > p.Most {
			return nil, fmt.Errorf("a %s has room for %d of profile %s, not %d", b.Name, p.Most, name, counts[name])
		}
		compute += p.Compute
		layout = append(layout, placed{profile: p})
	}
	if compute > b.MIG.ComputeSlices || !fit(layout, 0, 0) {
		return nil, fmt.Errorf("the MIG profiles %s do not fit on a %s together", strings.Join(names, ", "), b.Name)
	}
	return layout, nil
}

// fit places layout[i:] on the memory slices that taken leaves free.
func fit(layout []placed, i int, taken uint) bool {
	if i == len(layout) {
		return true
	}
	for _, at := range layout[i].profile.placements() {
		mask := uint(1<<at[1]-1) << at[0]
		if taken&mask != 0 {
			continue
		}
		layout[i].start, layout[i].size = at[0], at[1]
		if fit(layout, i+1, taken|mask) {
			return true
		}
	}
	return false
}

// instanceID returns NVML's GPU-instance id of a place: ids count the nodes of the tree of halves
// (0 the whole, 1 and 2 the halves, 3 to 6 the quarters).
func (m *boardMIG) instanceID(p placed) uint32 {
	return uint32(m.MemorySlices/p.size - 1 + p.start/p.size)
}

func (m *boardMIG) profile(name string) *migProfile {
	for _, p := range m.Profiles {
		if p.Name == name {
			return p
		}
	}
	return nil
}

func (m *boardMIG) names() []string {
	names := make([]string, len(m.Profiles))
	for i, p := range m.Profiles {
		names[i] = p.Name
	}
	return names
}
