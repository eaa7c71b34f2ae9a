package alertmanager

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/alertmanager/alert"
	"github.com/prometheus/alertmanager/config"
	"github.com/prometheus/alertmanager/dispatch"
	"github.com/prometheus/alertmanager/eventrecorder"
	"github.com/prometheus/alertmanager/inhibit"
	"github.com/prometheus/alertmanager/provider"
	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

var deployment = filepath.Join("..", "..", "deployment")

// load returns the shipped configuration. An unknown key or receiver fails the test.
func load(t *testing.T) *config.Config {
	t.Helper()
	c, err := config.LoadFile(filepath.Join(deployment, "alertmanager", "alertmanager.yml"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// severities returns the severity of each alert in deployment/rules.
func severities(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(deployment, "rules", "alerts-*.yml"))
	if err != nil || len(files) < 2 {
		t.Fatal(err, files)
	}
	all := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var rules struct {
			Groups []struct {
				Rules []struct {
					Alert  string
					Labels map[string]string
				}
			}
		}
		if err := yaml.Unmarshal(text, &rules); err != nil {
			t.Fatal(file, err)
		}
		for _, g := range rules.Groups {
			for _, r := range g.Rules {
				if r.Alert != "" {
					all[r.Alert] = r.Labels["severity"]
				}
			}
		}
	}
	return all
}

// TestRoutes checks that each alert in deployment/rules goes to the receiver of its severity, and that its group labels
// are those of the cluster, the host and the GPU. Any other alert stays at the root route.
func TestRoutes(t *testing.T) {
	root := dispatch.NewRoute(load(t).Route, nil)
	receivers := map[string]string{"critical": "gpu-pager", "warning": "gpu-tickets", "info": "gpu-owners"}
	for name, severity := range severities(t) {
		routes := root.Match(model.LabelSet{"alertname": model.LabelValue(name),
			"severity": model.LabelValue(severity)})
		if len(routes) != 1 || routes[0].RouteOpts.Receiver != receivers[severity] {
			t.Errorf("alert %s with severity %s: routes = %v, want only %s", name, severity, routes,
				receivers[severity])
			continue
		}
		for _, label := range []model.LabelName{"cluster", "node", "hostname", "Hostname", "gpu"} {
			if _, ok := routes[0].RouteOpts.GroupBy[label]; !ok || len(routes[0].RouteOpts.GroupBy) != 5 {
				t.Errorf("alert %s is grouped by %v, want cluster, node, hostname, Hostname and gpu", name,
					routes[0].RouteOpts.GroupBy)
			}
		}
	}
	if routes := root.Match(model.LabelSet{"alertname": "KubePodCrashLooping",
		"severity": "critical"}); len(routes) != 1 || routes[0] != root {
		t.Errorf("alert KubePodCrashLooping: routes = %v, want only the root route", routes)
	}
}

// firing provides the firing alerts to Alertmanager's inhibitor.
type firing struct {
	provider.Alerts
	alerts []*alert.Alert
}

func (f firing) SlurpAndSubscribe(string) ([]*alert.Alert, provider.AlertIterator) {
	return f.alerts, provider.NewAlertIterator(make(chan *provider.Alert), make(chan struct{}), nil)
}

// notified returns a line for each notification that the alerts cause: "RECEIVER NODE/GPU: ALERTS". It omits inhibited
// alerts.
func notified(t *testing.T, c *config.Config, alerts []model.LabelSet) []string {
	t.Helper()
	var f firing
	for _, labels := range alerts {
		f.alerts = append(f.alerts,
			&alert.Alert{Alert: model.Alert{Labels: labels, StartsAt: time.Now(), EndsAt: time.Now().Add(time.Hour)}})
	}
	inhibitor := inhibit.NewInhibitor(f, c.InhibitRules, slog.New(slog.DiscardHandler), eventrecorder.NopRecorder())
	ended := make(chan struct{})
	go func() {
		inhibitor.Run()
		close(ended)
	}()
	inhibitor.WaitForLoading()
	groups := map[string][]string{}
	for _, labels := range alerts {
		if inhibitor.Mutes(t.Context(), labels) {
			continue
		}
		for _, route := range dispatch.NewRoute(c.Route, nil).Match(labels) {
			key := route.RouteOpts.Receiver + " " + string(labels["node"]) + "/" + string(labels["gpu"])
			groups[key] = append(groups[key], string(labels["alertname"]))
		}
	}
	inhibitor.Stop()
	<-ended
	var list []string
	for key, names := range groups {
		slices.Sort(names)
		list = append(list, key+": "+strings.Join(names, ", "))
	}
	slices.Sort(list)
	return list
}

// Each case lists firing alerts and the notifications that they cause. The consequences of a fault are inhibited on the
// same GPU or node, but not on others.
func TestOneFaultIsOneNotification(t *testing.T) {
	c, severity := load(t), severities(t)
	for _, tt := range []struct {
		name   string
		alerts []string // each is "ALERT NODE GPU", or "ALERT NODE" for an alert about a node
		want   []string
	}{
		{"a memory fault", []string{
			"GPUXIDMemoryFault a 1", "GPURecoveryActionRequired a 1", "GPUECCUncorrected a 1", "GPUXIDMemoryRepair a 1",
			"GPURowRemapPending a 1", "GPUPageRetirementPending a 1", "GPUXIDApplication a 1",
		}, []string{"gpu-pager a/1: GPURecoveryActionRequired, GPUXIDMemoryFault"}},
		{"a lost GPU", []string{
			"GPULost a 3", "GPUXIDHardware a 3", "GPUHealthFailed a 3", "GPUAllocatedIdle a 3",
			"DCGMExporterStaleSamples a 3",
		}, []string{"gpu-pager a/3: GPULost"}},
		{"two GPUs and another node", []string{"GPULost a 3", "GPUHot a 4", "GPUHot b 3", "GPUXIDApplication b 5"},
			[]string{"gpu-owners b/5: GPUXIDApplication", "gpu-pager a/3: GPULost", "gpu-tickets a/4: GPUHot",
				"gpu-tickets b/3: GPUHot"}},
		{"warnings of one GPU", []string{"GPUHot a 0", "GPUThermalThrottling a 0", "GPUXIDApplication a 0"},
			[]string{"gpu-tickets a/0: GPUHot, GPUThermalThrottling"}},
		{"a failed switch", []string{
			"NVSwitchFailed a", "NVSwitchWarning a", "GPUNVLinkDown a 0", "GPUNVLinkDown a 1", "GPUXIDNVLink a 2",
			"GPUFabricFailed a 3", "GPUHot a 4", "GPUNVLinkDown b 0",
		}, []string{"gpu-pager a/: NVSwitchFailed", "gpu-pager b/0: GPUNVLinkDown", "gpu-tickets a/4: GPUHot"}},
		{"a node without GPUs", []string{"GPUNodeWithoutGPUs a", "GPUMissing a", "GPUMissing b"},
			[]string{"gpu-pager a/: GPUNodeWithoutGPUs", "gpu-pager b/: GPUMissing"}},
		{"an exporter without data",
			[]string{"DCGMExporterWedged a", "DCGMExporterAttributionFailing a", "DCGMExporterFieldsDenied b"},
			[]string{"gpu-pager a/: DCGMExporterWedged", "gpu-tickets b/: DCGMExporterFieldsDenied"}},
	} {
		var alerts []model.LabelSet
		for _, a := range tt.alerts {
			name, place, _ := strings.Cut(a, " ")
			node, gpu, _ := strings.Cut(place, " ")
			if severity[name] == "" {
				t.Fatalf("there is no alert %s", name)
			}
			labels := model.LabelSet{"alertname": model.LabelValue(name), "severity": model.LabelValue(severity[name]),
				"node": model.LabelValue(node), "hostname": model.LabelValue(node)}
			if gpu != "" {
				labels["gpu"] = model.LabelValue(gpu)
			}
			alerts = append(alerts, labels)
		}
		if d := cmp.Diff(tt.want, notified(t, c, alerts)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}
