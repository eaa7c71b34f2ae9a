package rules

import (
	"context"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

// expand returns the text that Prometheus writes for an annotation of an alert with labels and a value.
func expand(t *testing.T, text string, s *prom.Storage, with map[string]string, value float64) string {
	t.Helper()
	now := time.Unix(3600, 0)
	query := func(_ context.Context, query string, _ time.Time) (promql.Vector, error) {
		return s.Vector(t, query, now), nil
	}
	data := template.AlertTemplateData(with, nil, "", promql.Sample{F: value})
	text = "{{ $labels := .Labels }}{{ $value := .Value }}" + text
	out, err := template.NewTemplateExpander(t.Context(), text, "alert", data, model.Time(now.UnixMilli()), query,
		&url.URL{}, nil).Expand()
	if err != nil {
		t.Errorf("%v in\n%s", err, text)
	}
	return out
}

var (
	// someLabels has a value for each label that an annotation prints, except labels with a host name.
	someLabels = map[string]string{
		"node": "node-a", "gpu": "3", "UUID": "GPU-3", "GPU_I_ID": "7", "namespace": "research", "pod": "train-0",
		"hpc_job": "4711",
		"reason":  "lost", "attributor": "kubelet", "xid": "79", "nvlink": "5", "nvswitch": "2", "connectx": "2",
		"cluster_uuid": "c2",
		"clique_id":    "8", "condition": "no_cluster", "health_watch": "PCIE",
		"health_error_code": "DCGM_FR_PCI_REPLAY_RATE",
	}
	printedLabel = regexp.MustCompile(`\$labels\.([A-Za-z_]+)`)
)

// Annotations can be expanded for several values, without missing labels. The summary names the node, or the host
// if there is no node label.
func TestTextsOfAlerts(t *testing.T) {
	s := prom.NewStorage()
	for _, a := range alerts(t) {
		for name, text := range a.Annotations {
			if name == "runbook_url" {
				continue
			}
			for _, m := range printedLabel.FindAllStringSubmatch(text, -1) {
				if _, ok := someLabels[m[1]]; !ok &&
					!slices.Contains([]string{"hostname", "Hostname", "instance"}, m[1]) {
					t.Errorf("%s: the %s prints the label %s, which is not in someLabels", a.Alert, name, m[1])
				}
			}
			for _, value := range []float64{0, 0.5, 1, 88} {
				got := expand(t, text, s, someLabels, value)
				if strings.Contains(got, "<no value>") || name == "summary" && !strings.Contains(got, "node-a") {
					t.Errorf("%s with the value %v: %s = %q, want all values in it, and node-a in a summary", a.Alert,
						value, name, got)
				}
			}
		}
		if again := expand(t, a.Annotations["summary"], s, map[string]string{"hostname": "gpu-2"},
			1); !strings.Contains(again, "gpu-2") {
			t.Errorf("%s: summary without a node label = %q, want the host name gpu-2 in it", a.Alert, again)
		}
	}
}

// The summary describes each recovery action in words. A code that the rules do not know is printed as a number.
func TestTextsOfRecoveryActions(t *testing.T) {
	summary := named(t, "GPURecoveryActionRequired").Annotations["summary"]
	for value, want := range map[float64]string{
		1: "GPU 3 of node-a needs a GPU reset", 2: "GPU 3 of node-a needs a restart of the node",
		3: "GPU 3 of node-a needs its peer-to-peer work to stop", 4: "GPU 3 of node-a needs a drain and a GPU reset",
		5: "GPU 3 of node-a needs recovery action 5, which is newer than these rules",
	} {
		if got := expand(t, summary, prom.NewStorage(), someLabels, value); got != want {
			t.Errorf("action %v: %q, want %q", value, got, want)
		}
	}
}

// A counter of seconds can grow by slightly more than a second per second. Here it grows by 1.02 seconds. Alerts that
// print its rate must print 100%, not 102%.
func TestPercentagesStayBelow100(t *testing.T) {
	s, at := prom.NewStorage(), time.Unix(0, 0)
	for i := range 61 {
		for _, event := range []string{"hw_thermal", "hw_slowdown", "hw_power_brake"} {
			metric := func() labels.Labels {
				return labels.FromStrings("__name__", "DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL", "clock_event", event, "gpu",
					event, "hostname", "gpu-1")
			}
			s.Append(event, metric, at.Add(time.Duration(i)*time.Minute), float64(i)*60*1.02)
		}
	}
	checked := 0
	for _, a := range alerts(t) {
		if !strings.Contains(a.Annotations["summary"], "humanizePercentage") || !strings.Contains(a.Expr, "rate(") {
			continue
		}
		for _, sample := range s.Vector(t, a.Expr, at.Add(time.Hour)) {
			checked++
			if got := expand(t, a.Annotations["summary"], s, sample.Metric.Map(), sample.F); !strings.HasSuffix(got,
				" 100% of the time") {
				t.Errorf("%s: summary = %q, want it to end with 100%% of the time", a.Alert, got)
			}
		}
	}
	if checked != 3 {
		t.Errorf("summaries with the percentage of a rate checked = %d, want 3", checked)
	}
}

// GPULost names the pods that had the GPU within the last minutes, with and without honorLabels. It does not name the
// exporter's own pod.
func TestGPULostNamesPods(t *testing.T) {
	own := []string{"job", "gpu", "instance", "10.0.0.1:9400", "namespace", "monitoring", "pod", "dcgm-exporter-x",
		"container", "exporter"}
	honored := []string{"job", "gpu", "instance", "10.0.0.1:9400"}
	description := named(t, "GPULost").Annotations["description"]
	for _, tt := range []struct {
		name   string
		owners [][]string
		want   string
	}{
		{"honored", [][]string{
			append(honored[:4:4], "namespace", "research", "pod", "train-0", "container", "main"),
			append(honored[:4:4], "namespace", "research", "pod", "train-0", "container", "sidecar"),
			append(honored[:4:4], "namespace", "serving", "pod", "embed-0", "container", "triton"),
		}, " Held by pod research/train-0, pod serving/embed-0."},
		{"not honored", [][]string{
			append(own[:10:10], "exported_namespace", "research", "exported_pod", "train-0", "exported_container",
				"main"),
		}, " Held by pod research/train-0."},
		{"a job", [][]string{append(own[:10:10], "hpc_job", "4711")}, ""},
		{"idle", nil, ""},
	} {
		s := prom.NewStorage()
		add := func(name string, ls []string, minutes ...int) {
			for _, m := range minutes {
				metric := labels.FromStrings(append([]string{"__name__", name}, ls...)...)
				s.Append(metric.String(), func() labels.Labels { return metric },
					time.Unix(0, 0).Add(time.Duration(m)*time.Minute), 1)
			}
		}
		add("dcgm_exporter_build_info", own, 45, 55, 60)
		for _, owner := range tt.owners {
			// the pod is deleted after the loss
			add("dcgm_pod_gpu_info", append(owner, "gpu", "3", "UUID", "GPU-3"), 45, 52)
		}
		add("dcgm_pod_gpu_info",
			append(honored[:4:4], "namespace", "research", "pod", "other", "gpu", "4", "UUID", "GPU-4"), 60)
		got := expand(t, description, s, someLabels, 0)
		if want := "The other GPUs of the node still work." + tt.want +
			" Cordon and drain"; !strings.Contains(got, want) {
			t.Errorf("%s: %q lacks %q", tt.name, got, want)
		}
	}
}

// named returns the alert with the given name.
func named(t *testing.T, name string) rule {
	t.Helper()
	list := alerts(t)
	i := slices.IndexFunc(list, func(r rule) bool { return r.Alert == name })
	if i < 0 {
		t.Fatalf("there is no %s", name)
	}
	return list[i]
}
