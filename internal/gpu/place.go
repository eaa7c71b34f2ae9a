package gpu

import "strconv"

// A Place is where a GPU sits in its machine.
type Place struct {
	NUMANode int    // the nearest memory node, negative where unknown
	CPUs     string // the nearest CPUs as Linux lists them, "0-31,64-95"; empty where unknown
}

// PlaceOf returns the place of a GPU near the memory nodes and the CPUs of two masks, bit 0 of the first word first. A
// GPU near several nodes is nearest to none.
func PlaceOf(nodes, cpus []uint64) Place {
	p := Place{NUMANode: -1, CPUs: listOf(cpus)}
	if n, err := strconv.Atoi(listOf(nodes)); err == nil {
		p.NUMANode = n
	}
	return p
}

// listOf writes the bits of a mask as Linux lists CPUs: "0-31,64-95".
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

// A Path is the way between two GPUs without NVLink, from near to far (nvmlGpuTopologyLevel_t).
type Path uint8

// The paths, in the words of "nvidia-smi topo -m".
const (
	PathUnknown    Path = iota
	PathBoard           // "PSB": two GPUs of one board
	PathSwitch          // "PIX": one PCIe switch at most
	PathSwitches        // "PXB": several PCIe switches, no host bridge
	PathHostBridge      // "PHB": a PCIe host bridge
	PathNode            // "NODE": between the host bridges of one NUMA node
	PathSystem          // "SYS": between NUMA nodes
)

// String returns the word of "nvidia-smi topo -m", "" for PathUnknown.
func (p Path) String() string { return [...]string{"", "PSB", "PIX", "PXB", "PHB", "NODE", "SYS"}[p] }

// A Pair is the connection of two GPUs.
type Pair struct {
	A, B    int // rows, A < B
	Path    Path
	NVLinks int // between them, directly or through switches
}
