package gpu

import "strconv"

// A Place is where a GPU sits in its machine. A number that is not known is negative, a text that
// is not known empty.
type Place struct {
	NUMANode int    // the memory node that is nearest
	CPUs     string // the CPUs that are nearest, as Linux lists them: "0-31,64-95"
}

// PlaceOf returns the place of a GPU with a mask of the memory nodes that are near and one of the
// CPUs, bit 0 of the first word first. A GPU that is near several nodes is nearest to none.
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

// A Path is the way between two GPUs through the machine without NVLink, in the order from near to
// far (nvmlGpuTopologyLevel_t).
type Path uint8

// The paths, in the words of "nvidia-smi topo -m".
const (
	PathUnknown    Path = iota
	PathBoard           // two GPUs of one board
	PathSwitch          // "PIX": one PCIe switch at most
	PathSwitches        // "PXB": several PCIe switches, no host bridge
	PathHostBridge      // "PHB": a PCIe host bridge
	PathNode            // "NODE": between the host bridges of one NUMA node
	PathSystem          // "SYS": between NUMA nodes
)

// String returns the word of "nvidia-smi topo -m"; a board's own is "PSB".
func (p Path) String() string {
	switch p {
	case PathBoard:
		return "PSB"
	case PathSwitch:
		return "PIX"
	case PathSwitches:
		return "PXB"
	case PathHostBridge:
		return "PHB"
	case PathNode:
		return "NODE"
	case PathSystem:
		return "SYS"
	default:
		return ""
	}
}

// A Pair says how two GPUs are connected.
type Pair struct {
	// A and B are the rows of the two GPUs, A < B.
	A, B int
	// Path is the way through the machine.
	Path Path
	// NVLinks is how many NVLinks join them, directly or through switches; 0 where none does.
	NVLinks int
}
