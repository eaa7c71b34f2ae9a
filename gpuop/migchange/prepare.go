package migchange

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/verdict"
)

// ErrNode is wrapped where the cluster has no node of the name.
var ErrNode = errors.New("no such node")

// Kinds are the lists that Prepare reads.
func Kinds() []cluster.Kind {
	return []cluster.Kind{cluster.Nodes, cluster.Pods, cluster.DaemonSets, cluster.ConfigMaps, cluster.ClusterPolicies}
}

// A Plan is a change that has not begun.
type Plan struct {
	// Rows are the blockers (Failed), what could not be judged, and what is predicted.
	Rows []verdict.Verdict
}

// Blocked reports whether something stands in the way.
func (p *Plan) Blocked() bool {
	return slices.ContainsFunc(p.Rows, func(v verdict.Verdict) bool { return v.State == verdict.Failed })
}

const (
	sourceManager  = "mig-parted pkg/mig/reconfigure/reconfigure.go"
	sourceStuck    = "https://github.com/NVIDIA/mig-parted/issues/485"
	sourceEviction = "mig-parted pkg/mig/reconfigure/reconfigure.go: waitForPodsWithNodeSelector"
	sourceLabel    = "mig-parted cmd/nvidia-mig-manager/main.go: the label is watched for a change of its value"
	sourceConfig   = "mig-parted cmd/nvidia-mig-manager/main.go: setupMigConfig"
	sourceBusy     = "NVIDIA Multi-Instance GPU User Guide: instances that are in use cannot be destroyed"
)

type planner struct {
	*cluster.State
	node   *corev1.Node
	config string
	policy map[string]any
	plan   Plan
}

// Prepare judges a change of the node's MIG config before it begins. The error wraps ErrNode.
func Prepare(s *cluster.State, name, config string) (*Plan, error) {
	n := nodeIn(s, name)
	if n == nil {
		if m := s.Lacks(cluster.Nodes); m != nil {
			return nil, fmt.Errorf("%w: %s: nodes were not read: %s", ErrNode, name, m.Detail)
		}
		var names []string
		for i := range s.Nodes {
			names = append(names, s.Nodes[i].Name)
		}
		hint := ""
		if near := finding.Nearest(name, names); near != "" {
			hint = ", did you mean " + near + "?"
		}
		return nil, fmt.Errorf("%w: %q among %d nodes%s", ErrNode, name, len(names), hint)
	}
	p := &planner{State: s, node: n, config: config, policy: policyOf(s)}
	p.unread()
	p.manager()
	p.state()
	p.partition()
	p.holders()
	p.room()
	for i := range p.plan.Rows {
		p.plan.Rows[i].Node = name
	}
	return &p.plan, nil
}

// policyOf is the spec of the ClusterPolicy that the operator acts on.
func policyOf(s *cluster.State) map[string]any {
	if all := s.Policies(); len(all) > 0 {
		spec, _, _ := unstructured.NestedMap(all[0].Object, "spec")
		return spec
	}
	return nil
}

func (p *planner) add(state verdict.State, id, subject, reason, next, source string) {
	p.plan.Rows = append(p.plan.Rows, verdict.Verdict{ID: id, State: state, Subject: subject, Reason: reason, Next: next, Source: source})
}

// unread are the rows of what was not read, and what is not judged for that.
func (p *planner) unread() {
	for kind, lost := range map[cluster.Kind]string{
		cluster.Pods: "which pods hold its GPUs", cluster.ConfigMaps: "whether the config is there", cluster.ClusterPolicies: "which ConfigMap and strategy are in force",
	} {
		m := p.Lacks(kind)
		if m == nil || m.Why == cluster.Partial {
			continue
		}
		next := ""
		if m.Why == cluster.Forbidden {
			next = fmt.Sprintf("kubectl auth can-i %s %s", m.Verb, kind)
		}
		p.add(verdict.Unknown, "mig-unread", string(kind), fmt.Sprintf("not judged: %s: %s", lost, strings.TrimSuffix(m.Detail, ".")), next, "")
	}
	slices.SortFunc(p.plan.Rows, func(a, b verdict.Verdict) int { return strings.Compare(a.Subject, b.Subject) })
}

func (p *planner) read(k cluster.Kind) bool {
	m := p.Lacks(k)
	return m == nil || m.Why == cluster.Partial
}

