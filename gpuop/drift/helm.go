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
	"maps"
	"slices"
	"strings"

	helm "helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// maxRelease limits the decompressed size of a release in bytes. A Secret holds at most 1 MiB compressed, and known
// releases decompress to less than 3 MB.
const maxRelease = 64 << 20

// release is a revision of a Helm release of the gpu-operator chart. Its chart and info are never nil.
type release struct {
	helm.Release
	policies []unstructured.Unstructured // the ClusterPolicies in the manifest
	writer   metav1.ManagedFieldsEntry   // the field manager that last wrote the Secret: helm, or a controller
}

// decode reads a revision from Helm's Secret: base64 of gzipped JSON. It returns nil for releases of other charts.
func decode(s *corev1.Secret) (*release, error) {
	unzipped, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(s.Data["release"])))
	if err != nil {
		return nil, err
	}
	r := &release{}
	if err := json.NewDecoder(io.LimitReader(unzipped, maxRelease)).Decode(&r.Release); err != nil {
		return nil, err
	}
	if r.Chart == nil || r.Chart.Metadata == nil || r.Info == nil {
		return nil, errors.New("the release has no chart or no status")
	}
	// a copy of the chart in another registry may have a suffix
	if name := r.Chart.Metadata.Name; name != "gpu-operator" && !strings.HasPrefix(name, "gpu-operator-") {
		return nil, nil
	}
	for _, e := range s.ManagedFields {
		if isLater(e, r.writer) {
			r.writer = e
		}
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
func (r *release) id() string { return fmt.Sprintf("%s revision %d", r.Name, r.Version) }

// chartVersion returns the chart's version as written in Chart.yaml.
func (r *release) chartVersion() string { return r.Chart.Metadata.Version }

// seen returns a fact about the revision as evidence.
func (r *release) seen(format string, args ...any) check.Evidence {
	object := fmt.Sprintf("Secret/sh.helm.release.v1.%s.v%d", r.Name, r.Version)
	return check.Seen("release", object, format, args...).At(r.Info.LastDeployed.Time)
}

// history has the last revision of a release, and the revision to compare with: the newest deployed one, or the last
// revision if none is deployed.
type history struct{ last, base *release }

// histories decodes the releases of the chart in the Secrets, except uninstalled ones. broken has an error for each
// unreadable Secret.
func histories(secrets []corev1.Secret) (out []history, broken []error) {
	all := map[string]history{}
	for i := range secrets {
		if !strings.HasPrefix(secrets[i].Name, "sh.helm.release.v1.") {
			continue
		}
		r, err := decode(&secrets[i])
		if err != nil {
			broken = append(broken, fmt.Errorf("unreadable Helm release %s/%s: %w",
				secrets[i].Namespace, secrets[i].Name, err))
		}
		if r == nil {
			continue
		}
		h := all[r.Namespace+"/"+r.Name]
		if h.last == nil || h.last.Version < r.Version {
			h.last = r
		}
		if r.Info.Status == helm.StatusDeployed && (h.base == nil || h.base.Version < r.Version) {
			h.base = r
		}
		all[r.Namespace+"/"+r.Name] = h
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if h := all[name]; h.last.Info.Status != helm.StatusUninstalled {
			out = append(out, history{h.last, cmp.Or(h.base, h.last)})
		}
	}
	return out, broken
}
