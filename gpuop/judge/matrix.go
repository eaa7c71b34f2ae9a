package judge

import (
	_ "embed"
	"fmt"
	"slices"
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
	runtimes    []string // empty means not documented
}

// matrix returns the embedded support matrix. It ignores errors, because a test checks every line.
var matrix = sync.OnceValue(func() (rows []support) {
	for line := range strings.Lines(matrixText) {
		if c := strings.Split(line, "\t"); line[0] != '#' {
			r := support{series: c[0], id: c[1], versions: strings.Fields(c[2])}
			_, _ = fmt.Sscanf(c[3], "1.%d-1.%d", &r.first, &r.last)
			r.runtimes = strings.Fields(strings.Trim(c[4], "-\n"))
			rows = append(rows, r)
		}
	}
	return rows
})

// minor returns the minor version of Kubernetes or containerd 1.x, such as 36 for "v1.36.3+rke2r1".
func minor(version string) (n int, ok bool) {
	_, err := fmt.Sscanf(strings.TrimPrefix(version, "v"), "1.%d", &n)
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
		if each.id == os.id {
			r, named = each, true
			if slices.Contains(each.versions, os.version) || each.versions[0] == "*" {
				return each, true, true
			}
		}
	}
	return r, named, false
}

// named lists the systems of the matrix as text: "ubuntu 22.04, 24.04".
func named(rows []support) string {
	var words []string
	for _, r := range rows {
		words = append(words, strings.TrimSuffix(r.id+" "+strings.Join(r.versions, ", "), " *"))
	}
	return strings.Join(words, "; ")
}
