package judge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/judge"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// kubelets are the pods of a cluster in which each pod becomes what status says at each look.
type kubelets struct {
	pods    map[string]*corev1.Pod
	looks   map[string]int
	deleted []string
	// status is what a pod is at its n-th look, from 1, and log what it has written.
	status func(p *corev1.Pod, n int) corev1.PodStatus
	log    func(p *corev1.Pod) string
	// refuse and keep are errors of creating and deleting.
	refuse, keep func(name string) error
}

func (k *kubelets) CreatePod(_ context.Context, p *corev1.Pod) (*corev1.Pod, error) {
	if k.refuse != nil {
		if err := k.refuse(p.Name); err != nil {
			return nil, err
		}
	}
	if k.pods == nil {
		k.pods, k.looks = map[string]*corev1.Pod{}, map[string]int{}
	}
	k.pods[p.Name] = p.DeepCopy()
	return p, nil
}

func (k *kubelets) Pod(_ context.Context, _, name string) (*corev1.Pod, error) {
	p := k.pods[name]
	if p == nil {
		return nil, nil
	}
	k.looks[name]++
	p.Status = k.status(p, k.looks[name])
	if p.Status.Phase != corev1.PodPending {
		p.Spec.NodeName = "gpu-1"
	}
	return p, nil
}

func (k *kubelets) PodLog(_ context.Context, _, name, _ string) (string, error) {
	return k.log(k.pods[name]), nil
}

func (k *kubelets) DeletePod(_ context.Context, _, name string) error {
	if k.keep != nil {
		if err := k.keep(name); err != nil {
			return err
		}
	}
	delete(k.pods, name)
	k.deleted = append(k.deleted, name)
	return nil
}

// works is a cluster in which the sample passes.
func works() *kubelets {
	return &kubelets{
		status: func(_ *corev1.Pod, n int) corev1.PodStatus {
			switch n {
			case 1:
				return corev1.PodStatus{Phase: "Pending", Conditions: []corev1.PodCondition{{Type: "PodScheduled", Status: "False", Reason: "Unschedulable", Message: "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."}}}
			case 2:
				return corev1.PodStatus{Phase: "Running", ContainerStatuses: []corev1.ContainerStatus{{Name: "cuda", Ready: true}}}
			}
			return corev1.PodStatus{Phase: "Succeeded"}
		},
		log: func(*corev1.Pod) string { return "[Vector addition of 50000 elements]\nTest PASSED\nDone\n" },
	}
}

func plan(t *testing.T) *judge.SmokePlan {
	t.Helper()
	p, err := judge.PlanSmoke(healthy(t), "", "default", judge.SampleImage)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPlan(t *testing.T) {
	if p := plan(t); p.Resource != "nvidia.com/gpu" {
		t.Errorf("whole GPUs: %+v", p)
	}
	s := healthy(t)
	offers(node(s, "gpu-1"), nil)
	offers(node(s, "gpu-2"), map[string]string{"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "5", "nvidia.com/mig-1g.10gb": "2"})
	if p, err := judge.PlanSmoke(s, "gpu-2", "default", ""); err != nil || p.Resource != "nvidia.com/gpu.shared" || p.Node != "gpu-2" {
		t.Errorf("renamed: %+v, %v", p, err)
	}
	if _, err := judge.PlanSmoke(s, "gpu-1", "default", ""); !errors.Is(err, judge.ErrNoGPU) {
		t.Errorf("a node that offers none: %v", err)
	}
	if _, err := judge.PlanSmoke(s, "gpu-3", "default", ""); !errors.Is(err, cluster.ErrInput) || !strings.Contains(err.Error(), `"gpu-3"`) {
		t.Errorf("a node that is not there: %v", err)
	}
	if line := plan(t).Describe(); !strings.Contains(line, "1 pod with 1 nvidia.com/gpu on a node that the scheduler chooses, in namespace default") || !strings.Contains(line, "deleted") {
		t.Errorf("what is created is not said: %s", line)
	}
}

// The API server takes the pods: extended resources under limits, whole, and a toleration for the
// usual taint and those of the node.
func TestSmokePods(t *testing.T) {
	k := works()
	s := healthy(t)
	n := node(s, "gpu-1")
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "team", Value: "ml", Effect: "NoSchedule"})
	p, err := judge.PlanSmoke(s, "gpu-1", "ci", "mirror/vectoradd:1")
	if err != nil {
		t.Fatal(err)
	}
	run := judge.NewSmoke(p, k, "gpuop-smoke-1", 90*time.Second)
	if _, _, err := run.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	pod := k.pods["gpuop-smoke-1"]
	if pod == nil || len(k.pods) != 1 {
		t.Fatalf("%d pods: %v", len(k.pods), k.pods)
	}
	c := pod.Spec.Containers[0]
	if q := c.Resources.Limits["nvidia.com/gpu"]; q.Value() != 1 || c.Image != "mirror/vectoradd:1" || pod.Namespace != "ci" || len(c.Command) != 0 {
		t.Errorf("%+v", pod)
	}
	if *pod.Spec.ActiveDeadlineSeconds != 90 || pod.Spec.RestartPolicy != "Never" {
		t.Errorf("the pod does not end by itself: %+v", pod.Spec)
	}
	for _, taint := range n.Spec.Taints {
		if !slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == taint.Key }) {
			t.Errorf("no toleration for %s", taint.ToString())
		}
	}
}

