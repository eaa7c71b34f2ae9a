package judge

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

// ErrNode is returned if the cluster has no node of the given name, or if its nodes could not be read.
var ErrNode = errors.New("node not found")

// planner checks a change of a node's MIG config.
type planner struct {
	*nodeJudge
	config string
}

// Prepare checks a change of the node's MIG config before it begins. The findings are the reasons against the change
// (Error), what is unknown, and the predicted resources. Errors wrap ErrNode.
func Prepare(s *cluster.State, o Options, name, config string) ([]check.Finding, error) {
	i := slices.IndexFunc(s.Nodes, func(n corev1.Node) bool { return n.Name == name })
	if i < 0 {
		if m := s.Lacks(cluster.Nodes); m != nil {
			return nil, fmt.Errorf("%w: %s: the nodes could not be read: %s", ErrNode, name, m.Detail)
		}
		return nil, fmt.Errorf("%w: %q among %d nodes%s", ErrNode, name, len(s.Nodes), Nearest(s, name))
	}
	j := newJudge(s, o, verify)
	p := &planner{nodeJudge: j.node(&s.Nodes[i]), config: config}
	for _, v := range Unread(s, []cluster.Kind{cluster.ClusterPolicies, cluster.ConfigMaps, cluster.Pods}) {
		if v.Severity == check.Unknown {
			p.add(v)
		}
	}
	p.manager()
	p.state()
	p.partition()
	p.holders()
	p.room()
	return j.findings, nil
}

// Nearest returns a suffix for an error message, such as ", did you mean gpu-1?", or "" if no node has a similar name.
func Nearest(s *cluster.State, name string) string {
	var names []string
	for i := range s.Nodes {
		names = append(names, s.Nodes[i].Name)
	}
	if near := check.Nearest(name, names); near != "" {
		return ", did you mean " + near + "?"
	}
	return ""
}

func (p *planner) report(state check.Severity, id *check.Check, subject, reason, next string) {
	v := p.own(check.Finding{Check: id, Severity: state, Subject: subject, Reason: reason, Fix: next})
	if name, found := strings.CutPrefix(subject, "ConfigMap/"); found {
		name, _, _ = strings.Cut(name, " ")
		v.Evidence = p.listed(cluster.ConfigMaps, "ConfigMap %s exists: %t", name, p.maps[name] != nil)
	} else if v.Evidence.Text == "" {
		v.Evidence = label(p.kube, labelProduct) // the prediction depends on the product label
	}
	p.judge.add(v)
}

// manager checks that the node's GPUs support MIG, and that a MIG manager is ready on the node. The MIG manager reacts
// to changes of the label.
func (p *planner) manager() {
	const key = deployPrefix + "mig-manager"
	if p.kube.Labels[labelCapable] == "false" {
		p.report(check.Error, migCapable, labelCapable, "the node's GPUs do not support MIG", "kubectl get nodes -l nvidia.com/mig.capable=true")
		return
	}
	if p.kube.Labels[key] != "true" {
		p.report(check.Error, migManager, key, fmt.Sprintf("the label is %s, expected true: no MIG manager runs on the "+
			"node, so changes of %s have no effect", shown(p.kube.Labels, key), LabelMIG),
			"kubectl get clusterpolicy -o jsonpath='{.items[*].spec.migManager.enabled}'")
		return
	}
	if p.lacks(cluster.Pods) {
		return
	}
	v := check.Finding{
		Check: migManager, Severity: check.Error, Subject: "nvidia-mig-manager",
		Reason:   "no MIG manager pod is ready on the node, so changes of " + LabelMIG + " have no effect",
		Fix:      fmt.Sprintf("kubectl describe daemonset -n %s nvidia-mig-manager", p.Namespace),
		Evidence: p.listed(cluster.Pods, "no ready pod with app=nvidia-mig-manager on %s", p.kube.Name),
	}
	for _, q := range p.operandPods {
		c := podCondition(q, corev1.PodReady)
		if q.Labels["app"] == "nvidia-mig-manager" && c != nil && c.Status == corev1.ConditionTrue {
			v.Severity, v.Subject, v.Reason, v.Fix = check.OK, "Pod/"+q.Name, "the MIG manager is ready", ""
			v.Evidence = podStateOf(q).Evidence
		}
	}
	p.add(v)
}

