package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/topo"
)

// hint says how an exporter comes to have the series of Placement.
const hint = "add DCGM_EXP_GPU_PAIR_INFO and DCGM_EXP_GPU_AFFINITY_INFO to the counters file of this project's exporter (NVIDIA's has none like them)"

// Placement reads how the GPUs were connected at a time. The errors are those of Usage.
func (s *Server) Placement(ctx context.Context, at time.Time) ([]*topo.Node, error) {
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	all, names := chosen(true)
	there, err := s.served(ctx, names)
	if err != nil {
		return nil, fmt.Errorf("%w; %s", err, hint)
	}
	b := placer{}
	for _, f := range all {
		if !there[f.name] {
			continue
		}
		vector, err := s.instant(ctx, s.selector(f.name), at)
		if err != nil {
			return nil, err
		}
		for _, x := range vector {
			b.add(f.role, labelsOf(x.Metric))
		}
	}
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: %s has series of how GPUs are connected, and none has a sample at %s; give another --until", ErrNoSamples, s.address(), at.UTC().Format(time.RFC3339))
	}
	return b.finish(), nil
}

// Placement reads how the GPUs are connected. The errors are those of Usage.
func (p *Pages) Placement(ctx context.Context) ([]*topo.Node, error) {
	all, names := chosen(true)
	pages, err := p.read(ctx, false)
	if err != nil {
		return nil, err
	}
	b := placer{}
	for _, one := range pages {
		one.each(all, func(f family, l map[string]string, _ float64) { b.add(f.role, l) })
	}
	if len(b) == 0 {
		return nil, fmt.Errorf("%w; %s", nothing(p.places(), names), hint)
	}
	return b.finish(), nil
}

// A placer gathers what the series say, by node.
type placer map[string]*placed

type placed struct {
	devices map[string]topo.Device // by UUID, or by the number of a card
	pairs   map[[2]string]string   // by UUIDs
}

func (b placer) add(r role, l map[string]string) {
	name := cmp.Or(l["hostname"], l["Hostname"], l["node"], l["instance"])
	if l["GPU_I_ID"] != "" { // a GPU's place is that of its instances
		return
	}
	n := b[name]
	if n == nil {
		n = &placed{map[string]topo.Device{}, map[[2]string]string{}}
		b[name] = n
	}
	switch r {
	case card:
		id := l["connectx"]
		n.devices["connectx "+id] = topo.Device{Name: "NIC" + id, Title: "ConnectX " + l["pci_bus_id"], PCI: l["pci_bus_id"], NIC: true}
		return
	case pair:
		word := l["path"]
		if links := l["nvlinks"]; links != "" && links != "0" {
			word = "NV" + links
		}
		n.pairs[[2]string{l["UUID"], l["peer_uuid"]}] = word
		if _, known := n.devices[l["peer_uuid"]]; !known {
			n.devices[l["peer_uuid"]] = topo.Device{Name: "GPU" + l["peer_gpu"], UUID: l["peer_uuid"]}
		}
	}
	d := n.devices[l["UUID"]]
	d.Name, d.UUID, d.Title, d.PCI = "GPU"+l["gpu"], l["UUID"], l["modelName"], strings.ToLower(l["pci_bus_id"])
	d.NUMA, d.CPUs = cmp.Or(l["numa_node"], d.NUMA), cmp.Or(l["cpu_affinity"], d.CPUs)
	n.devices[l["UUID"]] = d
}

func (b placer) finish() []*topo.Node {
	var all []*topo.Node
	for _, name := range slices.Sorted(maps.Keys(b)) {
		n := &topo.Node{Name: name}
		at := map[string]int{}
		for _, id := range slices.Sorted(maps.Keys(b[name].devices)) {
			at[id] = len(n.Devices)
			n.Devices = append(n.Devices, b[name].devices[id])
		}
		for ids, word := range b[name].pairs {
			n.Connect(at[ids[0]], at[ids[1]], word)
		}
		n.Sort()
		n.Fill()
		all = append(all, n)
	}
	return all
}
