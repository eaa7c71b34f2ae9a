package drift

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	helm "helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// ErrRelease is wrapped where a Secret holds no release of Helm that can be read.
var ErrRelease = errors.New("unreadable Helm release")

// Bounds of a release: a Secret holds at most 1 MiB, and the charts of all releases are below 3 MB.
const maxRelease = 64 << 20

// A Release is one revision of a Helm release of the gpu-operator chart.
type Release struct {
	Name, Namespace string
	Revision        int
	Status          helm.Status
	// Description is Helm's own sentence about the last operation.
	Description string
	// Deployed is when the operation began; zero where it is not known.
	Deployed time.Time
	// Chart and App are the versions of the chart and of the operator in it.
	Chart, App string
	// Config has the user's values, Defaults the chart's own values.yaml; those of subcharts are
	// not stored.
	Config, Defaults map[string]any
	// Objects are the manifest's.
	Objects []map[string]any
	// Writer is the field manager of the Secret: helm, or a controller that drives it.
	Writer Owner
}

// Decode reads a revision from the Secret that Helm keeps for it: base64 of gzip of JSON. It is nil
// for a release of another chart. The error wraps ErrRelease.
func Decode(s *corev1.Secret) (*Release, error) {
	text := s.Data["release"]
	fail := func(what string, err error) error {
		return fmt.Errorf("%w %s/%s: %s: %w", ErrRelease, s.Namespace, s.Name, what, err)
	}
	if len(text) == 0 {
		return nil, fail("no key release", errors.New("the object is empty"))
	}
	data, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil {
		return nil, fail("no base64", err)
	}
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b, 0x08}) {
		unzipped, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, fail("no gzip", err)
		}
		if data, err = io.ReadAll(io.LimitReader(unzipped, maxRelease+1)); err != nil {
			return nil, fail("broken gzip", err)
		}
		if len(data) > maxRelease {
			return nil, fail("too large", fmt.Errorf("more than %d MiB", maxRelease>>20))
		}
	}
	var h helm.Release
	if err := json.Unmarshal(data, &h); err != nil {
		return nil, fail("no release in JSON", err)
	}
	r := &Release{Name: h.Name, Namespace: h.Namespace, Revision: h.Version, Config: h.Config}
	if h.Chart == nil || h.Chart.Metadata == nil || h.Info == nil {
		return nil, fail("no chart or no status", errors.New("the release is not complete"))
	}
	r.Chart, r.App, r.Defaults = h.Chart.Metadata.Version, h.Chart.Metadata.AppVersion, h.Chart.Values
	r.Status, r.Description, r.Deployed = h.Info.Status, h.Info.Description, h.Info.LastDeployed.Time
	if !operatorChart(h.Chart.Metadata.Name) {
		return nil, nil
	}
	if r.Objects, err = objects(h.Manifest); err != nil {
		return nil, fail("manifest", err)
	}
	for _, e := range s.ManagedFields {
		if o := ownerIn(e); r.Writer.Manager == "" || o.Time.After(r.Writer.Time) {
			r.Writer = o
		}
	}
	return r, nil
}

// operatorChart reports whether a chart is NVIDIA's: a copy of it in another registry may have a
// suffix.
func operatorChart(name string) bool {
	return name == "gpu-operator" || strings.HasPrefix(name, "gpu-operator-")
}

// objects splits a manifest.
func objects(manifest string) ([]map[string]any, error) {
	var out []map[string]any
	for part := range strings.SplitSeq("\n"+manifest, "\n---") {
		var o map[string]any
		// the newline that ends a block of text went with the separator
		if err := yaml.Unmarshal([]byte(part+"\n"), &o); err != nil {
			return nil, err
		}
		if len(o) > 0 {
			out = append(out, o)
		}
	}
	return out, nil
}

// id names the revision: "gpu-operator revision 3".
func (r *Release) id() string { return fmt.Sprintf("%s revision %d", r.Name, r.Revision) }

// seen returns the revision as evidence.
func (r *Release) seen() report.Evidence {
	return report.Seen("release", "Secret/sh.helm.release.v1."+r.Name+".v"+revision(r), "status %s, chart %s", r.Status, r.Chart).At(r.Deployed)
}

// version is the chart's release as the chart's table knows it; false where it knows none.
func (r *Release) version(table *chart.Table) (chart.Version, bool) {
	v, _, err := table.Resolve(r.Chart)
	return v, err == nil && r.Chart != ""
}

// value returns the effective value at a path: the user's, else the chart's default, else a subchart's.
func (r *Release) value(table *chart.Table, path chart.Path) (any, bool) {
	if v, found := get(r.Config, path...); found {
		return v, v != nil
	}
	return r.fallback(table, path)
}

// fallback is the default at a path.
func (r *Release) fallback(table *chart.Table, path chart.Path) (any, bool) {
	if v, found := get(r.Defaults, path...); found && v != nil {
		return v, true
	}
	if v, known := r.version(table); known {
		return table.Default(v, path.String())
	}
	return nil, false
}

// stored are the revisions of all releases of the chart in the state, and what could not be read.
func stored(secrets []corev1.Secret) (all []*Release, broken []error) {
	for i := range secrets {
		if !strings.HasPrefix(secrets[i].Name, "sh.helm.release.v1.") {
			continue
		}
		switch r, err := Decode(&secrets[i]); {
		case err != nil:
			broken = append(broken, err)
		case r != nil:
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *Release) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Revision, b.Revision))
	})
	return all, broken
}

// A history is the revisions of one release, the oldest first.
type history []*Release

func histories(all []*Release) []history {
	var out []history
	for _, r := range all {
		if n := len(out); n > 0 && out[n-1][0].Name == r.Name && out[n-1][0].Namespace == r.Namespace {
			out[n-1] = append(out[n-1], r)
			continue
		}
		out = append(out, history{r})
	}
	return out
}

func (h history) last() *Release { return h[len(h)-1] }

// deployed is the newest revision that Helm says is deployed; nil where none is.
func (h history) deployed() *Release {
	for _, r := range slices.Backward(h) {
		if r.Status == helm.StatusDeployed {
			return r
		}
	}
	return nil
}

// base is the revision that the cluster is compared with: the deployed one, or the last.
func (h history) base() *Release {
	if r := h.deployed(); r != nil {
		return r
	}
	return h.last()
}

// revision is a number for a command.
func revision(r *Release) string { return strconv.Itoa(r.Revision) }
