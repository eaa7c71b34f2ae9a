package judge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/verdict"
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
	// Namespace is where the pods are created, Image what they run; the image needs sh for the pods
	// that share a GPU.
	Namespace, Image string
	// Resource is what the sample's pod requests one of, Node the node that it is bound to; empty
	// where the scheduler chooses.
	Resource, Node string
	// Shared is the node whose GPUs are shared, empty where there is none; SharedResource what the
	// pods there request, and Copies how many are created: one more than the node has devices, so
	// that two are on one device, however the device plugin distributes them.
	Shared, SharedResource string
	Copies                 int

	tolerations map[string][]corev1.Toleration // by node
}

// ErrNoGPU is returned by PlanSmoke where no node offers a GPU.
var ErrNoGPU = errors.New("no node offers a GPU")

// maxCopies bounds the pods that a smoke test creates on a node with shared GPUs.
const maxCopies = 33

// PlanSmoke says what a smoke test of the cluster would create: on the node that is named, or where the
// scheduler likes. The error wraps ErrNoGPU.
func PlanSmoke(s *cluster.State, node, namespace, image string) (*SmokePlan, error) {
	p := &SmokePlan{Namespace: namespace, Image: image, Node: node, tolerations: map[string][]corev1.Toleration{}}
	offers := map[string]int{}
	named := false
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if node != "" && n.Name != node {
			continue
		}
		named = true
		for name, count := range resourcesOf(n) {
			offers[name] += count
		}
		for _, t := range n.Spec.Taints {
			p.tolerations[n.Name] = append(p.tolerations[n.Name], corev1.Toleration{Key: t.Key, Operator: corev1.TolerationOpEqual, Value: t.Value, Effect: t.Effect})
		}
		devices, resource := sharedDevices(n)
		if devices > 0 && devices < maxCopies && !n.Spec.Unschedulable && (p.Shared == "" || devices+1 < p.Copies) {
			p.Shared, p.SharedResource, p.Copies = n.Name, resource, devices+1
		}
	}
	if !named {
		return nil, fmt.Errorf("%w: the cluster has no node %q", cluster.ErrInput, node)
	}
	// whole GPUs first, then what sharing and MIG make of them
	names := slices.SortedFunc(maps.Keys(offers), func(a, b string) int {
		if a == mig.WholeGPU || b == mig.WholeGPU {
			return map[bool]int{true: -1, false: 1}[a == mig.WholeGPU]
		}
		return strings.Compare(a, b)
	})
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: nothing named nvidia.com/gpu, nvidia.com/gpu.shared or nvidia.com/mig-… is allocatable", ErrNoGPU)
	}
	p.Resource = names[0]
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

// sharedDevices is the node's shared resource with the fewest devices behind it; 0 without one.
func sharedDevices(n *corev1.Node) (devices int, shared string) {
	for name, count := range resourcesOf(n) {
		replicas, err := strconv.Atoi(n.Labels[strings.TrimSuffix(name, ".shared")+".replicas"])
		if err != nil || replicas < 2 || count < replicas {
			continue
		}
		if d := count / replicas; devices == 0 || d < devices || d == devices && name < shared {
			devices, shared = d, name
		}
	}
	return devices, shared
}

// Describe says, in a sentence for each, what is created.
func (p *SmokePlan) Describe() []string {
	on := "a node that the scheduler chooses"
	if p.Node != "" {
		on = "node " + p.Node
	}
	lines := []string{fmt.Sprintf("1 pod with 1 %s on %s, in namespace %s, image %s", p.Resource, on, p.Namespace, p.Image)}
	if p.Shared != "" {
		lines = append(lines, fmt.Sprintf("%d pods with 1 %s each on node %s, which has %d shared devices: two of them must be on one", p.Copies, p.SharedResource, p.Shared, p.Copies-1))
	}
	return append(lines, "all of them are deleted at the end")
}

// pod is a pod of the plan. It ends by itself after the deadline, should gpuop be killed.
func (p *SmokePlan) pod(name, node, resourceName string, deadline time.Duration, command ...string) *corev1.Pod {
	seconds := int64(max(1, deadline/time.Second))
	never := false
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: p.Namespace, Labels: map[string]string{"app.kubernetes.io/managed-by": "gpuop", "app.kubernetes.io/name": "gpuop-smoke"}},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, ActiveDeadlineSeconds: &seconds, AutomountServiceAccountToken: &never, EnableServiceLinks: &never,
			Tolerations: []corev1.Toleration{{Key: mig.WholeGPU, Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: "cuda", Image: p.Image, Command: command,
				Resources:       corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceName(resourceName): resource.MustParse("1")}},
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &never, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}},
		},
	}
	if node == "" {
		return pod
	}
	// bound by affinity, not by nodeName: the kubelet refuses a pod for which there is no device
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, p.tolerations[node]...)
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}},
	}}}
	return pod
}

