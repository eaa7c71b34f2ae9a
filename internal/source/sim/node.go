package sim

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

//go:embed data
var data embed.FS

//go:embed data/fields.csv
var fieldTable string

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
	layout  []instance // MIG layout
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

// parts holds the boards and workloads that nodes consist of.
type parts struct {
	Boards    []board
	Workloads []workload
}

func loadParts() (*parts, error) {
	var p parts
	for _, file := range []string{"data/boards.yaml", "data/workloads.yaml"} {
		content, err := data.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if _, err := text.DecodeYAML(file, content, &p); err != nil {
			return nil, err
		}
	}
	for i := range p.Workloads {
		w := &p.Workloads[i]
		var ratios map[string]float64
		if err := w.Ratios.Decode(&ratios); err != nil {
			return nil, fmt.Errorf("workload %s: %w", w.Name, err)
		}
		w.ratios[levelGraphics] = 1
		for name, ratio := range ratios {
			w.ratios[levelNames[name]] = ratio
		}
	}
	for i := range p.Boards {
		b := &p.Boards[i]
		b.lacking = map[gpu.FieldID]bool{}
		for _, pattern := range b.Lacks {
			list, err := fieldsNamed(pattern)
			if err != nil {
				return nil, fmt.Errorf("board %s: %w", b.Name, err)
			}
			for _, named := range list {
				b.lacking[named.Entry.ID] = true
			}
		}
	}
	return &p, nil
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
	if err := known("node", name, Nodes()); err != nil {
		return nil, err
	}
	file := "data/nodes/" + name + ".yaml"
	content, err := data.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return ParseNode(content, file)
}

// ParseNode reads a node model. file is its name in errors. Numbers are not checked: all models are built in, and tests
// check them.
func ParseNode(content []byte, file string) (*Node, error) {
	p, err := loadParts()
	if err != nil {
		return nil, err
	}
	n := &Node{}
	if _, err := text.DecodeYAML(file, content, n); err != nil {
		return nil, err
	}
	for i := range n.GPUs {
		err = cmp.Or(err, n.GPUs[i].resolve(p))
	}
	for i := range n.Pods {
		err = cmp.Or(err, n.Pods[i].resolve(p))
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

func (s *gpuSpec) resolve(p *parts) (err error) {
	s.board, err = find(p.Boards, func(b *board) string { return b.Name }, "unknown board", s.Board)
	if err != nil {
		return err
	}
	if s.Limit == 0 {
		s.Limit = s.board.Power.Limit
	}
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

func (s *podSpec) resolve(p *parts) (err error) {
	s.workload, err = find(p.Workloads, func(w *workload) string { return w.Name }, "unknown workload", s.Workload)
	if err != nil {
		return err
	}
	for _, device := range s.Devices {
		ref, err := parseDevice(device)
		if err != nil {
			return err
		}
		s.devices = append(s.devices, ref)
	}
	return nil
}
