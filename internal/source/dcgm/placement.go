package dcgm

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The fields that say what a GPU is and what is near it (dcgm_fields.h): its compute capability,
// and as masks of 64 bits each CPUs and memory (NUMA) nodes.
const (
	fieldCapability     = 63
	fieldCPUAffinity    = 70 // to 73
	fieldMemoryAffinity = 86 // to 89
	affinityWords       = 4
)

// A site is where a GPU sits, and the generation of its NVLinks if it has any; 0 where that is
// unknown.
type site struct {
	place      gpu.Place
	generation int
}

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
		here := sites[members[i]].place
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
			if cpus := listOf(p.cpus); cpus != "" {
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
			p := gpu.Pair{A: a, B: rows[j], Path: pathOf(way), NVLinks: nvlinksOf(way)}
			if p.NVLinks > 0 {
				p.Generation = min(sites[members[i]].generation, sites[members[j]].generation)
			}
			s.top.Pairs = append(s.top.Pairs, p)
		}
	}
	return nil
}

// sites returns what those fields say of each GPU.
func (s *Session) sites(gpus []entity) (map[entity]site, error) {
	type masks [2][affinityWords]uint64 // CPUs and memory nodes
	found := map[entity]*masks{}
	generations := map[entity]int{}
	ids := []gpu.FieldID{fieldCapability}
	for i := range gpu.FieldID(affinityWords) {
		ids = append(ids, fieldCPUAffinity+i, fieldMemoryAffinity+i)
	}
	err := s.readOnce(gpus, ids, func(r readout) {
		for i := range r.samples {
			x := &r.samples[i]
			v, _ := decode(&gpu.Field{}, x, nil)
			word, ok := v.Int64()
			if !ok {
				continue
			}
			e := entity{x.group, x.entity}
			if x.field == fieldCapability {
				generations[e] = linkGeneration(word)
				continue
			}
			m := found[e]
			if m == nil {
				m = &masks{}
				found[e] = m
			}
			switch memory, cpu := int(x.field)-fieldMemoryAffinity, int(x.field)-fieldCPUAffinity; {
			case memory >= 0 && memory < affinityWords:
				m[1][memory] = uint64(word)
			case cpu >= 0 && cpu < affinityWords:
				m[0][cpu] = uint64(word)
			}
		}
	})
	sites := map[entity]site{}
	for _, e := range gpus {
		at := site{gpu.Place{NUMANode: -1}, generations[e]}
		if m := found[e]; m != nil {
			at.place = gpu.Place{NUMANode: onlyBit(m[1][:]), CPUs: listOf(m[0][:])}
		}
		sites[e] = at
	}
	return sites, err
}

// linkGeneration returns the NVLink generation of GPUs of a compute capability, which has the major
// version in the upper 16 of 32 bits: DCGM does not report the generation, and each of NVIDIA's
// architectures has one. 0 for an architecture that is not known.
func linkGeneration(capability int64) int {
	switch capability >> 16 {
	case 6: // Pascal
		return 1
	case 7: // Volta, Turing
		return 2
	case 8: // Ampere; Ada has no NVLinks
		return 3
	case 9: // Hopper
		return 4
	case 10: // Blackwell
		return 5
	default:
		return 0
	}
}

// onlyBit returns the bit that is set in a mask, -1 where none or several are: a GPU that is near
// several nodes is nearest to none.
func onlyBit(mask []uint64) int {
	bit := -1
	for i, word := range mask {
		switch n := bits.OnesCount64(word); {
		case n == 0:
		case n > 1 || bit >= 0:
			return -1
		default:
			bit = i*64 + bits.TrailingZeros64(word)
		}
	}
	return bit
}

// listOf writes the bits of a mask as Linux lists CPUs: "0-31,64-95".
func listOf(mask []uint64) string {
	var b strings.Builder
	has := func(i int) bool { return i < len(mask)*64 && mask[i/64]>>(i%64)&1 != 0 }
	for i := 0; i < len(mask)*64; i++ {
		if !has(i) {
			continue
		}
		first := i
		for has(i + 1) {
			i++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(first))
		if i > first {
			b.WriteString("-" + strconv.Itoa(i))
		}
	}
	return b.String()
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
