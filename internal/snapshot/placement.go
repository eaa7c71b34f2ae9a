package snapshot

import (
	"slices"
	"strconv"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// pairSeries returns one series for each pair of connected GPUs, on the row of the first.
func pairSeries(t *gpu.Topology) []gpu.Series {
	series := make([]gpu.Series, 0, len(t.Pairs))
	for i := range t.Pairs {
		p := &t.Pairs[i]
		peer := &t.Devices[p.B]
		labels := []gpu.Label{
			{Name: "peer_gpu", Value: strconv.FormatUint(uint64(peer.GPU), 10)},
			{Name: "peer_uuid", Value: peer.UUID},
			{Name: "path", Value: p.Path.String()},
			{Name: "nvlinks", Value: strconv.Itoa(p.NVLinks)},
		}
		series = append(series, info(p.A, labels))
	}
	return series
}

// affinitySeries returns one series for each GPU whose location is known.
func affinitySeries(t *gpu.Topology) []gpu.Series {
	var series []gpu.Series
	for row := range t.Devices {
		place := t.Devices[row].Place
		if place == nil {
			continue
		}
		labels := []gpu.Label{{Name: "cpu_affinity", Value: place.CPUs}}
		if place.NUMANode >= 0 {
			labels = slices.Insert(labels, 0, gpu.Label{Name: "numa_node", Value: strconv.Itoa(place.NUMANode)})
		}
		if s := info(row, labels); len(s.Labels) > 0 {
			series = append(series, s)
		}
	}
	return series
}

// info returns a series that carries only labels. Blank labels are omitted.
func info(row int, labels []gpu.Label) gpu.Series {
	labels = slices.DeleteFunc(labels, func(l gpu.Label) bool { return l.Value == "" })
	return gpu.Series{Row: row, Labels: labels, Value: gpu.Int(1)}
}
