package command

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"unicode"

	dto "github.com/prometheus/client_model/go"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/verdict"
)

type gpuVerdict struct{ gpu, uuid, verdict, reason string }

// judgment prints the verdicts of a running exporter that are at least as severe as --from, and unknown ones. A known
// fault decides the exit code, even if other verdicts are unknown.
func judgment(ctx context.Context, p *Process) int {
	flags := flag.NewFlagSet("verdict", flag.ContinueOnError)
	from := flags.String("from", verdict.Watch, "")
	client, url, code := p.endpoint(flags, localPage)
	if client == nil {
		return code
	}
	if !slices.Contains([]string{verdict.Watch, verdict.Drain, verdict.Replace}, *from) {
		return p.fail(Unable, fmt.Errorf("--from=%s: expected watch, drain or replace", *from))
	}
	families, err := families(ctx, client, url)
	all := verdictsOf(families[catalog.GPUVerdict])
	if err == nil && len(all) == 0 {
		const todo = "add its line to the counters file; if there is no GPU, run dcgm-exporter doctor"
		err = fmt.Errorf("%s: no series of %s: %s", url, catalog.GPUVerdict, todo)
	}
	if err != nil {
		fmt.Fprintln(p.Out, "unknown:", printable(err.Error())) // node-problem-detector shows standard output
		return Unable
	}
	slices.SortStableFunc(all, func(a, b gpuVerdict) int {
		return cmp.Compare(verdict.Severity(b.verdict), verdict.Severity(a.verdict))
	})
	known, unknown := 0, 0
	for _, v := range all {
		switch {
		case v.verdict == verdict.Unknown:
			unknown++
		case verdict.Severity(v.verdict) < verdict.Severity(*from):
			continue
		default:
			known++
		}
		fmt.Fprintln(p.Out, printable(fmt.Sprintf("GPU %s: %s, %s (%s)", v.gpu, v.verdict, v.reason, v.uuid)))
	}
	switch {
	case known > 0:
		return Faulty
	case unknown > 0:
		return Unable
	}
	return p.print(fmt.Sprintf("%s: none has the verdict %s or worse\n", plural(len(all), "GPU"), *from))
}

// verdictsOf returns the verdicts of a page: the series with the value 1. An unknown verdict name counts as the most
// severe verdict.
func verdictsOf(f *dto.MetricFamily) (list []gpuVerdict) {
	for _, m := range f.GetMetric() {
		if valueOf(m) != 1 {
			continue
		}
		labels := map[string]string{}
		for _, l := range m.Label {
			labels[l.GetName()] = l.GetValue()
		}
		uuid := cmp.Or(labels["UUID"], labels["uuid"])
		list = append(list, gpuVerdict{labels["gpu"], uuid, labels["verdict"], labels["reason"]})
	}
	return list
}

// printable replaces characters that a terminal could interpret as a command by question marks.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}