// state reports what prevents the change: a change in progress, a label that is the same already, a driver upgrade, or
// a paused operand.
func (p *planner) state() {
	labels := p.kube.Labels
	config, state := labels[LabelMIG], labels[labelMIGState]
	under := state == "pending" || state == "rebooting"
	switch already := fmt.Sprintf("the label is already %q, and the MIG manager reacts only to changes: ", config); {
	case under:
		p.report(check.Error, migUnderWay, labelMIGState, fmt.Sprintf("the config %q is %s: a change is in progress "+
			"or stuck; do not start another one", config, state), "gpuop verify --node "+p.kube.Name)
	case config != p.config:
	case state == "success":
		p.report(check.Note, migSame, LabelMIG, already+"nothing will happen", "")
	default:
		p.report(check.Error, migSame, LabelMIG, already+"remove it first", fmt.Sprintf("kubectl label node %s %s-", p.kube.Name, LabelMIG))
	}
	if p.upgrading() || labels[labelUpgrade] == "upgrade-required" && p.noDriverPod() == "" {
		p.report(check.Error, migUpgrade, labelUpgrade, fmt.Sprintf("the driver upgrade is not finished "+
			"(%s); it pauses the same operands as a MIG change", labels[labelUpgrade]), "kubectl get nodes -L "+labelUpgrade)
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if value := labels[key]; strings.HasPrefix(key, deployPrefix) && node.Paused(value) && !under {
			p.report(check.Error, migPaused, key, fmt.Sprintf("the label is %s, but no MIG change is in progress: the MIG "+
				"manager will not resume the operand", value),
				fmt.Sprintf("kubectl label node %s %s=true --overwrite", p.kube.Name, key))
		}
	}
}

// file checks the node's mig-parted file, and that it has the config. It returns false after an error that prevents a
// prediction.
func (p *planner) file() bool {
	f := p.migFile()
	if f == nil {
		custom := p.text("migManager.config.name")
		if custom == "" {
			p.report(check.Warning, migConfig, "ConfigMap/"+p.kube.Name+"-mig-config", "the MIG manager has not yet written "+
				"the configs of this node's GPUs; the check used the operator's defaults",
				"kubectl logs -n "+p.Namespace+" -l app=nvidia-mig-manager")
			return true
		}
		p.report(check.Error, migConfig, "ConfigMap/"+custom, fmt.Sprintf("not found in namespace %s, "+
			"although migManager.config.name refers to it: the MIG manager cannot start", p.Namespace),
			"kubectl get configmaps -n "+p.Namespace)
		return false
	}
	if f.text == "" {
		p.report(check.Error, migConfig, f.name, "it has no key "+mig.ConfigKey+", or the key is empty; the MIG manager reads only this key",
			"kubectl get -n "+p.Namespace+" "+strings.ToLower(f.name)+" -o yaml")
		return false
	}
	for _, each := range f.findings {
		// partition reports DoesNotFit and Coverage for the requested config
		if each.Severity != check.Error || each.Check == mig.DoesNotFit || each.Check == mig.Coverage {
			continue
		}
		v := withoutPlace(each)
		v.Subject = fmt.Sprintf("%s config.yaml:%d", f.name, each.Line)
		v.Evidence = check.Seen("data", f.name, "config.yaml, line %d", each.Line)
		p.add(v)
	}
	if f.config == nil {
		return false
	}
	if _, found := f.config.Config(p.config); found {
		return true
	}
	names := f.config.Names()
	hint := "the file has the configs " + cmp.Or(strings.Join(names, ", "), "(none)")
	if near := check.Nearest(p.config, names); near != "" {
		hint = "did you mean " + near + "?"
	}
	p.report(check.Error, migConfig, f.name, fmt.Sprintf("it has no config %q: the change would fail", p.config), hint)
	return false
}

