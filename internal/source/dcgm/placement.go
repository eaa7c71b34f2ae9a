package dcgm

import (
	"math/bits"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The fields of the CPUs and memory nodes near a GPU (dcgm_fields.h), as masks of 64 bits each.
const (
	fieldCPUAffinity    = 70 // to 73
	fieldMemoryAffinity = 86 // to 89
	affinityWords       = 4
)

// locate finds where the GPUs sit and how each two are connected. Unanswered questions stay open;
// only a lost engine is an error.
func (s *Session) locate() error {
	var rows []int
	for row, e := range s.members {
		if e.group == groupGPU {
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	near, err := s.affinities(s.entitiesOf(rows))
	if s.isOver(err) {
		return err
	}
	if err != nil {
		s.log.Warn("DCGM does not report the NUMA nodes of GPUs", "error", s.withVersions(err))
	}
	levels := map[[2]uint32]uint64{}
	known := false
	for _, row := range rows {
		id := s.members[row].id
		cpus, paths, err := s.engine.place(id)
		if s.isOver(err) {
			return err
		}
		if err != nil {
			s.log.Debug("DCGM does not report where a GPU sits", "gpu", id, "error", err)
		}
		known = known || err == nil
		a := near[s.members[row]]
		place := gpu.PlaceOf(a.nodes[:], a.cpus[:])
		if wide := gpu.PlaceOf(nil, cpus).CPUs; wide != "" { // of twice as many CPUs
			place.CPUs = wide
		}
		if place.NUMANode >= 0 || place.CPUs != "" {
			s.top.Devices[row].Place = &place
		}
		for _, way := range paths {
			levels[[2]uint32{min(id, way.gpu), max(id, way.gpu)}] = way.levels
		}
	}
	if !known {
		return nil
	}
	for i, a := range rows {
		for _, b := range rows[i+1:] {
			way := levels[[2]uint32{s.members[a].id, s.members[b].id}]
			s.top.Pairs = append(s.top.Pairs, gpu.Pair{A: a, B: b, Path: pathOf(way), NVLinks: nvlinksOf(way)})
		}
	}
	return nil
}

// An affinity is the masks of the CPUs and memory nodes that are near a GPU.
type affinity struct{ cpus, nodes [affinityWords]uint64 }

// affinities returns those of GPUs that have them.
func (s *Session) affinities(gpus []entity) (map[entity]affinity, error) {
	near := map[entity]affinity{}
	var ids []gpu.FieldID
	for i := range gpu.FieldID(affinityWords) {
		ids = append(ids, fieldCPUAffinity+i, fieldMemoryAffinity+i)
	}
	err := s.readOnce(gpus, ids, func(e entity, id gpu.FieldID, v gpu.Value) {
		word, _ := v.Int64()
		a := near[e]
		if i := int(id) - fieldMemoryAffinity; i >= 0 && i < affinityWords {
			a.nodes[i] = uint64(word)
		} else if i := int(id) - fieldCPUAffinity; i >= 0 && i < affinityWords {
			a.cpus[i] = uint64(word)
		}
		near[e] = a
	})
	return near, err
}

// pathOf returns the nearest way of those that levels give (DCGM_TOPOLOGY_*, the low byte).
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
