package main

import (
	"bytes"
	"fmt"
	"io"
	"time"
)

// report writes the tables of docs/performance.md to w.
func report(w io.Writer, f *fleet, span time.Duration, queries []query, without, with *measurement) error {
	var b bytes.Buffer
	nodes := float64(len(f.nodes))
	fmt.Fprintf(&b, "%.0f nodes, %.0f GPUs, scraped twice every %v; "+
		"each Prometheus ran for %v, measured after the first minute.\n\n", nodes, 8*nodes, interval, span)
	row := func(name, format string, value func(*measurement) float64) {
		fmt.Fprintf(&b, "| %s | "+format+" | "+format+" |\n", name, value(without), value(with))
	}
	b.WriteString("| | without rules | with the recording rules |\n|---|---|---|\n")
	row("series", "%.0f", func(m *measurement) float64 { return m.series })
	row("of them recorded", "%.0f", func(m *measurement) float64 { return m.recorded })
	row("samples per second", "%.0f", func(m *measurement) float64 { return m.samples })
	row("Prometheus: CPU seconds per second", "%.2f", func(m *measurement) float64 { return m.cpu })
	row("Prometheus: resident memory at the end, GiB", "%.2f",
		func(m *measurement) float64 { return m.memory / (1 << 30) })
	row("Prometheus: peak resident memory, GiB", "%.2f", func(m *measurement) float64 { return m.peak / (1 << 30) })
	row("write-ahead log, bytes per sample", "%.2f", func(m *measurement) float64 { return m.log })
	row("block: chunks, bytes per sample", "%.2f",
		func(m *measurement) float64 { return m.block.chunks / m.block.Stats.NumSamples })
	row("block: index, bytes per series", "%.0f",
		func(m *measurement) float64 { return m.block.index / m.block.Stats.NumSeries })
	row("scrapes that failed", "%.0f", func(m *measurement) float64 { return m.failed })
	row("scrape, median, ms", "%.1f", func(m *measurement) float64 { return m.p50 * 1e3 })
	row("scrape, 99th percentile, ms", "%.1f", func(m *measurement) float64 { return m.p99 * 1e3 })
	row("rule evaluation, s", "%.2f", func(m *measurement) float64 { return m.rules })
	row("evaluations left out", "%.0f", func(m *measurement) float64 { return m.missed })
	row("exporter: CPU per node, ms per second", "%.2f", func(m *measurement) float64 { return m.ownCPU / nodes * 1e3 })
	row("exporter: resident memory per node, MiB", "%.2f",
		func(m *measurement) float64 { return m.ownMemory / nodes / (1 << 20) })

	b.WriteString("\n| node | nodes | series | page, KiB | compressed, KiB |\n|---|---|---|---|---|\n")
	for _, model := range f.models() {
		var n, series, page, zipped int
		for _, node := range f.nodes {
			p := node.pages.Current()
			if node.model != model || p == nil {
				continue
			}
			n, series, page, zipped = n+1, series+seriesOf(p.Bytes()), page+len(p.Bytes()), zipped+len(p.Gzip())
		}
		if n == 0 {
			return fmt.Errorf("no node of model %s has a page", model)
		}
		fmt.Fprintf(&b, "| `%s` | %d | %d | %d | %d |\n", model, n, series/n, page/n>>10, zipped/n>>10)
	}

	b.WriteString("\n| query of `fleet.json` | kind | s, without rules | s, with rules | s, from recorded series |\n")
	b.WriteString("|---|---|---|---|---|\n")
	for i, q := range queries {
		kind, instead := fmt.Sprintf("%v", span), "–"
		if q.Instant {
			kind = "now"
		}
		if q.recorded != "" {
			instead = seconds(with.instead[i])
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", q.title, kind, seconds(without.took[i]), seconds(with.took[i]),
			instead)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// seriesOf returns the number of series on a page.
func seriesOf(page []byte) (n int) {
	for line := range bytes.Lines(page) {
		if line[0] != '#' {
			n++
		}
	}
	return n
}

// seconds formats a duration for a table cell.
func seconds(d time.Duration) string {
	if d == failed {
		return "failed"
	}
	return fmt.Sprintf("%.3f", d.Seconds())
}