// partition checks the config against the node's GPUs, and predicts the node's resources.
func (p *planner) partition() {
	if !p.lacks(cluster.ConfigMaps) && !p.file() {
		return
	}
	gpus, err := p.gpus()
	if err == nil && (len(gpus) == 0 || gpus[0].Board == nil && p.migFile() == nil) {
		err = errors.New("the GPU model is unknown")
	}
	if err != nil {
		p.report(check.Unknown, migPredicted, labelProduct, "cannot predict the node's resources: "+err.Error(),
			"kubectl get node "+p.kube.Name+" --show-labels")
		return
	}
	named, _, ok := p.migConfig(p.config, gpus[0].Board)
	if !ok {
		_, err := mig.Default(*gpus[0].Board, p.config)
		p.report(check.Error, migConfig, LabelMIG, err.Error(), "")
		return
	}
	after, findings := named.Apply(gpus)
	fits := true
	for _, f := range findings {
		fits = fits && f.Check != mig.DoesNotFit
		v := withoutPlace(f)
		v.Subject, v.Evidence = LabelMIG+"="+p.config, label(p.kube, labelProduct)
		p.add(v)
	}
	if fits {
		p.predict(gpus, after)
	}
}

// gpus returns the node's GPUs. If the strategy is "single" and the GPUs are in MIG mode, the labels count MIG devices
// instead. The active config then says how many devices a GPU has.
func (p *planner) gpus() ([]mig.GPU, error) {
	gpus, err := node.GPUs(p.kube)
	if err != nil || !strings.Contains(p.kube.Labels[labelProduct], "-MIG-") {
		return gpus, err
	}
	config := p.kube.Labels[LabelMIG]
	if current, _, known := p.migConfig(config, gpus[0].Board); known {
		if all, problem := divide(current, gpus, p.kube.Labels); problem == "" {
			return all, nil
		}
	}
	return nil, fmt.Errorf("the labels count %s MIG devices, but the active config %q does not say how many "+
		"each GPU has", p.kube.Labels[mig.WholeGPU+".count"], config)
}

// predict reports the predicted resources. If the sharing config is missing or rejected, it reports that instead.
func (p *planner) predict(before, after []mig.GPU) {
	_, config, starts, _ := p.chosen()
	if !starts {
		from := len(p.findings)
		p.configs()
		p.sharing()
		for i := range p.findings[from:] {
			p.findings[from+i].Node = p.kube.Name
		}
		return
	}
	strategy := cmp.Or(p.text("mig.strategy"), p.kube.Labels[mig.StrategyLabel], mig.StrategySingle)
	prediction := sharing.Predict(after, strategy, config)
	for _, f := range prediction.Findings {
		v := withoutPlace(f)
		v.Evidence = p.setting("mig.strategy")
		p.add(v)
	}
	mode := ""
	if !slices.EqualFunc(before, after, func(a, b mig.GPU) bool { return a.Enabled == b.Enabled }) {
		mode = "; the MIG mode changes: every program that uses the GPUs must stop"
	}
	now := map[string]int{}
	for name, q := range p.kube.Status.Allocatable {
		now[string(name)] = int(q.Value())
	}
	p.report(check.Note, migPredicted, "allocatable", fmt.Sprintf("%s after the change, %s now; mig.strategy=%s%s",
		amounts(prediction.Resources), amounts(now), strategy, mode), "")
}

// amounts formats the counts of GPUs and MIG devices, such as "7 nvidia.com/mig-1g.10gb". It returns "no device" if
// there are none.
func amounts(all map[string]int) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name] > 0 && isDevice(name) {
			words = append(words, fmt.Sprintf("%d %s", all[name], name))
		}
	}
	return cmp.Or(strings.Join(words, ", "), "no device")
}

