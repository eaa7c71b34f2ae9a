package judge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// SampleImage is the image of the vectorAdd sample that NVIDIA's documentation and its operator's own
// test run.
const SampleImage = "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0-ubuntu22.04"

// Pods are the functions of a cluster that a smoke test needs; cluster.Client has them.
type Pods interface {
	CreatePod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error)
	// Pod returns nil for a pod that is no more.
	Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	PodLog(ctx context.Context, namespace, name, container string) (string, error)
	DeletePod(ctx context.Context, namespace, name string) error
}

// A SmokePlan is what a smoke test creates.
type SmokePlan struct {
	// Namespace is where the pod is created, Image what it runs.
	Namespace, Image string
	// Resource is what the pod requests one of, Node the node that it is bound to; empty where the scheduler chooses.
	Resource, Node string

	tolerations []corev1.Toleration // of the node's taints
}

// ErrNoGPU is returned by PlanSmoke where no node offers a GPU.
var ErrNoGPU = errors.New("no node offers a GPU")

// PlanSmoke says what a smoke test of the cluster would create: on the node that is named, or where the
// scheduler likes. The error wraps ErrNoGPU.
func PlanSmoke(s *cluster.State, node, namespace, image string) (*SmokePlan, error) {
	p := &SmokePlan{Namespace: namespace, Image: image, Node: node}
	offers := map[string]int{}
	named := false
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if node != "" && n.Name != node {
			continue
		}
		named = true
		maps.Copy(offers, resourcesOf(n))
		if node != "" {
			for _, t := range n.Spec.Taints {
				p.tolerations = append(p.tolerations, corev1.Toleration{Key: t.Key, Operator: corev1.TolerationOpEqual, Value: t.Value, Effect: t.Effect})
			}
		}
	}
	if !named {
		return nil, fmt.Errorf("%w: the cluster has no node %q", cluster.ErrInput, node)
	}
	if len(offers) == 0 {
		return nil, fmt.Errorf("%w: nothing named nvidia.com/gpu, nvidia.com/gpu.shared or nvidia.com/mig-… is allocatable", ErrNoGPU)
	}
	// a whole GPU sorts before what sharing and MIG make of it
	p.Resource = slices.Min(slices.Collect(maps.Keys(offers)))
	return p, nil
}

// resourcesOf are the GPU resources of which a node has some to allocate.
func resourcesOf(n *corev1.Node) map[string]int {
	all := map[string]int{}
	for name, q := range n.Status.Allocatable {
		if isDevice(string(name)) && q.Value() > 0 {
			all[string(name)] = int(q.Value())
		}
	}
	return all
}

// Describe says what is created.
func (p *SmokePlan) Describe() string {
	on := "a node that the scheduler chooses"
	if p.Node != "" {
		on = "node " + p.Node
	}
	return fmt.Sprintf("1 pod with 1 %s on %s, in namespace %s, image %s; it is deleted at the end", p.Resource, on, p.Namespace, p.Image)
}

// pod is the pod of the plan. It ends by itself after the deadline, should gpuop be killed.
func (p *SmokePlan) pod(name string, deadline time.Duration) *corev1.Pod {
	seconds := int64(max(1, deadline/time.Second))
	never := false
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: p.Namespace, Labels: map[string]string{"app.kubernetes.io/managed-by": "gpuop", "app.kubernetes.io/name": "gpuop-smoke"},
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, ActiveDeadlineSeconds: &seconds, AutomountServiceAccountToken: &never, EnableServiceLinks: &never,
			Tolerations: append([]corev1.Toleration{{Key: mig.WholeGPU, Operator: corev1.TolerationOpExists}}, p.tolerations...),
			Containers: []corev1.Container{{
				Name: "cuda", Image: p.Image,
				Resources:       corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceName(p.Resource): resource.MustParse("1")}},
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &never, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}},
		},
	}
	if p.Node != "" {
		// bound by affinity, not by nodeName: the kubelet refuses a pod for which there is no device
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{p.Node}},
			}}},
		}}}
	}
	return pod
}

// A Smoke is one run of a plan: Look until it is done, then Clean whatever Look returned. It is not
// safe for concurrent use.
type Smoke struct {
	pods  Pods
	plan  *SmokePlan
	pod   *corev1.Pod
	begun bool
	row   report.Row
}

// NewSmoke returns a run that has created nothing. The name keeps its pod apart from that of
// another run; deadline is after how long it ends by itself.
func NewSmoke(plan *SmokePlan, pods Pods, name string, deadline time.Duration) *Smoke {
	return &Smoke{pods: pods, plan: plan, pod: plan.pod(name, deadline), row: report.Row{
		ID: "smoke-vectoradd", Node: plan.Node, Subject: "vectorAdd", Source: "GPU Operator documentation, verification",
	}}
}

