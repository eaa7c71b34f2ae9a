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
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/verdict"
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

// works is a cluster in which the sample passes, and the copies see devices in turn.
func works(devices int) *kubelets {
	return &kubelets{
		status: func(p *corev1.Pod, n int) corev1.PodStatus {
			ready := []corev1.ContainerStatus{{Name: "cuda", Ready: true}}
			switch {
			case n == 1:
				return corev1.PodStatus{Phase: "Pending", Conditions: []corev1.PodCondition{{Type: "PodScheduled", Status: "False", Reason: "Unschedulable", Message: "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."}}}
			case strings.Contains(p.Name, "shared") || n == 2:
				return corev1.PodStatus{Phase: "Running", ContainerStatuses: ready}
			}
			return corev1.PodStatus{Phase: "Succeeded"}
		},
		log: func(p *corev1.Pod) string {
			if !strings.Contains(p.Name, "shared") {
				return "[Vector addition of 50000 elements]\nTest PASSED\nDone\n"
			}
			n := int(p.Name[len(p.Name)-1] - '0')
			return fmt.Sprintf("GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-%08d-1111-2222-3333-444444444444)\n", n%devices)
		},
	}
}

// plan is the plan for a cluster of which gpu-1 has two GPUs, each shared five ways.
func plan(t *testing.T) *judge.SmokePlan {
	t.Helper()
	s := healthy(t)
	shared(t, s, time.Time{})
	offers(node(s, "gpu-1"), map[string]string{"nvidia.com/gpu": "10"})
	p, err := judge.PlanSmoke(s, "", "default", judge.SampleImage)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPlan(t *testing.T) {
	s := healthy(t)
	p, err := judge.PlanSmoke(s, "", "default", judge.SampleImage)
	if err != nil || p.Resource != "nvidia.com/gpu" || p.Shared != "" || p.Copies != 0 {
		t.Errorf("whole GPUs: %+v, %v", p, err)
	}
	if p := plan(t); p.Shared != "gpu-1" || p.SharedResource != "nvidia.com/gpu" || p.Copies != 3 {
		t.Errorf("shared GPUs: %+v, want three pods on the node with two GPUs, not nine on that with eight", p)
	}
	s = healthy(t)
	label(node(s, "gpu-2"), "nvidia.com/gpu.replicas", "5")
	offers(node(s, "gpu-1"), nil)
	offers(node(s, "gpu-2"), map[string]string{"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "5"})
	if p, err := judge.PlanSmoke(s, "gpu-2", "default", ""); err != nil || p.Resource != "nvidia.com/gpu.shared" || p.SharedResource != "nvidia.com/gpu.shared" || p.Copies != 2 || p.Node != "gpu-2" {
		t.Errorf("renamed: %+v, %v", p, err)
	}
	// of two shared resources the one with fewer devices needs fewer pods, whatever its name
	label(node(s, "gpu-2"), "nvidia.com/gpu.replicas", "2", "nvidia.com/mig-1g.10gb.replicas", "2")
	offers(node(s, "gpu-2"), map[string]string{"nvidia.com/gpu": "6", "nvidia.com/mig-1g.10gb": "2"})
	for range 20 {
		if p, err := judge.PlanSmoke(s, "gpu-2", "default", ""); err != nil || p.Resource != "nvidia.com/gpu" || p.SharedResource != "nvidia.com/mig-1g.10gb" || p.Copies != 2 {
			t.Fatalf("two shared resources: %+v, %v", p, err)
		}
	}
	if _, err := judge.PlanSmoke(s, "gpu-1", "default", ""); !errors.Is(err, judge.ErrNoGPU) {
		t.Errorf("a node that offers none: %v", err)
	}
	if _, err := judge.PlanSmoke(s, "gpu-3", "default", ""); !errors.Is(err, cluster.ErrInput) || !strings.Contains(err.Error(), `"gpu-3"`) {
		t.Errorf("a node that is not there: %v", err)
	}
	if lines := strings.Join(plan(t).Describe(), "\n"); !strings.Contains(lines, "1 pod with 1 nvidia.com/gpu on a node that the scheduler chooses, in namespace default") ||
		!strings.Contains(lines, "3 pods with 1 nvidia.com/gpu each on node gpu-1, which has 2 shared devices") || !strings.Contains(lines, "deleted") {
		t.Errorf("what is created is not said:\n%s", lines)
	}
}

// The API server takes the pods: extended resources under limits, whole, and a toleration for the
// usual taint and those of the node.
func TestSmokePods(t *testing.T) {
	k := works(2)
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
	pod := k.pods["gpuop-smoke-1-vectoradd"]
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
		"everything works": {func(*kubelets) {}, []row{
			{"smoke-vectoradd", "gpu-1", verdict.OK, "Test PASSED"},
			{"smoke-shared", "gpu-1", verdict.OK, "-shared-0 and t-shared-2 run at the same time, and both see GPU-00000000"},
		}},
		"the sample fails": {func(k *kubelets) {
			before := k.log
			k.log = func(p *corev1.Pod) string {
				if strings.Contains(p.Name, "vectoradd") {
					return "Failed to allocate device vector A (error code CUDA driver version is insufficient for CUDA runtime version)!\n"
				}
				return before(p)
			}
		}, []row{{"smoke-vectoradd", "gpu-1", verdict.Failed, "CUDA driver version is insufficient"}, {"smoke-shared", "gpu-1", verdict.OK, ""}}},
		"nothing is shared": {func(k *kubelets) { k.log = works(3).log },
			[]row{{"smoke-shared", "gpu-1", verdict.Failed, "3 pods run on gpu-1, which has 2 shared devices, and no two see the same"}}},
		"a MIG device is shared": {func(k *kubelets) {
			before := k.log
			k.log = func(p *corev1.Pod) string {
				if strings.Contains(p.Name, "vectoradd") {
					return before(p)
				}
				// one GPU for all, and a MIG device of their own for each but two
				return fmt.Sprintf("GPU 0: NVIDIA A100 (UUID: GPU-0)\n  MIG 1g.10gb     Device  0: (UUID: MIG-%d)\n", int(p.Name[len(p.Name)-1]-'0')%2)
			}
		}, []row{{"smoke-shared", "gpu-1", verdict.OK, "both see MIG-0"}}},
		"a copy ends": {func(k *kubelets) {
			before := k.status
			k.status = func(p *corev1.Pod, n int) corev1.PodStatus {
				if strings.HasSuffix(p.Name, "shared-1") {
					return corev1.PodStatus{Phase: "Failed", Reason: "UnexpectedAdmissionError", Message: "Allocate failed due to too many"}
				}
				return before(p, n)
			}
		}, []row{{"smoke-shared", "gpu-1", verdict.Failed, "(UnexpectedAdmissionError): Allocate failed due to too many"}}},
		"no pod may be created": {func(k *kubelets) { k.refuse = func(string) error { return denied } },
			[]row{{"smoke-vectoradd", "", verdict.Failed, "cannot create resource \"pods\""}, {"smoke-shared", "gpu-1", verdict.Failed, "does not take the pod"}}},
		"a quota refuses the copies": {func(k *kubelets) {
			k.refuse = func(name string) error {
				if strings.HasSuffix(name, "shared-1") {
					return errors.New("exceeded quota: gpus")
				}
				return nil
			}
		}, []row{{"smoke-vectoradd", "gpu-1", verdict.OK, ""}, {"smoke-shared", "gpu-1", verdict.Failed, "exceeded quota: gpus"}}},
		"a pod cannot be deleted": {func(k *kubelets) {
			k.keep = func(name string) error {
				if strings.HasSuffix(name, "vectoradd") {
					return errors.New("connection reset")
				}
				return nil
			}
		}, []row{{"smoke-cleanup", "", verdict.Failed, "kubectl delete pod -n default t-vectoradd"}}},
		"another deletes the sample": {func(k *kubelets) {
			before := k.status
			k.status = func(p *corev1.Pod, n int) corev1.PodStatus {
				if strings.HasSuffix(p.Name, "vectoradd") {
					delete(k.pods, p.Name)
				}
				return before(p, n)
			}
		}, []row{{"smoke-vectoradd", "", verdict.Failed, "deleted by another client gpuop verify --smoke"}}},
	} {
		t.Run(name, func(t *testing.T) {
			k := works(2)
			test.change(k)
			run := judge.NewSmoke(plan(t), k, "t", time.Minute)
			var rows []verdict.Verdict
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
			rows = append(slices.Clone(rows), run.Clean(t.Context())...)
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

// What waits when the time is over has failed, and its pods are deleted all the same; a create that
// was cut off may have made its pod, which is deleted, too.
func TestSmokeStops(t *testing.T) {
	k := works(2)
	k.status = func(p *corev1.Pod, _ int) corev1.PodStatus {
		return corev1.PodStatus{Phase: "Pending", Conditions: []corev1.PodCondition{{Type: "PodScheduled", Status: "False", Reason: "Unschedulable", Message: "3 Insufficient nvidia.com/gpu.", LastTransitionTime: metav1.NewTime(at)}}}
	}
	run := judge.NewSmoke(plan(t), k, "t", time.Minute)
	rows, done, err := run.Look(t.Context())
	if done || err != nil || rows[0].State != verdict.Waiting || rows[1].State != verdict.Waiting {
		t.Fatalf("%+v, %t, %v", rows, done, err)
	}
	for _, v := range run.Stop("1m0s have passed") {
		if v.State != verdict.Failed || !strings.Contains(v.Reason, "1m0s have passed; the last that was seen: no node takes the pod (Unschedulable): 3 Insufficient nvidia.com/gpu") {
			t.Errorf("%+v", v)
		}
		if v.Next != "kubectl get events -n default | grep t" {
			t.Errorf("the next step reads a pod that is deleted: %s", v.Next)
		}
	}
	if left := run.Clean(t.Context()); len(left) > 0 || len(k.pods) > 0 || len(k.deleted) != 4 {
		t.Errorf("%v, left %v, deleted %v", left, k.pods, k.deleted)
	}

	k = works(2)
	ctx, cancel := context.WithCancel(t.Context())
	k.refuse = func(name string) error {
		if !strings.HasSuffix(name, "shared-0") {
			return nil
		}
		cancel()
		k.pods[name] = &corev1.Pod{} // the server has made it
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
	k := works(2)
	k.refuse = func(string) error { return fmt.Errorf("%w: refused", cluster.ErrUnreachable) }
	if _, _, err := judge.NewSmoke(plan(t), k, "t", time.Minute).Look(t.Context()); !errors.Is(err, cluster.ErrUnreachable) {
		t.Errorf("%v", err)
	}
}
