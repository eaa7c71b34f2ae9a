package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// attribution returns the families that describe the use of devices by owners. Health series are not among them.
func attribution() []gpu.Family {
	return slices.DeleteFunc(append(accounting.Families(), events.XIDOwners()), func(f gpu.Family) bool { return strings.HasPrefix(f.Name, "dcgm_exporter_") })
}

// attributionLabels returns the labels of a family that attribution returns.
func attributionLabels(name string) []string {
	if name == events.XIDOwners().Name {
		return []string{"GPU_I_ID", "xid", "…"}
	}
	list := []string{"gpu", "UUID", "GPU_I_ID"}
	if strings.HasPrefix(name, "dcgm_pod_") {
		list = append(list, "namespace", "pod", "container", "hpc_job")
	}
	if name == "dcgm_pod_gpu_info" {
		list = append(list, "pod_uid", "resource", "sharing", "replicas")
	}
	return list
}

// row is the type and label names of a documented family.
type row struct {
	kind   string
	labels []string
}

var codeSpan = regexp.MustCompile("`([^`]+)`")

// documented returns the table rows of docs/operations.md, by series name.
func (w *writer) documented() map[string]row {
	text, err := os.ReadFile(filepath.Join("docs", "operations.md"))
	if err != nil {
		w.fail("%w", err)
		return nil
	}
	tableRow := regexp.MustCompile("(?m)^\\| `((?:dcgm_exporter|promhttp)_[a-z0-9_]+)` \\| ([a-z]+) \\| ([^|]*) \\|")
	rows := map[string]row{}
	for _, m := range tableRow.FindAllStringSubmatch(string(text), -1) {
		r := row{kind: m[2]}
		for _, l := range codeSpan.FindAllStringSubmatch(m[3], -1) {
			r.labels = append(r.labels, l[1])
		}
		slices.Sort(r.labels)
		if _, ok := rows[m[1]]; ok {
			w.fail("docs/operations.md has two rows for %s", m[1])
		}
		rows[m[1]] = r
	}
	return rows
}

// walkCode visits every node of the exporter's code, except tests.
func (w *writer) walkCode(visit func(ast.Node)) {
	err := filepath.WalkDir("internal", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			visit(n)
			return true
		})
		return nil
	})
	if err != nil {
		w.fail("%w", err)
	}
}

func stringOf(n ast.Node) (string, bool) {
	lit, ok := n.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}