// manager judges that something will act on the label.
func (p *planner) manager() {
	labels := p.node.Labels
	if labels["nvidia.com/mig.capable"] == "false" {
		p.add(verdict.Failed, "mig-capable", "nvidia.com/mig.capable", "the node's GPUs have no MIG", "kubectl get nodes -l nvidia.com/mig.capable=true", sourceLabel)
		return
	}
	if value := labels[deploy+"mig-manager"]; value != "true" {
		p.add(verdict.Failed, "mig-manager", deploy+"mig-manager", fmt.Sprintf("the label is %q, want true: no MIG manager runs on the node, and nothing reacts to %s", value, ConfigLabel),
			fmt.Sprintf("kubectl get clusterpolicy -o jsonpath='{.items[*].spec.migManager.enabled}'; kubectl get node %s --show-labels", p.node.Name), sourceLabel)
		return
	}
	if !p.read(cluster.Pods) {
		return
	}
	for i := range p.Pods {
		if q := &p.Pods[i]; q.Spec.NodeName == p.node.Name && q.Namespace == p.Namespace && q.Labels["app"] == "nvidia-mig-manager" {
			if ready(q) {
				p.add(verdict.OK, "mig-manager", "Pod/"+q.Name, "the MIG manager is ready", "", sourceLabel)
				return
			}
			p.add(verdict.Failed, "mig-manager", "Pod/"+q.Name, "the MIG manager is not ready, and nothing reacts to the label until it is",
				fmt.Sprintf("kubectl describe pod -n %s %s", q.Namespace, q.Name), sourceLabel)
			return
		}
	}
	p.add(verdict.Failed, "mig-manager", "nvidia-mig-manager", "the node has no pod of the MIG manager, and nothing reacts to the label",
		fmt.Sprintf("kubectl describe daemonset -n %s nvidia-mig-manager", p.Namespace), sourceLabel)
}

// state judges what is under way on the node.
func (p *planner) state() {
	labels := p.node.Labels
	config, state := labels[ConfigLabel], labels[stateLabel]
	log := fmt.Sprintf("kubectl logs -n %s -l app=nvidia-mig-manager -c nvidia-mig-manager --tail=100", p.Namespace)
	switch state {
	case "pending", "rebooting":
		p.add(verdict.Failed, "mig-under-way", stateLabel, fmt.Sprintf("the config %q is %s: a change is under way, or stands still for good; a second one would mix with it", config, state), "gpuop verify --node "+p.node.Name, sourceStuck)
	case "failed":
		p.add(verdict.Warning, "mig-failed-before", stateLabel, fmt.Sprintf("the config %q has failed before: what was in its way may be there still", config), log, sourceManager)
	}
	if config == p.config {
		next := fmt.Sprintf("kubectl label node %s %s-", p.node.Name, ConfigLabel)
		if state == "success" {
			p.add(verdict.Note, "mig-same", ConfigLabel, fmt.Sprintf("the label is %q already, and the MIG manager acts on a change of it alone: nothing will happen", config), "", sourceLabel)
		} else {
			p.add(verdict.Failed, "mig-same", ConfigLabel, fmt.Sprintf("the label is %q already, and the MIG manager acts on a change of it alone: take it away first", config), next, sourceLabel)
		}
	}
	if upgrade := labels["nvidia.com/gpu-driver-upgrade-state"]; upgrade != "" && upgrade != "upgrade-done" && p.driverPod() {
		p.add(verdict.Failed, "mig-driver-upgrade", "nvidia.com/gpu-driver-upgrade-state", fmt.Sprintf("the driver upgrade is in the state %s: it takes the same operands away", upgrade),
			"kubectl get nodes -L nvidia.com/gpu-driver-upgrade-state", "gpu-operator: k8s-operator-libs pkg/upgrade")
	}
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		if value := labels[label]; strings.HasPrefix(label, deploy) && node.Paused(value) && state != "pending" && state != "rebooting" {
			p.add(verdict.Failed, "mig-paused", label, fmt.Sprintf("the label is %s, and no MIG change is under way: the MIG manager would start the operand again only if it were", value),
				fmt.Sprintf("kubectl label node %s %s=true --overwrite", p.node.Name, label), sourceManager)
		}
	}
}

