package judge_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/judge"
)

func planned(t *testing.T) *cluster.State {
	t.Helper()
	s, err := cluster.Folder("testdata/planned").Read(t.Context(), judge.PreflightKinds()...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// preflighted returns the findings of Preflight, and checks their evidence.
func preflighted(t *testing.T, s *cluster.State, o judge.Options) []check.Finding {
	t.Helper()
	return evidenced(t, judge.Preflight(s, o))
}

func release(t *testing.T, name string) chart.Version {
	t.Helper()
	v, err := chart.ParseVersion(name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// wrong formats the findings that are not OK as "severity check node", sorted.
func wrong(rows []check.Finding) []string {
	var out []string
	for _, v := range rows {
		if v.Severity != check.OK {
			out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s", v.Severity, v.Check.ID, v.Node)))
		}
	}
	slices.Sort(out)
	return out
}

func TestPreflightOfAHealthyCluster(t *testing.T) {
	s := planned(t)
	if len(s.Missing) != 1 || s.Missing[0].Kind != cluster.Events {
		t.Fatalf("Missing = %v, want only events", s.Missing)
	}
	rows := preflighted(t, s, judge.Options{Table: chart.Load(), Release: release(t, "v26.7.0")})
	if got := wrong(rows); len(got) != 0 {
		t.Errorf("findings in the healthy cluster = %v, want none", got)
	}
}

func daemonSet(namespace, name, image string) appsv1.DaemonSet {
	d := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: image}}
	d.Status.DesiredNumberScheduled = 2
	return d
}

// TestForbiddenPodsAreOneFinding expects one error if the namespace forbids privileged pods and an event says that a
// pod was rejected. The error must have the event as evidence.
func TestForbiddenPodsAreOneFinding(t *testing.T) {
	s := planned(t)
	d := daemonSet("gpu-operator", "nvidia-driver-daemonset", "driver")
	d.Spec.Template.Spec.NodeSelector = map[string]string{"nvidia.com/gpu.deploy.driver": "true"}
	s.DaemonSets = append(s.DaemonSets, d)
	s.Namespaces = []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "gpu-operator", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}}}}
	warned(s, "DaemonSet", d.Name, "FailedCreate", `Error creating: pods "x" is forbidden: violates PodSecurity "baseline:latest": privileged`)
	var failed []check.Finding
	for _, v := range preflighted(t, s, judge.Options{Table: chart.Load(), Release: release(t, "v26.7.0")}) {
		if v.Severity == check.Error {
			failed = append(failed, v)
		}
	}
	if len(failed) != 1 || failed[0].Check.ID != "pod-security" || failed[0].Evidence.Kind != "event" {
		t.Errorf("errors = %+v, want one of the check pod-security with the event as evidence", failed)
	}
}

// TestJudge changes a cluster without problems and runs Preflight. It compares all findings that are not OK.
func TestJudge(t *testing.T) {
	file := load[string](t, "preflight.yaml")
	for _, c := range file.States {
		t.Run(c.Name, func(t *testing.T) {
			s := patched(t, planned(t), file.Bases[c.Base], c.Patch)
			o := judge.Options{Table: chart.Load(), Release: release(t, cmp.Or(c.Version, "v26.7.0")), Values: c.Values}
			rows := preflighted(t, s, o)
			slices.Sort(c.Want)
			if diff := gocmp.Diff(c.Want, wrong(rows)); diff != "" {
				t.Errorf("findings that are not OK (-want +got):\n%s", diff)
			}
			if !slices.ContainsFunc(rows, func(v check.Finding) bool { return strings.Contains(v.Reason, c.Says) }) {
				t.Errorf("no reason contains %q:\n%s", c.Says, text(rows))
			}
		})
	}
}
