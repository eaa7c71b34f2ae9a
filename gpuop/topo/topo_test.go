package topo_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/topo"
)

// sysfs makes the part of a sysfs that has the devices: path below /sys/devices → facts.
func sysfs(t *testing.T, devices map[string]map[string]string) string {
	t.Helper()
	root := t.TempDir()
	bus := filepath.Join(root, "sys", "bus", "pci", "devices")
	if err := os.MkdirAll(bus, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, facts := range devices {
		dir := filepath.Join(root, "sys", "devices", path)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range facts {
			file := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		link := filepath.Join(bus, filepath.Base(path))
		if err := os.Symlink(filepath.Join("..", "..", "..", "devices", path), link); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func gpu(numa string) map[string]string {
	return map[string]string{"vendor": "0x10de", "class": "0x030200", "numa_node": numa, "local_cpulist": "0-31"}
}

func card(numa, name string) map[string]string {
	return map[string]string{"vendor": "0x15b3", "class": "0x020700", "numa_node": numa, "local_cpulist": "0-31", "infiniband/" + name + "/node_type": "1: CA"}
}

// Two sockets, a switch below each of two root ports, a second level of switches, and what is neither a
// GPU nor a card. The words are those that nvidia-smi's own legend has for such paths.
func TestHost(t *testing.T) {
	const switched = "pci0000:00/0000:00:01.0/0000:01:00.0/" // root port, upstream port
	root := sysfs(t, map[string]map[string]string{
		switched + "0000:02:00.0/0000:03:00.0":                           gpu("0"),                                  // GPU0
		switched + "0000:02:01.0/0000:04:00.0":                           card("0", "mlx5_0"),                       // NIC0, same switch
		switched + "0000:02:02.0/0000:05:00.0/0000:06:00.0/0000:07:00.0": gpu("0"),                                  // GPU1, a switch further down
		"pci0000:00/0000:00:02.0/0000:08:00.0":                           gpu("0"),                                  // GPU2, another root port
		"pci0000:40/0000:40:01.0/0000:41:00.0":                           gpu("0"),                                  // GPU3, another host bridge
		"pci0000:80/0000:80:01.0/0000:81:00.0":                           gpu("1"),                                  // GPU4, another socket
		"pci0000:80/0000:80:02.0/0000:82:00.0":                           card("1", "mlx5_1"),                       // NIC1
		"pci0000:80/0000:80:03.0/0000:83:00.0":                           {"vendor": "0x10de", "class": "0x068000"}, // an NVSwitch
		"pci0000:80/0000:80:04.0/0000:84:00.0":                           {"vendor": "0x8086", "class": "0x020000"}, // a card without RDMA
		"pci0000:80/0000:80:05.0/0000:85:00.0":                           {"vendor": "0x10de", "class": "0x040300"}, // a GPU's sound
	})
	n, err := topo.Host(root)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := n.Write(&b); err != nil {
		t.Fatal(err)
	}
	want := `      GPU0  GPU1  GPU2  GPU3  GPU4  NIC0  NIC1  CPU Affinity  NUMA Affinity
GPU0  X     PXB   PHB   NODE  SYS   PIX   SYS   0-31          0
GPU1  PXB   X     PHB   NODE  SYS   PXB   SYS   0-31          0
GPU2  PHB   PHB   X     NODE  SYS   PHB   SYS   0-31          0
GPU3  NODE  NODE  NODE  X     SYS   NODE  SYS   0-31          0
GPU4  SYS   SYS   SYS   SYS   X     SYS   PHB   0-31          1
NIC0  PIX   PXB   PHB   NODE  SYS   X     SYS   0-31          0
NIC1  SYS   SYS   SYS   SYS   PHB   SYS   X     0-31          1

NIC0: mlx5_0
NIC1: mlx5_1
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestHostWithoutGPUs(t *testing.T) {
	for _, root := range []string{t.TempDir(), sysfs(t, map[string]map[string]string{"pci0000:00/0000:00:02.0": card("0", "mlx5_0")})} {
		if _, err := topo.Host(root); !errors.Is(err, topo.ErrNoGPU) {
			t.Errorf("%v", err)
		}
	}
}

// A ConnectX card without RDMA is one by its vendor, under the name of its interface.
func TestHostCardWithoutRDMA(t *testing.T) {
	n, err := topo.Host(sysfs(t, map[string]map[string]string{
		"pci0000:00/0000:00:01.0": gpu("0"),
		"pci0000:00/0000:00:02.0": {"vendor": "0x15b3", "class": "0x020000", "net/eth2/mtu": "1500"},
	}))
	if err != nil || len(n.Devices) != 2 || n.Devices[1].Title != "eth2" {
		t.Errorf("%+v, %v", n, err)
	}
}

// A machine of one NUMA node says -1 for it, and a kernel without the files says nothing.
func TestHostSaysLittle(t *testing.T) {
	n, err := topo.Host(sysfs(t, map[string]map[string]string{
		"pci0000:00/0000:00:01.0": {"vendor": "0x10de", "class": "0x030000", "numa_node": "-1"},
	}))
	if err != nil || n.Devices[0].NUMA != "" || n.Devices[0].CPUs != "" {
		t.Errorf("%+v, %v", n, err)
	}
	var b strings.Builder
	if err := n.Write(&b); err != nil || !strings.Contains(b.String(), "GPU0  X     N/A           N/A\n") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// However the devices and paths come, the matrix is the same, and symmetric.
func TestSortMovesPaths(t *testing.T) {
	const gpus, cards = 11, 3 // GPU10 stands behind GPU9
	word := func(a, b string) string {
		if a > b {
			a, b = b, a
		}
		return a + b
	}
	var want [][]string
	for seed := range uint64(20) {
		n := &topo.Node{}
		for i := range gpus {
			n.Devices = append(n.Devices, topo.Device{Name: fmt.Sprintf("GPU%d", i)})
		}
		for i := range cards {
			n.Devices = append(n.Devices, topo.Device{Name: fmt.Sprintf("NIC%d", i), NIC: true})
		}
		r := rand.New(rand.NewPCG(seed, 1))
		r.Shuffle(len(n.Devices), func(i, j int) { n.Devices[i], n.Devices[j] = n.Devices[j], n.Devices[i] })
		for i := range n.Devices {
			for j := range i {
				n.Connect(i, j, word(n.Devices[i].Name, n.Devices[j].Name))
			}
		}
		n.Sort()
		n.Fill()
		if n.Devices[10].Name != "GPU10" || n.Devices[11].Name != "NIC0" {
			t.Fatalf("%+v", n.Devices)
		}
		for i, row := range n.Matrix {
			for j, cell := range row {
				if i != j && cell != word(n.Devices[i].Name, n.Devices[j].Name) || cell != n.Matrix[j][i] {
					t.Fatalf("seed %d: %s, %s: %q", seed, n.Devices[i].Name, n.Devices[j].Name, cell)
				}
			}
		}
		if want == nil {
			want = n.Matrix
		}
		if diff := cmp.Diff(want, n.Matrix); diff != "" {
			t.Fatalf("seed %d:\n%s", seed, diff)
		}
	}
}
