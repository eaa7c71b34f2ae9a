package topo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ErrNoGPU is wrapped where the machine has no GPU of NVIDIA's.
var ErrNoGPU = errors.New("no GPU")

const (
	nvidia   = "0x10de"
	mellanox = "0x15b3"
)

// Host reads the sysfs below root ("/" for the machine itself): the GPUs, the cards that RDMA or
// Mellanox's driver serves, and the PCIe path between each two. NVLinks are not in sysfs. The error
// wraps ErrNoGPU, or is the file system's.
func Host(root string) (*Node, error) {
	folder := filepath.Join(root, "sys", "bus", "pci", "devices")
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoGPU, err)
	}
	n := &Node{}
	var paths [][]string
	gpus, cards := 0, 0
	for _, e := range entries { // by bus id, as the driver numbers them
		dir := filepath.Join(folder, e.Name())
		class := fact(dir, "class")
		d := Device{PCI: e.Name(), CPUs: fact(dir, "local_cpulist"), NUMA: fact(dir, "numa_node")}
		if strings.HasPrefix(d.NUMA, "-") { // the machine has one node
			d.NUMA = ""
		}
		switch {
		case fact(dir, "vendor") == nvidia && (strings.HasPrefix(class, "0x0300") || strings.HasPrefix(class, "0x0302")):
			d.Name = fmt.Sprintf("GPU%d", gpus)
			gpus++
		case strings.HasPrefix(class, "0x02") && (fact(dir, "vendor") == mellanox || first(dir, "infiniband") != ""):
			d.Name, d.NIC = fmt.Sprintf("NIC%d", cards), true
			if d.Title = first(dir, "infiniband"); d.Title == "" {
				d.Title = first(dir, "net")
			}
			cards++
		default:
			continue
		}
		resolved, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return nil, err
		}
		n.Devices, paths = append(n.Devices, d), append(paths, chain(resolved))
	}
	if gpus == 0 {
		return nil, fmt.Errorf("%w: %s has no GPU of NVIDIA's (vendor %s, class 0x0300 or 0x0302)", ErrNoGPU, folder, nvidia)
	}
	for i := range n.Devices {
		for j := range i {
			if word := between(paths[j], paths[i], n.Devices[j].NUMA, n.Devices[i].NUMA); word != "" {
				n.Connect(j, i, word)
			}
		}
	}
	n.Sort()
	n.Fill()
	return n, nil
}

func fact(dir, name string) string {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return "" // not every kernel and device has every file
	}
	return strings.TrimSpace(string(text))
}

// first is the first entry of a folder, empty without one.
func first(dir, name string) string {
	entries, err := os.ReadDir(filepath.Join(dir, name))
	if err != nil || len(entries) == 0 {
		return ""
	}
	return entries[0].Name()
}

// chain are the bridges from the host bridge to the device: pci0000:00, 0000:00:01.0, …
func chain(resolved string) []string {
	parts := strings.Split(filepath.ToSlash(resolved), "/")
	i := slices.IndexFunc(parts, func(s string) bool { return strings.HasPrefix(s, "pci") && strings.Contains(s, ":") })
	if i < 0 {
		return nil
	}
	return parts[i:]
}

// between is the word for two chains, empty where they say nothing. The words are those of nvidia-smi:
// devices below one switch have its upstream port in common, and a downstream port of their own.
func between(a, b []string, numaA, numaB string) string {
	if len(a) == 0 || len(b) == 0 {
		return ""
	}
	common := 0
	for common < min(len(a), len(b)) && a[common] == b[common] {
		common++
	}
	switch {
	case common == 0 && numaA == numaB:
		return "NODE"
	case common == 0:
		return "SYS"
	case common == 1:
		return "PHB"
	case len(a)-common <= 2 && len(b)-common <= 2:
		return "PIX"
	}
	return "PXB"
}
