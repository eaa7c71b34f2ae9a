// Command gen writes the tables of package chart from a folder of gpu-operator charts, a release
// each: see docs/contributing.md.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/release"
)

func main() {
	charts := flag.String("charts", os.Getenv("GPU_OPERATOR_CHARTS"), "the `folder` of charts, unpacked or packed, a release each")
	out := flag.String("out", ".", "the `folder` to write the tables to")
	only := flag.Bool("only", false, "forget the releases of the present tables")
	flag.Parse()
	if err := run(*charts, *out, *only); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// run adds the releases in the folder to the tables, in place of what they said of these releases.
func run(charts, out string, only bool) error {
	entries, err := os.ReadDir(charts)
	if err != nil {
		return fmt.Errorf("-charts, or GPU_OPERATOR_CHARTS: %w", err)
	}
	var list []*chart.Release
	for _, e := range entries {
		r, err := release.Open(filepath.Join(charts, e.Name()))
		if err != nil {
			return err
		}
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b *chart.Release) int { return a.Version.Compare(b.Version) })
	table := chart.Load()
	if only {
		table = chart.NewTable(nil)
	}
	for _, r := range list {
		table = table.With(r)
	}
	for name, text := range table.Text() {
		if err := os.WriteFile(filepath.Join(out, name), text, 0o644); err != nil {
			return err
		}
	}
	fmt.Printf("%d releases read; read the difference: git diff %s\n", len(list), out)
	return nil
}
