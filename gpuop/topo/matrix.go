package topo

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
)

// Unknown stands for what the source does not say.
const Unknown = "N/A"

// A Device is a GPU or a network card.
type Device struct {
	// Name is GPU0 or NIC0, Title what else it is called: a model, or mlx5_0.
	Name  string `json:"name"`
	Title string `json:"title,omitempty"`
	UUID  string `json:"uuid,omitempty"`
	// PCI is its bus id, "0000:1b:00.0"; empty if unknown.
	PCI string `json:"pci,omitempty"`
	// NUMA is its NUMA node, CPUs the list of those next to it; empty if unknown.
	NUMA string `json:"numa,omitempty"`
	CPUs string `json:"cpus,omitempty"`
	NIC  bool   `json:"nic,omitempty"`
}

// A Node is a machine with its devices.
type Node struct {
	Name    string   `json:"name"`
	Devices []Device `json:"devices"`
	// Paths are the words of pairs, by the positions of both in Devices, the lower one first: "NV18",
	// "SYS", "NODE", "PHB", "PXB", "PIX", "PSB".
	Paths map[[2]int]string `json:"-"`
	// Matrix is every row of the matrix; Fill makes it.
	Matrix [][]string `json:"matrix"`
}

// Sort orders the devices, GPUs first, by number, and moves the paths with them.
func (n *Node) Sort() {
	order := make([]int, len(n.Devices))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := n.Devices[a], n.Devices[b]
		return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(number(x.Name), number(y.Name)), cmp.Compare(x.Name, y.Name))
	})
	at := make([]int, len(order)) // old position → new
	devices := make([]Device, len(order))
	for i, old := range order {
		at[old], devices[i] = i, n.Devices[old]
	}
	paths := map[[2]int]string{}
	for pair, word := range n.Paths {
		paths[key(at[pair[0]], at[pair[1]])] = word
	}
	n.Devices, n.Paths = devices, paths
}

func rank(d Device) int {
	if d.NIC {
		return 1
	}
	return 0
}

// number is the number at the end of a name.
func number(name string) int {
	i := len(name)
	for i > 0 && name[i-1] >= '0' && name[i-1] <= '9' {
		i--
	}
	n, err := strconv.Atoi(name[i:])
	if err != nil {
		return -1
	}
	return n
}

func key(a, b int) [2]int { return [2]int{min(a, b), max(a, b)} }

// Connect sets the word of a pair.
func (n *Node) Connect(a, b int, word string) {
	if n.Paths == nil {
		n.Paths = map[[2]int]string{}
	}
	n.Paths[key(a, b)] = word
}

// Fill makes the matrix.
func (n *Node) Fill() {
	n.Matrix = nil
	for i := range n.Devices {
		row := make([]string, len(n.Devices))
		for j := range row {
			if row[j] = cmp.Or(n.Paths[key(i, j)], Unknown); i == j {
				row[j] = "X"
			}
		}
		n.Matrix = append(n.Matrix, row)
	}
}

// Write writes the matrix, and the titles of the cards.
func (n *Node) Write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, d := range n.Devices {
		fmt.Fprint(w, "\t", d.Name)
	}
	fmt.Fprint(w, "\tCPU Affinity\tNUMA Affinity\n")
	for i, d := range n.Devices {
		fmt.Fprint(w, d.Name)
		for _, cell := range n.Matrix[i] {
			fmt.Fprint(w, "\t", cell)
		}
		fmt.Fprintf(w, "\t%s\t%s\n", cmp.Or(d.CPUs, Unknown), cmp.Or(d.NUMA, Unknown))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for i, d := range n.Devices {
		if !d.NIC {
			continue
		}
		if i == 0 || !n.Devices[i-1].NIC {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "%s: %s\n", d.Name, cmp.Or(d.Title, d.PCI))
	}
	return nil
}

// Legend says what the words mean.
const Legend = `Legend:

  X    The device itself
  SYS  Over PCIe and the link between NUMA nodes
  NODE Over PCIe and the link between host bridges of one NUMA node
  PHB  Over PCIe and a host bridge
  PXB  Over several PCIe switches, without a host bridge
  PIX  Over one PCIe switch at most
  PSB  On one board
  NV#  Over # NVLinks
  N/A  The source does not say
`