// holders reports the pods that use the node's GPUs. Pods that nothing evicts are errors.
func (p *planner) holders() {
	if p.lacks(cluster.Pods) && p.Pods == nil {
		return
	}
	free := true
	for _, q := range p.pods[p.kube.Name] {
		if q.Status.Phase == corev1.PodSucceeded || q.Status.Phase == corev1.PodFailed || p.operates(q) {
			continue
		}
		owner := metav1.GetControllerOfNoCopy(q)
		daemon := owner != nil && owner.Kind == "DaemonSet"
		_, selects := q.Spec.NodeSelector[labelClient]
		how := usesGPU(&q.Spec)
		if strings.HasPrefix(how, "/dev") {
			how = "it mounts " + how
		}
		v := check.Finding{Check: migClient, Severity: check.Error, Subject: fmt.Sprintf("Pod/%s/%s", q.Namespace, q.Name)}
		v.Evidence = check.Seen("spec", v.Subject, "%s", how)
		switch {
		case cluster.AsksForGPU(&q.Spec):
			v.Check = migPod
			v.Reason = fmt.Sprintf("it holds %s: the MIG manager does not evict it, and cannot delete an instance that is in use", held(q))
			v.Evidence.Text = "limits: " + held(q)
			v.Fix = p.evict(q, owner)
			if !daemon {
				v.Fix = "kubectl cordon " + p.kube.Name + " && " + v.Fix
			}
		case how == "" || strings.HasPrefix(how, "/run"):
			continue
		case daemon && selects && p.kube.Labels[labelClient] != "" && p.evictsClients():
			v.Say(check.OK, "it uses the GPUs (%s); the MIG manager evicts it because its DaemonSet selects %s", how, labelClient)
		default:
			why := "the MIG manager evicts only pods of DaemonSets"
			if daemon && !p.evictsClients() {
				why = fmt.Sprintf("MIG manager %s evicts only operands; %s and later also evict other GPU clients", p.text("migManager.version"), firstEvicting)
			} else if daemon {
				why = "its DaemonSet does not select " + labelClient
			}
			v.Reason = fmt.Sprintf("it uses GPUs without requesting them (%s), and nothing evicts it: %s", how, why)
			v.Fix = p.evict(q, owner)
		}
		free = free && v.Severity == check.OK
		p.add(v)
	}
	if free {
		p.add(check.Finding{
			Check: migPod, Subject: "pods", Reason: "no pod prevents the change",
			Evidence: p.listed(cluster.Pods, "%d pods on %s", len(p.pods[p.kube.Name]), p.kube.Name),
		})
	}
}

// operates reports whether a pod belongs to the operator: an operand, which the MIG manager pauses, or a validator.
func (p *planner) operates(q *corev1.Pod) bool {
	if q.Namespace != p.Namespace {
		return false
	}
	for key := range q.Spec.NodeSelector {
		if strings.HasPrefix(key, deployPrefix) && key != labelClient {
			return true
		}
	}
	return strings.HasPrefix(q.Labels["app"], "nvidia-") && strings.HasSuffix(q.Labels["app"], "-validator")
}

// held lists the GPU resources of a pod.
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
		return "a ResourceClaim or an nvidia.com device"
	}
	return amounts(all)
}

// firstEvicting is the first version of the MIG manager that evicts GPU client pods of other DaemonSets. Source:
// mig-parted pkg/mig/reconfigure.
const firstEvicting = "v0.15.0"

// evictsClients reports whether the MIG manager evicts pods of other DaemonSets that select the client label. An
// unknown version is assumed to be new.
func (p *planner) evictsClients() bool {
	first, _ := chart.ParseVersion(firstEvicting)
	v, err := chart.ParseVersion(p.text("migManager.version"))
	return err != nil || !v.Before(first)
}

// evict returns the command that removes a pod, or that allows the MIG manager to evict it.
func (p *planner) evict(q *corev1.Pod, owner *metav1.OwnerReference) string {
	switch {
	case owner == nil || owner.Kind != "DaemonSet":
		return fmt.Sprintf("kubectl delete pod -n %s %s", q.Namespace, q.Name)
	case !p.evictsClients():
		return fmt.Sprintf("kubectl delete daemonset -n %s %s  # apply it again after the change", q.Namespace, owner.Name)
	}
	return fmt.Sprintf("kubectl label node %s %s=true && %s", p.kube.Name, labelClient, makeClient(q.Namespace, owner.Name))
}

// room checks whether new pods can be scheduled during the change.
func (p *planner) room() {
	v := check.Finding{
		Check: migCordon, Subject: "Node/" + p.kube.Name, Reason: "the node is cordoned: no new pod can take a GPU",
		Evidence: check.Seen("spec", "Node/"+p.kube.Name, "unschedulable: %t", p.kube.Spec.Unschedulable),
	}
	if !p.kube.Spec.Unschedulable {
		v.Say(check.Note, "the node is not cordoned: a new pod may take a GPU before the change begins")
		v.Fix = "kubectl cordon " + p.kube.Name
	}
	p.add(v)
}
