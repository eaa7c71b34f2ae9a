package gpu

import "strconv"

// A Place is where a GPU sits in its machine.
type Place struct {
	NUMANode int    // nearest memory node; negative if unknown
	CPUs     string // nearest CPUs in Linux's list format, "0-31,64-95"; empty if unknown
}

// PlaceOf returns the place of a GPU from the bit masks of its nearest memory nodes and CPUs, lowest bit first. The
// NUMA node is unknown if the mask has several.
func PlaceOf(nodes, cpus []uint64) Place {
	p := Place{NUMANode: -1, CPUs: listOf(cpus)}
	if n, err := strconv.Atoi(listOf(nodes)); err == nil {
		p.NUMANode = n
	}
	return p
}

// listOf returns the bits of a mask in Linux's list format: "0-31,64-95".
func listOf(mask []uint64) string {
	var text []byte
	has := func(i int) bool { return i < len(mask)*64 && mask[i/64]>>(i%64)&1 != 0 }
	for i := 0; i < len(mask)*64; i++ {
		if !has(i) {
			continue
		}
		first := i
		for has(i + 1) {
			i++
		}
		if text != nil {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(first), 10)
		if i > first {
			text = strconv.AppendInt(append(text, '-'), int64(i), 10)
		}
	}
	return string(text)
}

// A Path is the PCIe path between two GPUs, from near to far (nvmlGpuTopologyLevel_t).
type Path uint8

// The paths. String returns the abbreviation that "nvidia-smi topo -m" uses.
const (
	PathUnknown    Path = iota
	PathBoard           // "PSB": two GPUs of one board
	PathSwitch          // "PIX": at most one PCIe switch
	PathSwitches        // "PXB": several PCIe switches, no host bridge
	PathHostBridge      // "PHB": a PCIe host bridge
	PathNode            // "NODE": between the host bridges of one NUMA node
	PathSystem          // "SYS": between NUMA nodes
)

// String returns the abbreviation of "nvidia-smi topo -m", or "" for PathUnknown.
func (p Path) String() string { return [...]string{"", "PSB", "PIX", "PXB", "PHB", "NODE", "SYS"}[p] }

// A Pair is the connection of two GPUs.
type Pair struct {
	A, B    int // rows of the GPUs, with A < B
	Path    Path
	NVLinks int // number of NVLinks between them, directly or through switches
}