// driverPod reports whether the node is to run a driver pod of the operator's: without one an upgrade state is
// left over from a time when it was.
func (p *planner) driverPod() bool {
	if value := p.node.Labels[deploy+"driver"]; value == "pre-installed" || value == "false" {
		return false
	}
	enabled, found, _ := unstructured.NestedBool(p.policy, "driver", "enabled")
	own, _, _ := unstructured.NestedBool(p.policy, "driver", "useNvidiaDriverCRD")
	return !found || enabled || own
}

func (p *planner) text(path ...string) string {
	s, _, _ := unstructured.NestedString(p.policy, path...)
	return s
}

// A file is the mig-parted file that the manager reads, with where it is.
type file struct {
	name   string
	config *mig.Config
}

// configFile finds the ConfigMap that the manager of the node reads: the one that the ClusterPolicy names, or
// what the manager has made of the node's own GPUs, or the operator's default.
func (p *planner) configFile() (*file, bool) {
	custom := p.text("migManager", "config", "name")
	names := mig.ConfigMaps(p.node.Name, custom)
	for _, name := range names {
		m := p.ConfigMap(name)
		if m == nil {
			continue
		}
		subject := "ConfigMap/" + name
		text, found := m.Data[mig.ConfigKey]
		if !found {
			p.add(verdict.Failed, "mig-config", subject, fmt.Sprintf("it has no key config.yaml, but %s: the MIG manager reads that key alone", keys(m.Data)),
				fmt.Sprintf("kubectl edit configmap -n %s %s", p.Namespace, name), sourceConfig)
			return nil, false
		}
		c, findings := mig.ParseConfig([]byte(text))
		for _, f := range findings {
			state := verdict.Warning
			if f.Severity == finding.Error {
				state = verdict.Failed
			}
			// what does not fit is judged below, against this node's GPUs, and in other configs it
			// does no harm; what cannot be read at all keeps the manager from reading the file
			if f.Severity == finding.Info || f.ID == "mig-does-not-fit" || f.ID == "mig-coverage" || c != nil && f.Severity != finding.Error {
				continue
			}
			p.add(state, f.ID, fmt.Sprintf("%s config.yaml:%d", subject, f.Line), f.Reason, f.Fix, f.Source)
		}
		if c == nil {
			return nil, false
		}
		return &file{subject, c}, true
	}
	switch {
	case custom != "":
		p.add(verdict.Failed, "mig-config", "ConfigMap/"+custom, fmt.Sprintf("the ClusterPolicy names it in migManager.config.name, and the namespace %s has no such ConfigMap: the MIG manager does not start", p.Namespace),
			fmt.Sprintf("kubectl get configmaps -n %s", p.Namespace), sourceConfig)
		return nil, false
	default:
		p.add(verdict.Warning, "mig-config", "ConfigMap/"+names[0], "the MIG manager has not written the configs of this node's GPUs, so the name is judged by what the operator's defaults mean", "kubectl logs -n "+p.Namespace+" -l app=nvidia-mig-manager", sourceConfig)
		return nil, true
	}
}

func keys(data map[string]string) string {
	if len(data) == 0 {
		return "none at all"
	}
	return strings.Join(slices.Sorted(maps.Keys(data)), ", ")
}

// partition judges the config against the node's GPUs, and predicts what the node will show.
func (p *planner) partition() {
	var f *file
	if p.read(cluster.ConfigMaps) {
		found, goOn := p.configFile()
		if !goOn {
			return
		}
		f = found
	}
	if f != nil {
		if _, found := f.config.Config(p.config); !found {
			var names []string
			for _, n := range f.config.Named {
				names = append(names, n.Name)
			}
			hint := "it has " + strings.Join(names, ", ")
			if near := finding.Nearest(p.config, names); near != "" {
				hint = "did you mean " + near + "?"
			}
			p.add(verdict.Failed, "mig-config", f.name, fmt.Sprintf("it has no config %q: the MIG manager would say failed", p.config), hint, sourceConfig)
			return
		}
	}
	gpus, err := p.gpus(f)
	if err != nil {
		p.add(verdict.Unknown, "mig-predicted", mig.WholeGPU+".product", "what the node will show is not predicted: "+err.Error(), "kubectl get node "+p.node.Name+" --show-labels", "k8s-device-plugin internal/lm")
		return
	}
	named, ok := p.named(f, gpus)
	if !ok {
		return
	}
	after, findings := named.Apply(gpus)
	for _, g := range findings {
		state := verdict.Warning
		if g.Severity == finding.Error {
			state = verdict.Failed
		}
		p.add(state, g.ID, ConfigLabel+"="+p.config, g.Reason, g.Fix, g.Source)
	}
	if !slices.ContainsFunc(findings, func(g finding.Finding) bool { return g.ID == "mig-does-not-fit" }) {
		p.predict(gpus, after)
	}
}

