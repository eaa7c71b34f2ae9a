package judge

import (
	_ "embed"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

//go:embed matrix.txt
var matrixText string

// A row has the documentation's facts of one operating system.
type row struct {
	series, id  string
	versions    []string // "*" is any
	first, last int      // minors of Kubernetes 1; 0 where the page names none
	runtimes    []string // nil where the page names none
}

// matrix returns the table, which is part of the program: a test reads every row.
var matrix = sync.OnceValue(func() []row {
	var rows []row
	for line := range strings.Lines(matrixText) {
		if line[0] == '#' {
			continue
		}
		c := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		r := row{series: c[0], id: c[1], versions: strings.Fields(c[2])}
		first, last, _ := strings.Cut(c[3], "-")
		r.first, _ = minor(first)
		r.last, _ = minor(last)
		if c[4] != "-" {
			r.runtimes = strings.Fields(c[4])
		}
		rows = append(rows, r)
	}
	return rows
})

// minor reads the minor version of Kubernetes 1: "1.36", "v1.36.3+rke2r1".
func minor(version string) (int, bool) {
	rest, found := strings.CutPrefix(strings.TrimPrefix(version, "v"), "1.")
	if !found {
		return 0, false
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		rest = rest[:end]
	}
	n, err := strconv.Atoi(rest)
	return n, err == nil
}

// series returns the rows of a release; none where the table does not know it.
func series(v chart.Version) []row {
	return slices.DeleteFunc(slices.Clone(matrix()), func(r row) bool { return r.series != v.Minor() })
}

// find returns the row of an operating system, and whether the page names its version.
func find(rows []row, os system) (r row, named, versionNamed bool) {
	for _, each := range rows {
		if each.id != os.id {
			continue
		}
		if slices.Contains(each.versions, os.version) || slices.Contains(each.versions, "*") {
			return each, true, true
		}
		r, named = each, true
	}
	return r, named, false
}

// named lists what the page names, as text: "ubuntu 22.04, 24.04".
func named(rows []row) string {
	var words []string
	for _, r := range rows {
		versions := " " + strings.Join(r.versions, ", ")
		if r.versions[0] == "*" {
			versions = ""
		}
		words = append(words, r.id+versions)
	}
	return strings.Join(words, "; ")
}
