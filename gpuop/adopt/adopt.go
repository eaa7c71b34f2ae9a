package adopt

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
)

// DefaultImage is the exporter's image without a tag.
const DefaultImage = "ghcr.io/gpu-telemetry/dcgm-exporter"

// ErrImage is returned for a reference that cannot be split into repository, name and tag.
var ErrImage = errors.New("unusable image")

var reference = regexp.MustCompile(`^([a-z0-9.-]+(?::[0-9]+)?(?:/[a-z0-9._-]+)*)/([a-zA-Z0-9-]+)(?::([A-Za-z0-9_][A-Za-z0-9._-]{0,127})|@(sha256:[0-9a-f]{64}))$`)

// split parts an image reference as the operator wants it: the repository, the name and the tag or
// digest.
func split(image string) (repository, name, version string, err error) {
	m := reference.FindStringSubmatch(image)
	if m == nil {
		hint := ""
		if !strings.Contains(image[strings.LastIndex(image, "/")+1:], ":") && !strings.Contains(image, "@") {
			hint = ": it has no tag, and the operator wants one"
		}
		return "", "", "", fmt.Errorf("%w %q, want registry/path/name:tag%s", ErrImage, image, hint)
	}
	return m[1], m[2], m[3] + m[4], nil
}

// Settings returns the values that make the operator run the image as its exporter. The error wraps
// ErrImage.
func Settings(image string) ([]chart.Setting, error) {
	repository, name, version, err := split(image)
	if err != nil {
		return nil, err
	}
	return []chart.Setting{
		chart.Set("dcgmExporter.enabled", true, ""),
		chart.Set("dcgmExporter.repository", repository, "This project's exporter: the operator runs it as its own, with the same port, probes and variables."),
		chart.Set("dcgmExporter.image", name, ""),
		chart.Set("dcgmExporter.version", version, ""),
	}, nil
}

// A Request says how the operator is to run the exporter.
type Request struct {
	Image string
	// Counters names a ConfigMap with the key dcgm-metrics.csv; empty for the counters in the
	// image.
	Counters string
	// ServiceMonitor is "on", "off" or "" for the chart's default.
	ServiceMonitor string
	Version        chart.Version
	// Table is what is known of the chart; nil for gpuop's own.
	Table *chart.Table
}

// ErrOption is returned for an option with a word that it does not know.
var ErrOption = errors.New("unknown option value")

// Settings returns the values for the request. The error wraps ErrImage or ErrOption.
func (r Request) Settings() ([]chart.Setting, error) {
	settings, err := Settings(r.Image)
	if err != nil {
		return nil, err
	}
	table := cmp.Or(r.Table, chart.Load())
	if k, known := table.Key(chart.Path{"dcgmExporter", "enabled"}); known && !k.In(r.Version) {
		settings = settings[1:] // the exporter always runs there
		settings[0].Origin = cmp.Or(settings[0].Origin, "This project's exporter.")
	}
	if r.Counters != "" {
		settings = append(settings, chart.Set("dcgmExporter.config.name", r.Counters, "Counters of your own: the key dcgm-metrics.csv of this ConfigMap, in the operator's namespace."))
	}
	switch r.ServiceMonitor {
	case "":
	case "on", "off":
		settings = append(settings, chart.Set("dcgmExporter.serviceMonitor.enabled", r.ServiceMonitor == "on", "Needs the Prometheus Operator."))
	default:
		return nil, fmt.Errorf("%w: --service-monitor %q, want on or off", ErrOption, r.ServiceMonitor)
	}
	return settings, nil
}

// Notes returns what to know about the installation besides the values.
func (r Request) Notes(beside bool) []finding.Finding {
	note := func(subject, reason, fix string) finding.Finding {
		return finding.Finding{ID: "adopt", Severity: finding.Info, Subject: subject, Reason: reason, Fix: fix, Source: "GPU Operator documentation"}
	}
	if beside {
		return []finding.Finding{note("port 9400", "both exporters serve the same series: a Prometheus that scrapes both counts everything twice",
			"scrape one of the two, or distinguish them by the label job")}
	}
	if r.Counters != "" {
		return []finding.Finding{note(r.Counters, "the operator does not watch the ConfigMap", "kubectl rollout restart -n gpu-operator daemonset/nvidia-dcgm-exporter after a change")}
	}
	return nil
}

// Beside returns the values of the operator and the patch of this project's DaemonSet for an
// exporter that runs beside the operator's own.
func Beside(image string) (settings []chart.Setting, patch string, err error) {
	repository, name, version, err := split(image)
	if err != nil {
		return nil, "", err
	}
	separator := ":"
	if strings.HasPrefix(version, "sha256:") {
		separator = "@"
	}
	settings = []chart.Setting{
		chart.Set("dcgm.enabled", true, "One host engine on each node, as the Service nvidia-dcgm: two engines cannot both hold the profiling counters."),
	}
	patch = fmt.Sprintf(`# A patch for deployment/kubernetes/daemonset.yaml (kubectl kustomize, or kubectl patch --patch-file).
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: dcgm-exporter
spec:
  template:
    spec:
      # A client of GPUs: without it a MIG change or a driver upgrade waits for these pods forever.
      nodeSelector:
        nvidia.com/gpu.deploy.client: "true"
      # GPUs come through CDI since v25.10.0; NVIDIA_VISIBLE_DEVICES works in this class alone.
      runtimeClassName: nvidia
      tolerations:
        - key: nvidia.com/gpu
          operator: Exists
          effect: NoSchedule
      containers:
        - name: exporter
          image: %s/%s%s%s
          env:
            # The operator's host engine, shared with its exporter.
            - name: DCGM_REMOTE_HOSTENGINE_INFO
              value: nvidia-dcgm.gpu-operator.svc:5555
`, repository, name, separator, version)
	return settings, patch, nil
}
