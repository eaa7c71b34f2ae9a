package command

import (
	"fmt"
	"strings"
)

// A Subcommand is one of the program's, as help lists it.
type Subcommand struct {
	Name    string
	Summary string // what it does, in a line
}

// List returns the subcommands, by name.
func List() []Subcommand {
	return []Subcommand{
		{"check", "what a counters file would collect, line by line"},
		{"doctor", "what works on this machine, and what to do about the rest"},
		{"fields", "search the catalog of fields"},
		{"help", "this list, or the help of a subcommand"},
		{"once", "the page of one collection, on standard output"},
		{"probe", "whether a running exporter is healthy, for images without a shell"},
		{"topo", "how the GPUs are connected, as a matrix"},
		{"version", "the version of this program"},
	}
}

// Overview returns the text of "dcgm-exporter help".
func Overview() string {
	return Usage() + "\n\"dcgm-exporter --help\" lists the flags too.\n"
}

// Usage returns what the program is called with: the subcommands with a line each, and examples.
func Usage() string {
	var b strings.Builder
	b.WriteString(`Usage: dcgm-exporter [flags]                       serve metrics of NVIDIA GPUs for Prometheus
       dcgm-exporter SUBCOMMAND [flags] [arguments]

Subcommands ("dcgm-exporter help SUBCOMMAND" says more):
`)
	for _, s := range List() {
		fmt.Fprintf(&b, "  %-16s%s\n", s.Name, s.Summary)
	}
	b.WriteString(`
Examples:
  dcgm-exporter                                    GPUs of this machine, on http://localhost:9400
  dcgm-exporter --source=sim                       a simulated node, without a GPU
  dcgm-exporter -f my-counters.csv -c 10000        own counters, every 10 seconds
  dcgm-exporter check my-counters.csv              before they are used
  dcgm-exporter doctor                             when something is missing
`)
	return b.String()
}
