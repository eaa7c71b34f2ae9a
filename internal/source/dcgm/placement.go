package dcgm

import (
	"math/bits"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Fields of the CPUs and NUMA nodes near a GPU (dcgm_fields.h). They are masks of 64 bits.
const (
	fieldCPUAffinity    = 70 // to 73
	fieldMemoryAffinity = 86 // to 89
	affinityWords       = 4
)

// locate finds the placement of the GPUs, and how each pair is connected. What the engine does not report stays
// unknown. It returns an error only if the engine is lost.
func (inv *inventory) locate() error {
	var rows []int
	for row, e := range inv.members {
		if e.group == groupGPU {
			rows = append(rows, row)
		}
	}
	near, err := inv.affinities(inv.entitiesOf(rows))
	if err := inv.logged(err, "DCGM does not report the NUMA nodes of GPUs"); err != nil {
		return err
	}
	levels := map[[2]uint32]uint64{}
	known := false
	for _, row := range rows {
		id := inv.members[row].id
		cpus, paths, err := inv.engine.place(id)
		if severityOf(err) == reopen {
			return err
		}
		if err != nil {
			inv.log.Debug("DCGM does not report the placement of a GPU", "gpu", id, "error", err)
		}
		known = known || err == nil
		a := near[inv.members[row]]
		place := gpu.PlaceOf(a.nodes[:], a.cpus[:])
		if wide := gpu.PlaceOf(nil, cpus).CPUs; wide != "" { // covers twice as many CPUs as the fields
			place.CPUs = wide
		}
		if place.NUMANode >= 0 || place.CPUs != "" {
			inv.top.Devices[row].Place = &place
		}
		for _, p := range paths {
			levels[[2]uint32{min(id, p.gpu), max(id, p.gpu)}] = p.levels
		}
	}
	if !known {
		return nil
	}
	for i, a := range rows {
		for _, b := range rows[i+1:] {
			mask := levels[[2]uint32{inv.members[a].id, inv.members[b].id}]
			inv.top.Pairs = append(inv.top.Pairs, gpu.Pair{A: a, B: b, Path: pathOf(mask), NVLinks: nvlinksOf(mask)})
		}
	}
	return nil
}

// An affinity holds the masks of the CPUs and NUMA nodes near a GPU.
type affinity struct{ cpus, nodes [affinityWords]uint64 }

// affinities returns the affinities of the GPUs that report them.
func (inv *inventory) affinities(gpus []entity) (map[entity]affinity, error) {
	near := map[entity]affinity{}
	var ids []gpu.FieldID
	for i := range gpu.FieldID(affinityWords) {
		ids = append(ids, fieldCPUAffinity+i, fieldMemoryAffinity+i)
	}
	err := inv.readOnce(gpus, ids, func(e entity, id gpu.FieldID, v gpu.Value) {
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

// pathOf returns the closest PCIe path in levels (the low byte of DCGM_TOPOLOGY_*).
func pathOf(levels uint64) gpu.Path {
	paths := [...]gpu.Path{
		gpu.PathBoard, gpu.PathSwitch, gpu.PathSwitches, gpu.PathHostBridge, gpu.PathNode, gpu.PathSystem,
	}
	if i := bits.TrailingZeros64(levels); i < len(paths) {
		return paths[i]
	}
	return gpu.PathUnknown
}

// nvlinksOf returns the number of NVLinks in levels: one for 0x100, two for 0x200, and so on.
func nvlinksOf(levels uint64) int { return max(0, bits.Len64(levels)-8) }
