package chart

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	helm "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	yamls "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

var (
	root     = filepath.Join("..", "..")
	chartDir = filepath.Join(root, "deployment", "chart")
)

const namespace = "gpu-monitoring"

func load(t testing.TB) *helm.Chart {
	t.Helper()
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A rendering holds the objects and the notes that Helm renders.
type rendering struct {
	docs  []string
	notes string
}

// render renders a chart like "helm template dcgm-exporter", with values in YAML.
func render(c *helm.Chart, values string) (*rendering, error) {
	v, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, err
	}
	v, err = chartutil.ToRenderValues(c, v,
		chartutil.ReleaseOptions{Name: "dcgm-exporter", Namespace: namespace, Revision: 1, IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, v)
	if err != nil {
		return nil, err
	}
	r := &rendering{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, "NOTES.txt") {
			r.notes = files[name]
			continue
		}
		reader := yamls.NewYAMLReader(bufio.NewReader(strings.NewReader(files[name])))
		for {
			doc, err := reader.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, err
			}
			var content map[string]any
			if err := yaml.Unmarshal(doc, &content); err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", name, err, doc)
			}
			if len(content) > 0 {
				r.docs = append(r.docs, string(doc))
			}
		}
	}
	return r, nil
}

func mustRender(t testing.TB, c *helm.Chart, values string) *rendering {
	t.Helper()
	r, err := render(c, values)
	if err != nil {
		t.Fatalf("%v\nvalues:\n%s", err, values)
	}
	return r
}

// kinds returns the kinds of Kubernetes and of the Prometheus Operator.
var kinds = sync.OnceValues(func() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	return s, errors.Join(scheme.AddToScheme(s), monitoring.AddToScheme(s))
})

// strictly decodes a document like an API server with field validation. Unknown and duplicate fields are errors.
func strictly(doc string) (runtime.Object, error) {
	var kind meta.TypeMeta
	if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
		return nil, err
	}
	known, err := kinds()
	if err != nil {
		return nil, err
	}
	o, err := known.New(kind.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	return o, yaml.UnmarshalStrict([]byte(doc), o)
}

func (r *rendering) objects(t testing.TB) []runtime.Object {
	t.Helper()
	var out []runtime.Object
	for _, doc := range r.docs {
		o, err := strictly(doc)
		if err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		out = append(out, o)
	}
	return out
}

// only returns the rendering's object of type T. The test fails if there is none, or more than one.
func only[T runtime.Object](t testing.TB, r *rendering) T {
	t.Helper()
	all := every[T](t, r)
	if len(all) != 1 {
		var zero T
		t.Fatalf("%d objects %T, want 1", len(all), zero)
	}
	return all[0]
}

func every[T runtime.Object](t testing.TB, r *rendering) []T {
	t.Helper()
	var out []T
	for _, o := range r.objects(t) {
		if v, ok := o.(T); ok {
			out = append(out, v)
		}
	}
	return out
}

// TestChartWithoutLinkedFiles renders a copy of the chart whose symbolic links are missing or are text files. The error
// must say what to run. Git makes such copies on Windows (core.symlinks=false), and so do tools that archive only
// regular files.
func TestChartWithoutLinkedFiles(t *testing.T) {
	for name, change := range map[string]func(*helm.File) bool{
		"links are missing": func(f *helm.File) bool { return f.Name != "files/defaults.yaml" },
		"links are text files": func(f *helm.File) bool {
			f.Data = []byte("../../../etc/default-counters.csv")
			return !strings.HasSuffix(f.Name, "-counters.csv")
		},
	} {
		c := load(t)
		c.Files = slices.DeleteFunc(c.Files,
			func(f *helm.File) bool { return f.Name != "files/defaults.yaml" && change(f) })
		_, err := render(c, "{}")
		if err == nil || !strings.Contains(err.Error(), `run "helm package deployment/chart" in a Git checkout`) {
			t.Errorf("%s: error %v, want one with the command to run", name, err)
		}
	}
}
