package sim

import (
	"cmp"
	"embed"
	"encoding/csv"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

//go:embed data
var data embed.FS

// A Node is a simulated machine: boards with their MIG layout, switches, CPUs, network cards, and the pods that use
// them. It is immutable.
type Node struct {
	Name, About, Driver string

	CUDA     int64  // 12080 is 12.8
	Rack     uint64 // number of nodes joined by NVLink; 0 if NVLink does not leave the node
	GPUs     []gpuSpec
	Switches []switchSpec
	CPUs     []cpuSpec
	ConnectX []cardSpec
	Pods     []podSpec
}

type gpuSpec struct {
	Count    int // 0 means 1
	Board    string
	Limit    float64 // power limit in watts; 0 for the board's limit
	MIG      []string
	Sharing  string // how pods share the GPU or each of its instances: time-slicing, mps or dra
	Replicas int    // for time-slicing and mps

	board   *board
	layout  []instance // nil if MIG is off
	sharing gpu.Sharing
}

type switchSpec struct {
	Count int
	Links int64
}

type cpuSpec struct {
	Count, Cores int
	Clock        float64 // MHz
	Idle, Limit  float64 // watts
}

// A cardSpec is a ConnectX network card.
type cardSpec struct {
	Count  int
	Width  int64 // PCIe lanes
	Active int64 // lanes in use; 0 means all
	Speed  int64 // GT/s of a lane
}

type podSpec struct {
	Namespace, Pod, Container, Workload string

	Devices []string
	Host    bool   // a process on the host, not in a pod
	Job     string // the HPC job of the host process

	workload *workload
	devices  []deviceRef
}

// A board is a product with GPUs, defined in data/boards.yaml. Memory is in MiB, clocks in MHz, power in watts, and
// temperatures in °C.
type board struct {
	Name, Model, Brand string
	Memory, Reserved   int64
	// Has lists needs of data/fields.csv that the board meets.
	Has []string
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
		Ambient, Load, Operating, Slowdown, Shutdown float64 // Load is the settled temperature at the power limit

		MemoryOffset    float64 `yaml:"memory-offset"` // °C above the GPU temperature; 0 if there is no sensor
		MemoryOperating float64 `yaml:"memory-operating"`
	}
	PCIe   struct{ Generation, Width int64 }
	NVLink struct {
		Generation int
		Links      int64
		Rate       float64 // bytes per second, per link and direction
		Bridge     bool    // the links join two neighbors; otherwise they lead to switches
	}
	C2C           int64        // number of chip-to-chip links
	IdleState     int64        `yaml:"pstate-idle"`
	VBIOS, Serial string       // Serial has the first digits of serial numbers
	MIG           []migProfile // empty for a board without MIG

	lacking []gpu.FieldID // fields that match Lacks
}

