package dcgm

import (
	"fmt"
	"math/bits"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The fields that say what is near a GPU (dcgm_fields.h), as masks of 64 bits each: CPUs and memory
// (NUMA) nodes.
const (
	fieldCPUAffinity    = 70 // to 73
	fieldMemoryAffinity = 86 // to 89
	affinityWords       = 4
)

// locate says of the GPUs where they sit and how each two are connected. What the engine does not
// report stays unknown; only a lost engine is an error.
func (s *Session) locate() error {
	var rows []int
	var members []entity
	for row, e := range s.members {
		if e.group == groupGPU {
			rows = append(rows, row)
			members = append(members, e)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	sites, err := s.sites(members)
	if s.isOver(err) {
		return err
	}
	if err != nil {
		s.log.Warn("DCGM does not report the NUMA nodes of GPUs", "error", s.withVersions(err))
		s.queryLater("the place of the GPUs", err, func() error {
			_, err := s.sites(members)
			return err
		})
	}
	levels := map[[2]uint32]uint64{}
	known := false
	for i, row := range rows {
		here := sites[members[i]]
		p, err := s.engine.place(members[i].id)
		if s.isOver(err) {
			return err
		}
		if err != nil {
			s.log.Debug("DCGM does not report where a GPU sits", "gpu", members[i].id, "error", err)
			if !s.absent[row] { // a lost one ends the session when it is back
				s.queryLater(fmt.Sprintf("the place of GPU %d", members[i].id), err, func() error {
					_, err := s.engine.place(members[i].id)
					return err
				})
			}
		} else {
			known = true
			if cpus := gpu.PlaceOf(nil, p.cpus).CPUs; cpus != "" {
				here.CPUs = cpus
			}
		}
		for _, way := range p.paths {
			levels[[2]uint32{min(members[i].id, way.gpu), max(members[i].id, way.gpu)}] |= way.levels
		}
		if here.NUMANode >= 0 || here.CPUs != "" {
			s.top.Devices[row].Place = &here
		}
	}
	if !known {
		return nil
	}
	for i, a := range rows {
		for j := i + 1; j < len(rows); j++ {
			way := levels[[2]uint32{members[i].id, members[j].id}]
			s.top.Pairs = append(s.top.Pairs, gpu.Pair{A: a, B: rows[j], Path: pathOf(way), NVLinks: nvlinksOf(way)})
		}
	}
	return nil
}

// sites returns the places of GPUs by those fields.
func (s *Session) sites(gpus []entity) (map[entity]gpu.Place, error) {
	var ids []gpu.FieldID
	for i := range gpu.FieldID(affinityWords) {
		ids = append(ids, fieldCPUAffinity+i, fieldMemoryAffinity+i)
	}
	nodes, cpus := map[entity]*[affinityWords]uint64{}, map[entity]*[affinityWords]uint64{}
	for _, e := range gpus {
		nodes[e], cpus[e] = new([affinityWords]uint64), new([affinityWords]uint64)
	}
	err := s.readOnce(gpus, ids, func(r readout) {
		for i := range r.samples {
			x := &r.samples[i]
			v, _ := decode(&gpu.Field{}, x, nil)
			word, ok := v.Int64()
			e := entity{x.group, x.entity}
			if !ok || nodes[e] == nil {
				continue
			}
			switch memory, cpu := int(x.field)-fieldMemoryAffinity, int(x.field)-fieldCPUAffinity; {
			case memory >= 0 && memory < affinityWords:
				nodes[e][memory] = uint64(word)
			case cpu >= 0 && cpu < affinityWords:
				cpus[e][cpu] = uint64(word)
			}
		}
	})
	sites := make(map[entity]gpu.Place, len(gpus))
	for _, e := range gpus {
		sites[e] = gpu.PlaceOf(nodes[e][:], cpus[e][:])
	}
	return sites, err
}

// pathOf returns the way through the machine that levels give (DCGM_TOPOLOGY_*, the low byte): of
// several the nearest.
func pathOf(levels uint64) gpu.Path {
	paths := [...]gpu.Path{gpu.PathBoard, gpu.PathSwitch, gpu.PathSwitches, gpu.PathHostBridge, gpu.PathNode, gpu.PathSystem}
	if i := bits.TrailingZeros64(levels); i < len(paths) {
		return paths[i]
	}
	return gpu.PathUnknown
}

// nvlinksOf returns how many NVLinks levels give: one at 0x100, two at 0x200, and so on.
func nvlinksOf(levels uint64) int {
	return max(0, bits.Len64(levels)-8)
}