// A Smoke is one run of a plan: Look until it is done, then Clean whatever Look returned. It is not
// safe for concurrent use.
type Smoke struct {
	plan     *SmokePlan
	pods     Pods
	name     string
	deadline time.Duration
	// sample and copies are the pods to create; nil once their test is over.
	sample *corev1.Pod
	copies []*corev1.Pod
	// made are those that were, or may have been, created and not deleted.
	made []*corev1.Pod
	// uuids are what each copy sees, by its name.
	uuids map[string]string
	begun bool
	rows  [2]verdict.Verdict
}

// NewSmoke returns a run that has created nothing. The name keeps its pods apart from those of
// another run; deadline is after how long its pods end by themselves.
func NewSmoke(plan *SmokePlan, pods Pods, name string, deadline time.Duration) *Smoke {
	s := &Smoke{plan: plan, pods: pods, name: name, deadline: deadline, uuids: map[string]string{}}
	s.sample = plan.pod(name+"-vectoradd", plan.Node, plan.Resource, deadline)
	s.rows[0] = verdict.Verdict{ID: "smoke-vectoradd", Node: plan.Node, Subject: "vectorAdd", Source: "GPU Operator documentation, verification"}
	for i := range plan.Copies {
		s.copies = append(s.copies, plan.pod(fmt.Sprintf("%s-shared-%d", name, i), plan.Shared, plan.SharedResource, deadline,
			"sh", "-c", fmt.Sprintf("nvidia-smi -L && exec sleep %d", max(1, deadline/time.Second))))
	}
	s.rows[1] = verdict.Verdict{ID: "smoke-shared", Node: plan.Shared, Subject: "two pods on one shared GPU", Source: "k8s-device-plugin README, shared access to GPUs"}
	return s
}

// Look creates the pods at its first call, then looks how they are doing. It returns a row for each
// test, and done when none waits. An error wraps cluster.ErrUnreachable, or is the context's; what a
// server refuses is a row.
func (s *Smoke) Look(ctx context.Context) (rows []verdict.Verdict, done bool, err error) {
	if !s.begun {
		s.begun = true
		for _, p := range append([]*corev1.Pod{s.sample}, s.copies...) {
			s.made = append(s.made, p) // a create that is cut off may have made it
			if _, err := s.pods.CreatePod(ctx, p); err != nil {
				if ctx.Err() != nil || errors.Is(err, cluster.ErrUnreachable) {
					return s.Rows(), false, err
				}
				row := &s.rows[0]
				if p != s.sample {
					row = &s.rows[1]
					s.copies = nil
				} else {
					s.sample, s.copies = nil, nil
					s.rows[1] = refused(s.rows[1], errors.New("the pod before it was refused"))
				}
				*row = refused(*row, err)
				break
			}
		}
	}
	if s.sample != nil {
		if err := s.lookAtSample(ctx); err != nil {
			return s.Rows(), false, err
		}
	}
	if s.copies != nil {
		if err := s.lookAtCopies(ctx); err != nil {
			return s.Rows(), false, err
		}
	}
	return s.Rows(), s.sample == nil && s.copies == nil, nil
}

func refused(v verdict.Verdict, err error) verdict.Verdict {
	v.State, v.Reason = verdict.Failed, "the cluster does not take the pod: "+err.Error()
	v.Next = "gpuop verify --smoke --smoke-namespace NAMESPACE  # where pods may be created"
	return v
}

// Rows are the rows as they were last seen.
func (s *Smoke) Rows() []verdict.Verdict {
	if s.plan.Shared == "" {
		return s.rows[:1:1]
	}
	return s.rows[:]
}

// Stop makes of a test that still waits one that has failed, because of what ended the waiting.
func (s *Smoke) Stop(why string) []verdict.Verdict {
	for i := range s.rows {
		if v := &s.rows[i]; v.State == verdict.Waiting || v.Reason == "" {
			v.State, v.Reason = verdict.Failed, why+strings.TrimSuffix("; the last that was seen: "+v.Reason, "; the last that was seen: ")
			// the pods are deleted, their events stay for an hour
			v.Next = fmt.Sprintf("kubectl get events -n %s | grep %s", s.plan.Namespace, s.name)
		}
	}
	return s.Rows()
}

const passed = "Test PASSED"