// Look creates the pod at its first call, then looks how it is doing. It returns the row, and done when it does not
// wait. An error wraps cluster.ErrUnreachable, or is the context's; what a server refuses is the row.
func (s *Smoke) Look(ctx context.Context) (rows []report.Row, done bool, err error) {
	if !s.begun {
		s.begun = true // a create that is cut off may have made it
		if _, err := s.pods.CreatePod(ctx, s.pod); err != nil {
			if ctx.Err() != nil || errors.Is(err, cluster.ErrUnreachable) {
				return s.Rows(), false, err
			}
			s.fail("the cluster does not take the pod: "+err.Error(), "gpuop verify --smoke --smoke-namespace NAMESPACE  # where pods may be created")
			return s.Rows(), true, nil
		}
	}
	p, err := s.pods.Pod(ctx, s.pod.Namespace, s.pod.Name)
	switch {
	case err != nil:
		return s.Rows(), false, err
	case p == nil:
		s.fail("the pod was deleted by another client", "gpuop verify --smoke")
		return s.Rows(), true, nil
	}
	s.row.Node = cmp.Or(p.Spec.NodeName, s.row.Node)
	if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
		state := podStateOf(p)
		s.row.State, s.row.Reason, s.row.Since, s.row.Fix, s.row.Evidence = report.Waiting, state.Reason, state.Since, state.Fix, state.Evidence
		if state.State == report.OK {
			s.row.Reason = "the pod runs"
		}
		return s.Rows(), false, nil
	}
	text, err := s.pods.PodLog(ctx, p.Namespace, p.Name, "cuda")
	const passed = "Test PASSED"
	switch {
	case err != nil && (ctx.Err() != nil || errors.Is(err, cluster.ErrUnreachable)):
		return s.Rows(), false, err
	case err != nil:
		s.fail(err.Error(), "gpuop verify")
	case p.Status.Phase == corev1.PodSucceeded && strings.Contains(text, passed):
		s.row.State, s.row.Fix, s.row.Since = report.OK, "", time.Time{}
		s.row.Reason = fmt.Sprintf("the sample ran with 1 %s, and its log says %s", s.plan.Resource, passed)
		s.row.Evidence = report.Seen("log", "Pod/"+p.Name, passed)
	default:
		s.fail(fmt.Sprintf("the log does not say %s%s%s", passed, because(p.Status.Reason, p.Status.Message), tail(text)), "gpuop verify")
	}
	return s.Rows(), true, nil
}

func (s *Smoke) fail(reason, next string) {
	s.row.State, s.row.Reason, s.row.Fix = report.Failed, reason, next
	s.row.Evidence = report.Seen("answer", "Pod/"+s.pod.Name, "%s", reason)
}

// Rows is the row as it was last seen.
func (s *Smoke) Rows() []report.Row { return []report.Row{s.row} }

// Stop makes of a test that still waits one that has failed, because of what ended the waiting.
func (s *Smoke) Stop(why string) []report.Row {
	if s.row.State == report.Waiting || s.row.Reason == "" {
		// the pod is deleted, its events stay for an hour
		s.fail(why+strings.TrimSuffix("; the last that was seen: "+s.row.Reason, "; the last that was seen: "),
			fmt.Sprintf("kubectl get events -n %s | grep %s", s.plan.Namespace, s.pod.Name))
	}
	return s.Rows()
}

// tail is the end of a log, as the end of a sentence.
func tail(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return "; the log is empty"
	}
	const most = 300
	if runes := []rune(text); len(runes) > most {
		text = "…" + string(runes[len(runes)-most:])
	}
	return "; the log ends: " + strings.Join(strings.Fields(text), " ")
}

// Clean deletes the pod if it was created, and returns a row where it could not be deleted.
// The context should not be the one that may have ended the test.
func (s *Smoke) Clean(ctx context.Context) []report.Row {
	if !s.begun {
		return nil
	}
	err := s.pods.DeletePod(ctx, s.pod.Namespace, s.pod.Name)
	if err != nil {
		err = s.pods.DeletePod(ctx, s.pod.Namespace, s.pod.Name)
	}
	if err == nil {
		return nil
	}
	v := report.Row{
		ID: "smoke-cleanup", State: report.Failed, Subject: "Pod/" + s.pod.Namespace + "/" + s.pod.Name, Source: "gpuop",
		Reason:   "the pod could not be deleted: " + err.Error(),
		Fix:      fmt.Sprintf("kubectl delete pod -n %s %s", s.pod.Namespace, s.pod.Name),
		Evidence: report.Seen("answer", "Pod/"+s.pod.Name, "%v", err),
	}
	return []report.Row{v}
}
