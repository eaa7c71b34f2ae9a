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

// support is a line of NVIDIA's support matrix. It lists versions of an operating system for a release series, and the
// versions of Kubernetes and the container runtimes that they support.
type support struct {
	series, id  string
	versions    []string // "*" means any
	first, last int      // minor versions of Kubernetes 1; 0 means not documented
	runtimes    []string // nil means not documented
}

// matrix returns the embedded support matrix. It ignores errors, because a test checks every line.
var matrix = sync.OnceValue(func() []support {
	var rows []support
	for line := range strings.Lines(matrixText) {
		if line[0] == '#' {
			continue
		}
		c := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		r := support{series: c[0], id: c[1], versions: strings.Fields(c[2])}
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

// minor returns the minor version of Kubernetes or containerd 1.x, such as 36 for "v1.36.3+rke2r1".
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

// series returns the matrix rows for the release's minor version (such as v26.3), or none if the matrix does not list
// it.
func series(v chart.Version) []support {
	return slices.DeleteFunc(slices.Clone(matrix()), func(r support) bool { return r.series != v.Minor() })
}

// find looks up an operating system. named and versionNamed report whether the matrix lists the system and its version.
// If only the version is missing, r is a row for other versions of the system.
func find(rows []support, os system) (r support, named, versionNamed bool) {
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

// named lists the systems of the matrix as text: "ubuntu 22.04, 24.04".
func named(rows []support) string {
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