func (b *board) has(need string) bool { return slices.Contains(b.Has, need) }

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
		if counts[name]++; p.Most > 0 && counts[name] > p.Most {
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

// A workload is what a pod does on its devices. It is defined in data/workloads.yaml.
type workload struct {
	Name, Shape             string // Shape is steady, diurnal, burst or idle
	Low, High, Duty, Jitter float64
	Period, Pause           time.Duration
	Peak                    float64 // hour of the day, UTC

	Ratios yaml.Node                      // maps names of levels in data/fields.csv to their values at activity 1
	Memory struct{ Base, Active float64 } // fraction of the memory that is not reserved
	PCIe   struct{ Tx, Rx float64 }       // bytes per second
	NVLink float64                        // bytes per second and direction, whole GPU

	ratios [ratioCount]float64
}

// activity returns the utilization of the workload's devices at a time in Unix nanoseconds, 0 to 1. All devices of a
// pod share its key, so they are busy at the same times.
func (w *workload) activity(key uint64, at int64) float64 {
	t := float64(at) / 1e9
	period := w.Period.Seconds()
	phase := uniform(key, 1)
	a := w.Low
	switch w.Shape {
	case "steady":
		if into := math.Mod(t+phase*period, period); into >= w.Pause.Seconds() {
			a = w.High
		}
	case "diurnal":
		hour := math.Mod(t/3600, 24)
		day := 0.5 + 0.5*math.Cos((hour-w.Peak)/24*2*math.Pi)
		a = w.Low + (w.High-w.Low)*day
	case "burst":
		window := math.Floor(t/period + phase)
		if uniform(key, uint64(int64(window))+2) < w.Duty {
			a = w.High
		}
	}
	a *= 1 + w.Jitter*smooth(key, t, 90)
	return min(max(a, 0), 1)
}

// parts holds the contents of the folder data that nodes share.
type parts struct {
	Boards    []board
	Workloads []workload
	Watches   []watch
	Findings  []finding
	rules     []rule
}

// builtIn returns the parts of nodes. It panics if a file is invalid, since all files are embedded.
var builtIn = sync.OnceValue(func() *parts {
	p := &parts{}
	for _, file := range []string{"boards.yaml", "workloads.yaml", "findings.yaml"} {
		content, _ := data.ReadFile("data/" + file)
		must(text.DecodeYAML(file, content, p))
	}
	for i := range p.Workloads {
		w := &p.Workloads[i]
		var ratios map[string]float64
		must(w, w.Ratios.Decode(&ratios))
		w.ratios[levelGraphics] = 1
		for name, ratio := range ratios {
			w.ratios[levelNames[name]] = ratio
		}
	}
	for i := range p.Boards {
		b := &p.Boards[i]
		for _, pattern := range b.Lacks {
			for _, named := range must(fieldsNamed(pattern)) {
				b.lacking = append(b.lacking, named.Entry.ID)
			}
		}
	}
	r := csv.NewReader(must(data.Open("data/fields.csv")))
	r.Comment = '#'
	for _, line := range must(r.ReadAll())[1:] {
		p.rules = append(p.rules, must(parseRule(line)))
	}
	return p
})

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Nodes returns the names of the built-in node models.
func Nodes() []string {
	files, _ := fs.Glob(data, "data/nodes/*.yaml") // only a malformed pattern is an error
	for i, file := range files {
		files[i] = strings.TrimSuffix(path.Base(file), ".yaml")
	}
	return files
}

// LoadNode returns the node model with a name.
func LoadNode(name string) (*Node, error) {
	if err := known("unknown node", name, Nodes()); err != nil {
		return nil, err
	}
	file := "data/nodes/" + name + ".yaml"
	content, _ := data.ReadFile(file)
	return ParseNode(content, file)
}

// ParseNode reads a node model. file is its name in errors. Numbers are not checked: all models are built in, and tests
// check them.
func ParseNode(content []byte, file string) (*Node, error) {
	n := &Node{}
	_, err := text.DecodeYAML(file, content, n)
	if err != nil {
		return nil, err
	}
	for i := range n.GPUs {
		err = cmp.Or(err, n.GPUs[i].resolve())
	}
	for i := range n.Pods {
		err = cmp.Or(err, n.Pods[i].resolve())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	n.GPUs = repeated(n.GPUs, func(s *gpuSpec) int { return s.Count })
	n.Switches = repeated(n.Switches, func(s *switchSpec) int { return s.Count })
	n.CPUs = repeated(n.CPUs, func(s *cpuSpec) int { return s.Count })
	n.ConnectX = repeated(n.ConnectX, func(s *cardSpec) int { return s.Count })
	return n, nil
}

// repeated returns each element as often as its count says, but at least once.
func repeated[T any](list []T, count func(*T) int) (all []T) {
	for i := range list {
		all = append(all, slices.Repeat(list[i:i+1], max(count(&list[i]), 1))...)
	}
	return all
}

func (s *gpuSpec) resolve() (err error) {
	s.board, err = find(builtIn().Boards, func(b *board) string { return b.Name }, "unknown board", s.Board)
	if err != nil {
		return err
	}
	s.Limit = cmp.Or(s.Limit, s.board.Power.Limit)
	for _, way := range []gpu.Sharing{gpu.SharingTimeSlicing, gpu.SharingMPS, gpu.SharingDRA} {
		if way.String() == s.Sharing {
			s.sharing = way
		}
	}
	if s.MIG != nil {
		s.layout, err = s.board.place(s.MIG)
	}
	return err
}

func (s *podSpec) resolve() (err error) {
	name := func(w *workload) string { return w.Name }
	s.workload, err = find(builtIn().Workloads, name, "unknown workload", s.Workload)
	for _, device := range s.Devices {
		ref, errRef := parseDevice(device)
		s.devices, err = append(s.devices, ref), cmp.Or(err, errRef)
	}
	return err
}

// find returns the element of list with the given name. Errors start with missing, which says what was not found.
func find[T any](list []T, nameOf func(*T) string, missing, name string) (*T, error) {
	var names []string
	for i := range list {
		names = append(names, nameOf(&list[i]))
		if names[i] == name {
			return &list[i], nil
		}
	}
	return nil, known(missing, name, names)
}

// known returns an error that starts with missing unless word is in words.
func known(missing, word string, words []string) error {
	if slices.Contains(words, word) {
		return nil
	}
	return fmt.Errorf("%s %q, %s", missing, word, text.Suggest(word, words))
}
