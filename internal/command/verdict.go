package command

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"slices"

	dto "github.com/prometheus/client_model/go"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/verdict"
)

const verdictUsage = `Usage: dcgm-exporter verdict [--from VERDICT] [--ca-file FILE] [--insecure] [--credentials FOLDER] [URL]

Prints the verdicts of a running exporter on the GPUs of its machine: those that
are not ok, the gravest first (experimental; docs/verdict.md has the rules). It
judges nothing itself. URL is that of the page (default
http://127.0.0.1:9400/metrics), whose counters file needs the line
dcgm_exporter_gpu_verdict.

  --from VERDICT        the mildest verdict that counts: watch (default), drain
                        or replace
  --ca-file FILE        the CA of the server's certificate, in PEM
  --insecure            take any certificate
  --credentials FOLDER  a folder with the files username and password

Exit code, as plugins of node-problem-detector have it: 0 no GPU has such a
verdict; 1 a GPU has; 2 unknown: no page or no verdict, a bad flag, or a file
that cannot be read.
`

// A judged is the verdict on one GPU.
type judged struct{ gpu, uuid, verdict, reason string }

// judgment prints verdicts of a running exporter.
func judgment(ctx context.Context, p *Process) int {
	flags := flag.NewFlagSet("verdict", flag.ContinueOnError)
	from := flags.String("from", verdict.Watch, "")
	client, url, code := p.endpoint(flags, page)
	if client == nil {
		return code
	}
	least := verdict.Gravity(*from)
	if least <= verdict.Gravity(verdict.OK) {
		return p.fail(Unable, fmt.Errorf("--from=%s: expected watch, drain or replace", *from))
	}
	families, err := families(ctx, client, url)
	all := verdictsOf(families[catalog.GPUVerdict])
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s: no %s: the counters file needs the line, and dcgm-exporter doctor says why there is no GPU",
			url, catalog.GPUVerdict)
	}
	if err != nil {
		fmt.Fprintln(p.Out, "unknown:", err) // node-problem-detector shows what is on standard output
		return Unable
	}
	found := slices.DeleteFunc(slices.Clone(all), func(j judged) bool { return verdict.Gravity(j.verdict) < least })
	if len(found) == 0 {
		fmt.Fprintf(p.Out, "%s: none is to %s\n", plural(len(all), "GPU"), *from)
		return OK
	}
	slices.SortStableFunc(found, func(a, b judged) int { return cmp.Compare(verdict.Gravity(b.verdict), verdict.Gravity(a.verdict)) })
	for _, j := range found {
		fmt.Fprintf(p.Out, "GPU %s: %s, %s (%s)\n", j.gpu, j.verdict, j.reason, j.uuid)
	}
	return Faulty
}

// verdictsOf returns the verdicts of a page. A word that is not known here is as grave as the gravest.
func verdictsOf(f *dto.MetricFamily) (list []judged) {
	for _, m := range f.GetMetric() {
		labels := map[string]string{}
		for _, l := range m.Label {
			labels[l.GetName()] = l.GetValue()
		}
		list = append(list, judged{labels["gpu"], cmp.Or(labels["UUID"], labels["uuid"]), labels["verdict"], labels["reason"]})
	}
	return list
}