// named is the config that is requested.
func (p *planner) named(f *file, gpus []mig.GPU) (mig.Named, bool) {
	if f != nil {
		return f.config.Config(p.config)
	}
	if len(gpus) == 0 || gpus[0].Board == nil {
		p.add(verdict.Unknown, "mig-predicted", mig.WholeGPU+".product", "what the node will show is not predicted: the board is not known", "gpuop mig profiles", "")
		return mig.Named{}, false
	}
	entry, err := mig.Default(*gpus[0].Board, p.config)
	if err != nil {
		p.add(verdict.Failed, "mig-config", ConfigLabel, err.Error(), "", sourceConfig)
		return mig.Named{}, false
	}
	return mig.Named{Name: p.config, Entries: []mig.Entry{entry}}, true
}

// gpus are the node's GPUs. Under the strategy single the labels count MIG devices, not GPUs: the config
// in force says how many of them are one GPU.
func (p *planner) gpus(f *file) ([]mig.GPU, error) {
	of := cluster.JudgedNode(p.node)
	gpus, err := of.GPUs()
	if err != nil || len(gpus) != 1 || !gpus[0].Enabled || !strings.Contains(of.Labels[mig.WholeGPU+".product"], "-MIG-") {
		return gpus, err
	}
	total := devices(gpus[0])
	one := gpus[0]
	one.Enabled, one.Instances = false, nil
	var current mig.Named
	known := false
	if config := of.Labels[ConfigLabel]; f != nil {
		current, known = f.config.Config(config)
	} else if one.Board != nil {
		if entry, err := mig.Default(*one.Board, config); err == nil {
			current, known = mig.Named{Entries: []mig.Entry{entry}}, true
		}
	}
	each := 0
	if known {
		// the labels may still be those of the change before
		if after, findings := current.Apply([]mig.GPU{one}); len(findings) == 0 && slices.Equal(profiles(after[0]), profiles(gpus[0])) {
			each = devices(after[0])
		}
	}
	if each == 0 || total%each != 0 {
		return nil, fmt.Errorf("the labels count %d MIG devices, and the config in force (%q) does not say how many of them are one GPU", total, of.Labels[ConfigLabel])
	}
	full := gpus[0]
	full.Instances = mig.Request{}
	for name, n := range gpus[0].Instances {
		full.Instances[name] = n * each / total
	}
	return slices.Repeat([]mig.GPU{full}, total/each), nil
}

func profiles(g mig.GPU) []string { return slices.Sorted(maps.Keys(g.Instances)) }

func devices(g mig.GPU) int {
	n := 0
	for _, count := range g.Instances {
		n += count
	}
	return n
}

// predict says what the node will show, and makes it the target.
func (p *planner) predict(before, after []mig.GPU) {
	strategy := p.text("mig", "strategy")
	if strategy == "" {
		strategy = p.node.Labels["nvidia.com/mig.strategy"]
	}
	if strategy == "" {
		strategy = mig.StrategySingle
	}
	config, starts := p.sharing()
	if !starts {
		return
	}
	prediction := sharing.Predict(after, strategy, config)
	for _, f := range prediction.Findings {
		state := verdict.Warning
		switch f.Severity {
		case finding.Error:
			state = verdict.Failed
		case finding.Info:
			state = verdict.Note
		}
		p.add(state, f.ID, f.Subject, f.Reason, f.Fix, f.Source)
	}
	mode := ""
	if !slices.EqualFunc(before, after, func(a, b mig.GPU) bool { return a.Enabled == b.Enabled }) {
		mode = "; the MIG mode changes, for which no program at all may use the GPUs"
		if p.reboots() {
			p.add(verdict.Warning, "mig-reboot", "WITH_REBOOT", "the MIG manager restarts the node where it cannot change the MIG mode: every pod on it ends", "kubectl drain "+p.node.Name+" --ignore-daemonsets", sourceManager)
		}
	}
	have := resources(p.node.Status.Allocatable)
	p.add(verdict.Note, "mig-predicted", "allocatable", fmt.Sprintf("%s, now %s, under mig.strategy=%s%s", list(prediction.Resources), list(have), strategy, mode), "", "k8s-device-plugin internal/rm, internal/lm")
	var labels []string
	for _, name := range []string{mig.WholeGPU + ".product", mig.WholeGPU + ".count", mig.WholeGPU + ".replicas"} {
		if now, found := p.node.Labels[name]; found && now != prediction.Labels[name] {
			labels = append(labels, fmt.Sprintf("%s=%s, now %s", name, prediction.Labels[name], now))
		}
	}
	if len(labels) > 0 {
		p.add(verdict.Note, "mig-predicted", "labels", strings.Join(labels, "; "), "", "k8s-device-plugin internal/lm")
	}
}

