package topo

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

const name = "topo"

// Usage is the text of "topo --help".
const Usage = `Usage: dcgm-exporter topo [flags]

Prints how each two GPUs are connected, and the CPUs and the NUMA node that are
nearest to each, as "nvidia-smi topo -m" does. The flags are those of the
exporter itself (dcgm-exporter --help).

Exit code: 0 the matrix was printed; 1 the source has no GPU, and the message
says why; 2 a wrong setting.
`

// unknown stands for what the source does not report.
const unknown = "N/A"

// A Command is the subcommand.
type Command struct {
	command.Process
	// Open makes the source.
	Open command.Opener
}

// Run prints the matrix and returns the exit code.
func (c Command) Run(ctx context.Context) int {
	cfg, code := c.Settings(name, Usage)
	if cfg == nil {
		return code
	}
	// A session reads something: the temperature, which every GPU has.
	request, err := counters.NewRequest("DCGM_FI_DEV_GPU_TEMP", gpu.MetricGauge, "")
	if err != nil {
		return c.Fail(name, err)
	}
	plan := counters.NewPlan([]counters.Request{request}, counters.PlanOptions{Interval: time.Second, Devices: cfg.Devices.GPUs})
	plan.Placement = true
	source, err := c.Open(ctx, cfg, plan)
	if err != nil {
		return c.Fail(name, err)
	}
	source.Attributors = nil // their users are not requested
	var topology *gpu.Topology
	if err := app.Collect(ctx, source, plan, 1, func(s *gpu.Snapshot) { topology = s.Topology }); err != nil {
		return c.Fault(name, err)
	}
	m := newMatrix(topology)
	if len(m.gpus) == 0 {
		return c.Fault(name, fmt.Errorf("%w: the source has no GPU that --devices selects", gpu.ErrUnavailable))
	}
	if err := m.print(c.Out); err != nil {
		return c.Fail(name, err)
	}
	return command.OK
}

// A matrix is a topology, ready to print.
type matrix struct {
	gpus  []*gpu.Device
	cells [][]string // by GPU, then by the other
}

func newMatrix(t *gpu.Topology) matrix {
	var m matrix
	at := map[int]int{} // row → place in gpus
	for row := range t.Devices {
		if d := &t.Devices[row]; d.Entity.Kind == gpu.KindGPU {
			at[row] = len(m.gpus)
			m.gpus = append(m.gpus, d)
		}
	}
	for i := range m.gpus {
		cells := make([]string, len(m.gpus))
		for j := range cells {
			if cells[j] = unknown; i == j {
				cells[j] = "X"
			}
		}
		m.cells = append(m.cells, cells)
	}
	for i := range t.Pairs {
		p := &t.Pairs[i]
		if word := wordFor(p); word != "" {
			m.cells[at[p.A]][at[p.B]], m.cells[at[p.B]][at[p.A]] = word, word
		}
	}
	return m
}

// wordFor returns the word for a pair: the NVLinks where there are any.
func wordFor(p *gpu.Pair) string {
	if p.NVLinks > 0 {
		return "NV" + strconv.Itoa(p.NVLinks)
	}
	return p.Path.String()
}

// legend says what the words mean.
const legend = `
Legend:

  X    The GPU itself
  SYS  Over PCIe and the link between NUMA nodes
  NODE Over PCIe and the link between host bridges of one NUMA node
  PHB  Over PCIe and a host bridge
  PXB  Over several PCIe switches, without a host bridge
  PIX  Over one PCIe switch at most
  PSB  On one board
  NV#  Over # NVLinks
  N/A  The source does not report
`

// print writes the matrix and its legend.
func (m matrix) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, d := range m.gpus {
		fmt.Fprint(w, "\t", label(d))
	}
	fmt.Fprint(w, "\tCPU Affinity\tNUMA Affinity\n")
	for i, d := range m.gpus {
		fmt.Fprint(w, label(d))
		for _, cell := range m.cells[i] {
			fmt.Fprint(w, "\t", cell)
		}
		cpus, node := unknown, unknown
		if d.Place != nil && d.Place.CPUs != "" {
			cpus = d.Place.CPUs
		}
		if d.Place != nil && d.Place.NUMANode >= 0 {
			node = strconv.Itoa(d.Place.NUMANode)
		}
		fmt.Fprint(w, "\t", cpus, "\t", node, "\n")
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(out, legend)
	return err
}

func label(d *gpu.Device) string { return "GPU" + strconv.FormatUint(uint64(d.GPU), 10) }
