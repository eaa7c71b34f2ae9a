// Command operator writes the tables of package chart. It reads a folder of gpu-operator charts, one for each release,
// a clone of the operator's repository, or both. docs/gpuop/dev/recipes.md describes how to use it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/release"
)

func main() {
	charts := flag.String("charts", os.Getenv("GPU_OPERATOR_CHARTS"),
		"`folder` of charts, packed or unpacked, one for each release")
	clone := flag.String("source", os.Getenv("GPU_OPERATOR_SOURCE"),
		"`clone` of the operator's repository with release tags, for operands.txt")
	out := flag.String("out", ".", "`folder` to write the tables to")
	only := flag.Bool("only", false, "drop releases that are in the tables but not in -charts")
	flag.Parse()
	if err := run(*charts, *clone, *out, *only); err != nil {
		fmt.Fprintln(os.Stderr, "operator:", err)
		os.Exit(1)
	}
}

// run adds the releases in the folder charts to the tables, or replaces them. With a clone, it also updates the
// operands of every release in the tables. The clone must have the tags of all these releases. If only is set, the new
// tables have no other releases than those in charts.
func run(charts, clone, out string, only bool) error {
	if charts == "" && clone == "" {
		return errors.New("set -charts (or GPU_OPERATOR_CHARTS) or -source (or GPU_OPERATOR_SOURCE)")
	}
	var entries []os.DirEntry
	if charts != "" {
		var err error
		if entries, err = os.ReadDir(charts); err != nil {
			return fmt.Errorf("-charts (or GPU_OPERATOR_CHARTS): %w", err)
		}
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
		table = &chart.Table{}
	}
	for _, r := range list {
		table = table.With(r)
	}
	operands := map[chart.Version][]chart.Operand{}
	for _, v := range table.Versions() {
		operands[v] = table.Operands(v)
		if clone == "" {
			continue
		}
		var err error
		if operands[v], err = operandsOf(clone, v); err != nil {
			return fmt.Errorf("-source (or GPU_OPERATOR_SOURCE): %w", err)
		}
	}
	for name, text := range files(table, operands) {
		if err := os.WriteFile(filepath.Join(out, name), text, 0o644); err != nil {
			return err
		}
	}
	fmt.Printf("tables written to %s, with %d charts read: review the changes with git diff\n", out, len(list))
	return nil
}

// operandsOf reads the operands of a release from the operator's source.
func operandsOf(clone string, v chart.Version) ([]chart.Operand, error) {
	s, err := readTag(clone, v.String())
	if err != nil {
		return nil, err
	}
	list, err := s.operands()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", v, err)
	}
	return list, nil
}