func (p *planner) reboots() bool {
	env, _, _ := unstructured.NestedSlice(p.policy, "migManager", "env")
	return slices.ContainsFunc(env, func(e any) bool {
		m, _ := e.(map[string]any)
		return m["name"] == "WITH_REBOOT" && m["value"] == "true"
	})
}

// sharing is the device plugin's config of the node; starts is false where the plugin will not start,
// or where it is not known.
func (p *planner) sharing() (config *sharing.Config, starts bool) {
	name := p.text("devicePlugin", "config", "name")
	if name == "" {
		return nil, true
	}
	m := p.ConfigMap(name)
	if m == nil {
		if p.read(cluster.ConfigMaps) {
			p.add(verdict.Failed, "mig-sharing", "ConfigMap/"+name, fmt.Sprintf("the ClusterPolicy names it in devicePlugin.config.name, and the namespace %s has no such ConfigMap: the device plugin does not start, and no device will be offered", p.Namespace), "kubectl get configmaps -n "+p.Namespace, "gpu-operator controllers/object_controls.go")
		}
		return nil, false
	}
	data := m.Data
	chosen, ok, findings := sharing.Choose(sharing.Operator, slices.Sorted(maps.Keys(data)), p.node.Labels[sharing.ConfigLabel], p.text("devicePlugin", "config", "default"))
	if !ok {
		for _, f := range findings {
			p.add(verdict.Failed, "mig-sharing", f.Subject, f.Reason, f.Fix, f.Source)
		}
		return nil, false
	}
	if chosen == "" {
		return nil, true
	}
	config, findings = sharing.Parse([]byte(data[chosen]))
	if config == nil || config.Refused {
		for _, f := range findings {
			if f.Severity == finding.Error {
				p.add(verdict.Failed, "mig-sharing", "ConfigMap/"+name+" "+chosen, f.Reason, f.Fix, f.Source)
			}
		}
		return nil, false
	}
	return config, true
}

// holders are the pods that use the node's GPUs and that nothing takes away.
func (p *planner) holders() {
	if !p.read(cluster.Pods) {
		return
	}
	free := true
	for i := range p.Pods {
		q := &p.Pods[i]
		if q.Spec.NodeName != p.node.Name || q.Status.Phase == corev1.PodSucceeded || q.Status.Phase == corev1.PodFailed || p.operand(q) {
			continue
		}
		subject := fmt.Sprintf("Pod/%s/%s", q.Namespace, q.Name)
		switch how := p.uses(q); {
		case cluster.AsksForGPU(&q.Spec):
			free = false
			p.add(verdict.Failed, "mig-pod", subject, fmt.Sprintf("it holds %s: the MIG manager does not take it away, and an instance that is in use cannot be destroyed", held(q)), p.drain(q), sourceBusy)
		case how == "":
		case evictable(q) && p.node.Labels[client] != "" && p.evictsClients():
			p.add(verdict.OK, "mig-client", subject, fmt.Sprintf("it sees the GPUs (%s), and the MIG manager takes it away, as its DaemonSet selects %s", how, client), "", sourceEviction)
		default:
			free = false
			why := "the MIG manager takes away pods of DaemonSets alone"
			if owner := metav1.GetControllerOf(q); owner != nil && owner.Kind == "DaemonSet" {
				why = "its DaemonSet does not select " + client
				if !p.evictsClients() {
					why = fmt.Sprintf("MIG manager %s takes no pods of others away, as %s does", p.managerVersion(), firstEvicting)
				}
			}
			p.add(verdict.Failed, "mig-client", subject, fmt.Sprintf("it sees the GPUs without having requested one (%s), and nothing takes it away: %s", how, why), p.evict(q), sourceEviction)
		}
	}
	if free {
		p.add(verdict.OK, "mig-pod", "pods", "no pod uses the node's GPUs", "", sourceBusy)
	}
}

