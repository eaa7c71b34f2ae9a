package command

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

//go:embed topo_legend.txt
var topoLegend string

// topo prints the topology of one session. Facts that the source does not report are N/A.
func topo(ctx context.Context, p *Process) int {
	cfg, code := p.settings()
	if cfg == nil {
		return code
	}
	// A plan needs at least one field. Every GPU has a temperature.
	request, _ := counters.NewRequest("DCGM_FI_DEV_GPU_TEMP", gpu.MetricGauge, "") // the catalog has it
	plan := counters.NewPlan([]counters.Request{request},
		gpu.Plan{Interval: time.Second, Devices: cfg.Devices.GPUs, Placement: true})
	var topology *gpu.Topology
	if err := p.collect(ctx, cfg, plan, 1, func(s *gpu.Snapshot) { topology = s.Topology }); err != nil {
		return p.fail(Faulty, err)
	}
	table := matrix(topology)
	if len(table) == 1 {
		const why = "%w: the source has no GPU, or --devices selects none of them"
		return p.fail(Faulty, fmt.Errorf(why, gpu.ErrUnavailable))
	}
	p.table(table)
	return p.print(topoLegend)
}

// matrix returns the lines of the table, starting with the header.
func matrix(t *gpu.Topology) [][]string {
	const unknown = "N/A"
	words := map[[2]int]string{}
	for _, pair := range t.Pairs {
		word := pair.Path.String()
		if pair.NVLinks > 0 {
			word = "NV" + strconv.Itoa(pair.NVLinks)
		}
		words[[2]int{pair.A, pair.B}], words[[2]int{pair.B, pair.A}] = word, word
	}
	head := []string{""}
	rows := t.RowsOf(gpu.KindsOf(gpu.KindGPU))
	for _, row := range rows {
		head = append(head, fmt.Sprintf("GPU%d", t.Devices[row].GPU))
	}
	lines := [][]string{append(head, "CPU Affinity", "NUMA Affinity")}
	for i, row := range rows {
		line := []string{head[i+1]}
		for _, other := range rows {
			word := "X"
			if other != row {
				word = cmp.Or(words[[2]int{row, other}], unknown)
			}
			line = append(line, word)
		}
		cpus, node := unknown, unknown
		if place := t.Devices[row].Place; place != nil {
			cpus = cmp.Or(place.CPUs, unknown)
			if place.NUMANode >= 0 {
				node = strconv.Itoa(place.NUMANode)
			}
		}
		lines = append(lines, append(line, cpus, node))
	}
	return lines
}