func (s *Smoke) lookAtSample(ctx context.Context) error {
	row := &s.rows[0]
	p, err := s.pods.Pod(ctx, s.sample.Namespace, s.sample.Name)
	switch {
	case err != nil:
		return err
	case p == nil:
		row.State, row.Reason, row.Next = verdict.Failed, "the pod was deleted by another client", "gpuop verify --smoke"
		s.sample = nil
		return nil
	}
	if p.Spec.NodeName != "" {
		row.Node = p.Spec.NodeName
	}
	if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
		waits(row, p)
		return nil
	}
	text, err := s.pods.PodLog(ctx, p.Namespace, p.Name, "cuda")
	if err != nil && (ctx.Err() != nil || errors.Is(err, cluster.ErrUnreachable)) {
		return err
	}
	s.sample = nil
	if p.Status.Phase == corev1.PodSucceeded && strings.Contains(text, passed) {
		row.State, row.Next, row.Since = verdict.OK, "", time.Time{}
		row.Reason = fmt.Sprintf("the sample ran with 1 %s, and its log says %s", s.plan.Resource, passed)
		return nil
	}
	row.State, row.Next = verdict.Failed, "gpuop verify"
	row.Reason = fmt.Sprintf("the log does not say %s%s%s", passed, because(p.Status.Reason, p.Status.Message), tail(text))
	if err != nil {
		row.Reason = err.Error()
	}
	return nil
}

// waits says what a pod of the test waits for.
func waits(row *verdict.Verdict, p *corev1.Pod) {
	state := podStateOf(p)
	row.State, row.Reason, row.Since, row.Next, row.Evidence = verdict.Waiting, state.Reason, state.Since, state.Next, state.Evidence
	if state.State == verdict.OK {
		row.Reason = "the pod runs"
	}
}

// lookAtCopies looks until two copies that run see the same device.
func (s *Smoke) lookAtCopies(ctx context.Context) error {
	row := &s.rows[1]
	seen := map[string]string{} // device → copy that runs and sees it
	known := 0
	for _, c := range s.copies {
		p, err := s.pods.Pod(ctx, c.Namespace, c.Name)
		switch {
		case err != nil:
			return err
		case p == nil:
			row.State, row.Reason, row.Next = verdict.Failed, "the pod "+c.Name+" was deleted by another client", "gpuop verify --smoke"
			s.copies = nil
			return nil
		case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
			text, _ := s.pods.PodLog(ctx, c.Namespace, c.Name, "cuda")
			row.State, row.Next = verdict.Failed, "gpuop verify"
			row.Reason = fmt.Sprintf("the pod %s has ended%s%s", c.Name, because(p.Status.Reason, p.Status.Message), tail(text))
			s.copies = nil
			return nil
		case p.Status.Phase != corev1.PodRunning:
			waits(row, p)
			continue
		}
		if s.uuids[c.Name] == "" {
			text, err := s.pods.PodLog(ctx, c.Namespace, c.Name, "cuda")
			if err != nil && (ctx.Err() != nil || errors.Is(err, cluster.ErrUnreachable)) {
				return err
			}
			s.uuids[c.Name] = device(text)
		}
		uuid := s.uuids[c.Name]
		if uuid == "" {
			waits(row, p)
			continue
		}
		known++
		if other, shared := seen[uuid]; shared {
			row.State, row.Next, row.Since = verdict.OK, "", time.Time{}
			row.Reason = fmt.Sprintf("%s and %s run at the same time, and both see %s", other, c.Name, uuid)
			s.copies = nil
			return nil
		}
		seen[uuid] = c.Name
	}
	if known == len(s.copies) {
		row.State, row.Next = verdict.Failed, "gpuop verify"
		row.Reason = fmt.Sprintf("%d pods run on %s, which has %d shared devices, and no two see the same: nothing is shared", known, s.plan.Shared, s.plan.Copies-1)
		s.copies = nil
	} else if row.State != verdict.Waiting {
		row.State, row.Reason = verdict.Waiting, fmt.Sprintf("%d of %d pods run", known, len(s.copies))
	}
	return nil
}

var uuidIn = regexp.MustCompile(`\(UUID: ((?:GPU|MIG)-[0-9A-Za-z/-]+)\)`)

// device is the UUID in what nvidia-smi -L prints: the MIG device's where there is one.
func device(text string) string {
	uuid := ""
	for _, m := range uuidIn.FindAllStringSubmatch(text, -1) {
		if uuid == "" || strings.HasPrefix(m[1], "MIG-") {
			uuid = m[1]
		}
	}
	return uuid
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

// Clean deletes the pods that were created, and returns a row for each that could not be deleted.
// The context should not be the one that may have ended the test.
func (s *Smoke) Clean(ctx context.Context) []verdict.Verdict {
	var rows []verdict.Verdict
	for _, p := range s.made {
		err := s.pods.DeletePod(ctx, p.Namespace, p.Name)
		if err != nil {
			err = s.pods.DeletePod(ctx, p.Namespace, p.Name)
		}
		if err == nil {
			continue
		}
		rows = append(rows, verdict.Verdict{
			ID: "smoke-cleanup", State: verdict.Failed, Subject: "Pod/" + p.Name,
			Reason: fmt.Sprintf("the pod could not be deleted (%v); it ends by itself %s after its start", err, s.deadline),
			Next:   fmt.Sprintf("kubectl delete pod -n %s %s", p.Namespace, p.Name), Source: "gpuop",
		})
	}
	s.made = nil
	return rows
}