// operand reports whether a pod is one of the operator's own, which the MIG manager steers or which does
// not use the GPUs.
func (p *planner) operand(q *corev1.Pod) bool {
	if q.Namespace != p.Namespace {
		return false
	}
	for label := range q.Spec.NodeSelector {
		if strings.HasPrefix(label, deploy) && label != client {
			return true
		}
	}
	return strings.HasPrefix(q.Labels["app"], "nvidia-") && strings.HasSuffix(q.Labels["app"], "-validator")
}

// uses says how a pod sees GPUs that it has not requested; "" where it does not.
func (p *planner) uses(q *corev1.Pod) string {
	for _, c := range slices.Concat(q.Spec.InitContainers, q.Spec.Containers) {
		for _, e := range c.Env {
			if e.Name == "NVIDIA_VISIBLE_DEVICES" && e.ValueFrom == nil && e.Value != "" && e.Value != "none" && e.Value != "void" {
				return "NVIDIA_VISIBLE_DEVICES=" + e.Value
			}
		}
	}
	for _, v := range q.Spec.Volumes {
		if v.HostPath != nil && strings.HasPrefix(v.HostPath.Path, "/dev/nvidia") {
			return "it mounts " + v.HostPath.Path
		}
	}
	return ""
}

// held names what a pod has requested.
func held(q *corev1.Pod) string {
	all := map[string]int{}
	for _, c := range q.Spec.Containers {
		for name, n := range c.Resources.Limits {
			if isDevice(string(name)) {
				all[string(name)] += int(n.Value())
			}
		}
	}
	if len(all) == 0 {
		return "a ResourceClaim, or a device of nvidia.com"
	}
	return list(all)
}

// drain is how the pod is taken away.
func (p *planner) drain(q *corev1.Pod) string {
	owner := metav1.GetControllerOf(q)
	if owner == nil || owner.Kind != "DaemonSet" {
		return fmt.Sprintf("kubectl cordon %s && kubectl delete pod -n %s %s", p.node.Name, q.Namespace, q.Name)
	}
	return p.evict(q)
}

// firstEvicting is the first MIG manager that takes away the pods of others: pkg/mig/reconfigure of mig-parted.
const firstEvicting = "v0.15.0"

// managerVersion is the MIG manager's, as the ClusterPolicy has it; empty where it is a digest or left to
// the operator.
func (p *planner) managerVersion() string {
	version, _, _ := unstructured.NestedString(p.policy, "migManager", "version")
	return version
}

// evictsClients reports whether the MIG manager takes away pods of others that select the client's label. Of an
// unknown version it is taken for one that does.
func (p *planner) evictsClients() bool {
	first, _ := chart.ParseVersion(firstEvicting)
	v, err := chart.ParseVersion(p.managerVersion())
	return err != nil || !v.Before(first)
}

// evict is how a pod is made one that the MIG manager takes away.
func (p *planner) evict(q *corev1.Pod) string {
	owner := metav1.GetControllerOf(q)
	if owner == nil || owner.Kind != "DaemonSet" {
		return fmt.Sprintf("kubectl delete pod -n %s %s", q.Namespace, q.Name)
	}
	if !p.evictsClients() {
		return fmt.Sprintf("kubectl delete daemonset -n %s %s  # and apply it again after the change", q.Namespace, owner.Name)
	}
	return fmt.Sprintf(`kubectl label node %s %s=true && kubectl patch daemonset -n %s %s -p '{"spec":{"template":{"spec":{"nodeSelector":{"%s":"true"}}}}}'`, p.node.Name, client, q.Namespace, owner.Name, client)
}

// room judges whether new pods may come between.
func (p *planner) room() {
	if p.node.Spec.Unschedulable {
		p.add(verdict.OK, "mig-cordon", "Node/"+p.node.Name, "the node is cordoned: no new pod comes between", "", "")
		return
	}
	p.add(verdict.Note, "mig-cordon", "Node/"+p.node.Name, "the node is not cordoned: a new pod may take a GPU before the change begins", "kubectl cordon "+p.node.Name, "")
}