func TestSmoke(t *testing.T) {
	denied := errors.New(`create pod default/x: pods is forbidden: User "ci" cannot create resource "pods" in API group "" in the namespace "default"`)
	for name, test := range map[string]struct {
		change func(k *kubelets)
		want   []row
	}{
		"everything works": {func(*kubelets) {}, []row{{"smoke-vectoradd", "gpu-1", report.OK, "Test PASSED"}}},
		"the sample fails": {func(k *kubelets) {
			k.log = func(*corev1.Pod) string {
				return "Failed to allocate device vector A (error code CUDA driver version is insufficient for CUDA runtime version)!\n"
			}
		}, []row{{"smoke-vectoradd", "gpu-1", report.Failed, "CUDA driver version is insufficient"}}},
		"the kubelet refuses it": {func(k *kubelets) {
			k.status = func(*corev1.Pod, int) corev1.PodStatus {
				return corev1.PodStatus{Phase: "Failed", Reason: "UnexpectedAdmissionError", Message: "Allocate failed due to too many"}
			}
			k.log = func(*corev1.Pod) string { return "" }
		}, []row{{"smoke-vectoradd", "gpu-1", report.Failed, "(UnexpectedAdmissionError): Allocate failed due to too many"}}},
		"no pod may be created": {func(k *kubelets) { k.refuse = func(string) error { return denied } },
			[]row{{"smoke-vectoradd", "", report.Failed, "cannot create resource \"pods\""}}},
		"a pod cannot be deleted": {func(k *kubelets) { k.keep = func(string) error { return errors.New("connection reset") } },
			[]row{{"smoke-cleanup", "", report.Failed, "kubectl delete pod -n default t"}}},
		"another deletes the sample": {func(k *kubelets) {
			before := k.status
			k.status = func(p *corev1.Pod, n int) corev1.PodStatus {
				delete(k.pods, p.Name)
				return before(p, n)
			}
		}, []row{{"smoke-vectoradd", "", report.Failed, "deleted by another client gpuop verify --smoke"}}},
	} {
		t.Run(name, func(t *testing.T) {
			k := works()
			test.change(k)
			run := judge.NewSmoke(plan(t), k, "t", time.Minute)
			var rows []report.Row
			for looks := 1; ; looks++ {
				var done bool
				var err error
				if rows, done, err = run.Look(t.Context()); err != nil {
					t.Fatal(err)
				} else if done {
					break
				}
				if looks > 10 {
					t.Fatalf("still not done: %+v", rows)
				}
			}
			rows = evidenced(t, append(slices.Clone(rows), run.Clean(t.Context())...))
			for _, want := range test.want {
				if !want.in(rows) {
					t.Errorf("no row %v in\n%s", want, text(rows))
				}
			}
			if k.keep == nil && len(k.pods) > 0 {
				t.Errorf("left behind: %v", k.pods)
			}
		})
	}
}

// What waits when the time is over has failed, and its pod is deleted all the same; a create that
// was cut off may have made its pod, which is deleted, too.
func TestSmokeStops(t *testing.T) {
	k := works()
	k.status = func(p *corev1.Pod, _ int) corev1.PodStatus {
		return corev1.PodStatus{Phase: "Pending", Conditions: []corev1.PodCondition{{Type: "PodScheduled", Status: "False", Reason: "Unschedulable", Message: "3 Insufficient nvidia.com/gpu.", LastTransitionTime: metav1.NewTime(at)}}}
	}
	run := judge.NewSmoke(plan(t), k, "t", time.Minute)
	rows, done, err := run.Look(t.Context())
	if done || err != nil || rows[0].State != report.Waiting {
		t.Fatalf("%+v, %t, %v", rows, done, err)
	}
	v := run.Stop("1m0s have passed")[0]
	if v.State != report.Failed || !strings.Contains(v.Reason, "1m0s have passed; the last that was seen: no node takes the pod (Unschedulable): 3 Insufficient nvidia.com/gpu") {
		t.Errorf("%+v", v)
	}
	if v.Fix != "kubectl get events -n default | grep t" {
		t.Errorf("the next step reads a pod that is deleted: %s", v.Fix)
	}
	if left := run.Clean(t.Context()); len(left) > 0 || len(k.pods) > 0 || len(k.deleted) != 1 {
		t.Errorf("%v, left %v, deleted %v", left, k.pods, k.deleted)
	}

	k = works()
	ctx, cancel := context.WithCancel(t.Context())
	k.refuse = func(name string) error {
		cancel()
		k.pods = map[string]*corev1.Pod{name: {}} // the server has made it
		return fmt.Errorf("create: %w", context.Canceled)
	}
	run = judge.NewSmoke(plan(t), k, "t", time.Minute)
	if _, _, err := run.Look(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if run.Stop("interrupted"); len(run.Clean(t.Context())) > 0 || len(k.pods) > 0 {
		t.Errorf("left behind: %v", k.pods)
	}
}

// An API server that is gone ends the look, not the test's verdict.
func TestSmokeLosesTheServer(t *testing.T) {
	k := works()
	k.refuse = func(string) error { return fmt.Errorf("%w: refused", cluster.ErrUnreachable) }
	if _, _, err := judge.NewSmoke(plan(t), k, "t", time.Minute).Look(t.Context()); !errors.Is(err, cluster.ErrUnreachable) {
		t.Errorf("%v", err)
	}
}
