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

	helm "helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// ErrRelease is returned for Secrets whose Helm release cannot be read.
var ErrRelease = errors.New("unreadable Helm release")

// maxRelease limits the decompressed size of a release in bytes. A Secret holds at most 1 MiB compressed, and known
// releases decompress to less than 3 MB.
const maxRelease = 64 << 20

// Release is a revision of a Helm release of the gpu-operator chart. Its chart and info are never nil.
type Release struct {
	helm.Release
	// policies are the ClusterPolicies in the manifest.
	policies []unstructured.Unstructured
	// Writer is the field manager that last wrote the Secret: helm, or a controller.
	Writer Owner
}

// Decode reads a revision from Helm's Secret: base64 of gzipped JSON. It returns nil for releases of other charts.
// Errors wrap ErrRelease.
func Decode(s *corev1.Secret) (*Release, error) {
	r, err := decode(s.Data["release"])
	if err != nil {
		return nil, fmt.Errorf("%w %s/%s: %w", ErrRelease, s.Namespace, s.Name, err)
	}
	// a copy of the chart in another registry may have a suffix
	if name := r.Chart.Metadata.Name; name != "gpu-operator" && !strings.HasPrefix(name, "gpu-operator-") {
		return nil, nil
	}
	for _, e := range s.ManagedFields {
		if o := ownerIn(e); r.Writer.Manager == "" || o.Time.After(r.Writer.Time) {
			r.Writer = o
		}
	}
	return r, nil
}

func decode(encoded []byte) (*Release, error) {
	unzipped, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(encoded)))
	if err != nil {
		return nil, err
	}
	r := &Release{}
	if err := json.NewDecoder(io.LimitReader(unzipped, maxRelease)).Decode(&r.Release); err != nil {
		return nil, err
	}
	if r.Chart == nil || r.Chart.Metadata == nil || r.Info == nil {
		return nil, errors.New("the release has no chart or no status")
	}
	for manifest := yaml.NewYAMLOrJSONDecoder(strings.NewReader(r.Manifest), 4096); ; {
		var u unstructured.Unstructured
		err := manifest.Decode(&u.Object)
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return nil, fmt.Errorf("manifest: %w", err)
		}
		if u.GetKind() == "ClusterPolicy" {
			r.policies = append(r.policies, u)
		}
	}
}

// id names the revision: "gpu-operator revision 3".
func (r *Release) id() string { return fmt.Sprintf("%s revision %d", r.Name, r.Version) }

func (r *Release) revision() string { return strconv.Itoa(r.Version) }

// chartVersion returns the chart's version as written in Chart.yaml.
func (r *Release) chartVersion() string { return r.Chart.Metadata.Version }

// seen returns a fact about the revision as evidence.
func (r *Release) seen(format string, args ...any) check.Evidence {
	object := "Secret/sh.helm.release.v1." + r.Name + ".v" + r.revision()
	return check.Seen("release", object, format, args...).At(r.Info.LastDeployed.Time)
}

// seenStatus returns the revision's status as evidence.
func (r *Release) seenStatus() check.Evidence {
	return r.seen("status %s, chart %s", r.Info.Status, r.chartVersion())
}

// value returns the effective value at a path: the user's or, if not set, the default of the chart or subchart.
func (r *Release) value(table *chart.Table, path chart.Path) (any, bool) {
	if v, found, err := unstructured.NestedFieldNoCopy(r.Config, path...); found && err == nil {
		return v, v != nil
	}
	return r.fallback(table, path)
}

// fallback returns the default at a path. A release does not contain the defaults of subcharts, so fallback looks for
// missing defaults in the table.
func (r *Release) fallback(table *chart.Table, path chart.Path) (any, bool) {
	if v, _, err := unstructured.NestedFieldNoCopy(r.Chart.Values, path...); v != nil && err == nil {
		return v, true
	}
	if v, _, err := table.Resolve(r.chartVersion()); err == nil {
		return table.Default(v, path.String())
	}
	return nil, false
}

// history lists the revisions of a release, oldest first.
type history []*Release

// histories decodes the releases of the chart in the Secrets, except uninstalled ones. broken has an error for each
// unreadable Secret.
func histories(secrets []corev1.Secret) (out []history, broken []error) {
	var all []*Release
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
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), a.Version-b.Version)
	})
	for _, r := range all {
		if n := len(out) - 1; n >= 0 && out[n][0].Name == r.Name && out[n][0].Namespace == r.Namespace {
			out[n] = append(out[n], r)
		} else {
			out = append(out, history{r})
		}
	}
	out = slices.DeleteFunc(out, func(h history) bool { return h.last().Info.Status == helm.StatusUninstalled })
	return out, broken
}

func (h history) last() *Release { return h[len(h)-1] }

// base returns the revision to compare with: the newest deployed revision, or the last revision if none is deployed.
func (h history) base() *Release {
	for _, r := range slices.Backward(h) {
		if r.Info.Status == helm.StatusDeployed {
			return r
		}
	}
	return h.last()
}
