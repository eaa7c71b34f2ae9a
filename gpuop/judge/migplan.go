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

// migChange collects the findings about a change of a node's MIG config.
type migChange struct {
	*nodeReport
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
	c := &migChange{nodeReport: newNodeReport(newView(s, o), &s.Nodes[i]), config: config}
	for _, f := range Unread(s, []cluster.Kind{cluster.ClusterPolicies, cluster.ConfigMaps, cluster.Pods}) {
		if f.Severity == check.Unknown {
			c.add(f)
		}
	}
	c.manager()
	c.state()
	c.partition()
	c.holders()
	c.room()
	return c.findings, nil
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

func (c *migChange) report(state check.Severity, id *check.Check, subject, reason, next string) {
	f := c.own(check.Finding{Check: id, Severity: state, Subject: subject, Reason: reason, Fix: next})
	if name, found := strings.CutPrefix(subject, "ConfigMap/"); found {
		name, _, _ = strings.Cut(name, " ")
		f.Evidence = c.listed(cluster.ConfigMaps, "ConfigMap %s exists: %t", name, c.maps[name] != nil)
	} else if f.Evidence.Text == "" {
		f.Evidence = label(c.kube, labelProduct) // the prediction depends on the product label
	}
	c.add(f)
}

// manager checks that the node's GPUs support MIG, and that a MIG manager is ready on the node. The MIG manager reacts
// to changes of the label.
func (c *migChange) manager() {
	const key = deployPrefix + "mig-manager"
	if c.kube.Labels[labelCapable] == "false" {
		c.report(check.Error, migCapable, labelCapable, "the node's GPUs do not support MIG",
			"kubectl get nodes -l nvidia.com/mig.capable=true")
		return
	}
	if c.kube.Labels[key] != "true" {
		c.report(check.Error, migManager, key,
			fmt.Sprintf("the label is %s, expected true: no MIG manager runs on the "+
				"node, so changes of %s have no effect", shown(c.kube.Labels, key), LabelMIG),
			"kubectl get clusterpolicy -o jsonpath='{.items[*].spec.migManager.enabled}'")
		return
	}
	if c.lacks(cluster.Pods) {
		return
	}
	f := check.Finding{
		Check: migManager, Severity: check.Error, Subject: "nvidia-mig-manager",
		Reason:   "no MIG manager pod is ready on the node, so changes of " + LabelMIG + " have no effect",
		Fix:      fmt.Sprintf("kubectl describe daemonset -n %s nvidia-mig-manager", c.Namespace),
		Evidence: c.listed(cluster.Pods, "no ready pod with app=nvidia-mig-manager on %s", c.kube.Name),
	}
	for _, q := range c.operandPods {
		ready := podCondition(q, corev1.PodReady)
		if q.Labels["app"] == "nvidia-mig-manager" && ready != nil && ready.Status == corev1.ConditionTrue {
			f.Severity, f.Subject, f.Reason, f.Fix = check.OK, "Pod/"+q.Name, "the MIG manager is ready", ""
			f.Evidence = podStateOf(q).Evidence
		}
	}
	c.add(f)
}

// state reports what prevents the change: a change in progress, a label that is the same already, a driver upgrade, or
// a paused operand.
func (c *migChange) state() {
	labels := c.kube.Labels
	config, state := labels[LabelMIG], labels[labelMIGState]
	under := state == "pending" || state == "rebooting"
	switch already := fmt.Sprintf("the label is already %q, and the MIG manager reacts only to changes: ", config); {
	case under:
		c.report(check.Error, migUnderWay, labelMIGState, fmt.Sprintf("the config %q is %s: a change is in progress "+
			"or stuck; do not start another one", config, state), "gpuop verify --node "+c.kube.Name)
	case config != c.config:
	case state == "success":
		c.report(check.Note, migSame, LabelMIG, already+"nothing will happen", "")
	default:
		c.report(check.Error, migSame, LabelMIG, already+"remove it first",
			fmt.Sprintf("kubectl label node %s %s-", c.kube.Name, LabelMIG))
	}
	if c.upgrading() || labels[labelUpgrade] == "upgrade-required" && c.noDriverPod() == "" {
		c.report(check.Error, migUpgrade, labelUpgrade, fmt.Sprintf("the driver upgrade is not finished "+
			"(%s); it pauses the same operands as a MIG change",
			labels[labelUpgrade]), "kubectl get nodes -L "+labelUpgrade)
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if value := labels[key]; strings.HasPrefix(key, deployPrefix) && node.Paused(value) && !under {
			c.report(check.Error, migPaused, key,
				fmt.Sprintf("the label is %s, but no MIG change is in progress: the MIG "+
					"manager will not resume the operand", value),
				fmt.Sprintf("kubectl label node %s %s=true --overwrite", c.kube.Name, key))
		}
	}
}

// file checks the node's mig-parted file, and that it has the config. It returns false after an error that prevents a
// prediction.
func (c *migChange) file() bool {
	file := c.migFile()
	if file == nil {
		custom := c.text("migManager.config.name")
		if custom == "" {
			c.report(check.Warning, migConfig, "ConfigMap/"+c.kube.Name+"-mig-config",
				"the MIG manager has not yet written "+
					"the configs of this node's GPUs; the check used the operator's defaults",
				"kubectl logs -n "+c.Namespace+" -l app=nvidia-mig-manager")
			return true
		}
		c.report(check.Error, migConfig, "ConfigMap/"+custom, fmt.Sprintf("not found in namespace %s, "+
			"although migManager.config.name refers to it: the MIG manager cannot start", c.Namespace),
			"kubectl get configmaps -n "+c.Namespace)
		return false
	}
	if file.text == "" {
		c.report(check.Error, migConfig, file.name,
			"it has no key "+mig.ConfigKey+", or the key is empty; the MIG manager reads only this key",
			"kubectl get -n "+c.Namespace+" "+strings.ToLower(file.name)+" -o yaml")
		return false
	}
	for _, each := range file.findings {
		// partition reports DoesNotFit and Coverage for the requested config
		if each.Severity != check.Error || each.Check == mig.DoesNotFit || each.Check == mig.Coverage {
			continue
		}
		f := withoutPlace(each)
		f.Subject = fmt.Sprintf("%s config.yaml:%d", file.name, each.Line)
		f.Evidence = check.Seen("data", file.name, "config.yaml, line %d", each.Line)
		c.add(f)
	}
	if file.config == nil {
		return false
	}
	if _, found := file.config.Config(c.config); found {
		return true
	}
	names := file.config.Names()
	hint := "the file has the configs " + cmp.Or(strings.Join(names, ", "), "(none)")
	if near := check.Nearest(c.config, names); near != "" {
		hint = "did you mean " + near + "?"
	}
	c.report(check.Error, migConfig, file.name, fmt.Sprintf("it has no config %q: the change would fail", c.config),
		hint)
	return false
}

// partition checks the config against the node's GPUs, and predicts the node's resources.
func (c *migChange) partition() {
	if !c.lacks(cluster.ConfigMaps) && !c.file() {
		return
	}
	gpus, err := c.gpus()
	if err == nil && (len(gpus) == 0 || gpus[0].Board == nil && c.migFile() == nil) {
		err = errors.New("the GPU model is unknown")
	}
	if err != nil {
		c.report(check.Unknown, migPredicted, labelProduct, "cannot predict the node's resources: "+err.Error(),
			"kubectl get node "+c.kube.Name+" --show-labels")
		return
	}
	named, _, ok := c.migConfig(c.config, gpus[0].Board)
	if !ok {
		_, err := mig.Default(*gpus[0].Board, c.config)
		c.report(check.Error, migConfig, LabelMIG, err.Error(), "gpuop mig profiles "+gpus[0].Product)
		return
	}
	after, findings := named.Apply(gpus)
	fits := true
	for _, found := range findings {
		fits = fits && found.Check != mig.DoesNotFit
		f := withoutPlace(found)
		f.Subject, f.Evidence = LabelMIG+"="+c.config, label(c.kube, labelProduct)
		f.Fix = cmp.Or(f.Fix, "gpuop mig profiles "+gpus[0].Product+"  # lists what fits")
		c.add(f)
	}
	if fits {
		c.predict(gpus, after)
	}
}

// gpus returns the node's GPUs. If the strategy is "single" and the GPUs are in MIG mode, the labels count MIG devices
// instead. The active config then says how many devices a GPU has.
func (c *migChange) gpus() ([]mig.GPU, error) {
	gpus, err := node.GPUs(c.kube)
	if err != nil || !strings.Contains(c.kube.Labels[labelProduct], "-MIG-") {
		return gpus, err
	}
	config := c.kube.Labels[LabelMIG]
	if current, _, known := c.migConfig(config, gpus[0].Board); known {
		if all, problem := divide(current, gpus, c.kube.Labels); problem == "" {
			return all, nil
		}
	}
	return nil, fmt.Errorf("the labels count %s MIG devices, but the active config %q does not say how many "+
		"each GPU has", c.kube.Labels[mig.WholeGPU+".count"], config)
}

// predict reports the predicted resources. If the sharing config is missing or rejected, it reports that instead.
func (c *migChange) predict(before, after []mig.GPU) {
	_, config, starts, _ := c.chosen()
	if !starts {
		for _, f := range sharingFiles(c.view) {
			c.add(f)
		}
		c.sharing()
		return
	}
	strategy := cmp.Or(c.text("mig.strategy"), c.kube.Labels[mig.StrategyLabel], mig.StrategySingle)
	prediction := sharing.Predict(after, strategy, config)
	for _, found := range prediction.Findings {
		f := withoutPlace(found)
		f.Evidence = c.setting("mig.strategy")
		c.add(f)
	}
	mode := ""
	if !slices.EqualFunc(before, after, func(a, b mig.GPU) bool { return a.Enabled == b.Enabled }) {
		mode = "; the MIG mode changes: every program that uses the GPUs must stop"
	}
	now := map[string]int{}
	for name, q := range c.kube.Status.Allocatable {
		now[string(name)] = int(q.Value())
	}
	c.report(check.Note, migPredicted, "allocatable", fmt.Sprintf("%s after the change, %s now; mig.strategy=%s%s",
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
func (c *migChange) holders() {
	if c.lacks(cluster.Pods) && c.Pods == nil {
		return
	}
	free := true
	for _, q := range c.pods[c.kube.Name] {
		if q.Status.Phase == corev1.PodSucceeded || q.Status.Phase == corev1.PodFailed || c.operates(q) {
			continue
		}
		owner := metav1.GetControllerOfNoCopy(q)
		daemon := owner != nil && owner.Kind == "DaemonSet"
		_, selects := q.Spec.NodeSelector[labelClient]
		how := usesGPU(&q.Spec)
		if strings.HasPrefix(how, "/dev") {
			how = "it mounts " + how
		}
		f := check.Finding{Check: migClient, Severity: check.Error,
			Subject: fmt.Sprintf("Pod/%s/%s", q.Namespace, q.Name)}
		f.Evidence = check.Seen("spec", f.Subject, "%s", how)
		switch {
		case cluster.AsksForGPU(&q.Spec):
			f.Check = migPod
			f.Reason = fmt.Sprintf("it holds %s: the MIG manager does not evict it, "+
				"and cannot delete an instance that is in use", held(q))
			f.Evidence.Text = "limits: " + held(q)
			f.Fix = c.evict(q, owner)
			if !daemon {
				f.Fix = "kubectl cordon " + c.kube.Name + " && " + f.Fix
			}
		case how == "" || strings.HasPrefix(how, "/run"):
			continue
		case daemon && selects && c.kube.Labels[labelClient] != "" && c.evictsClients():
			f.Say(check.OK, "it uses the GPUs (%s); the MIG manager evicts it because its DaemonSet selects %s",
				how, labelClient)
		default:
			why := "the MIG manager evicts only pods of DaemonSets"
			if daemon && !c.evictsClients() {
				why = fmt.Sprintf("MIG manager %s evicts only operands; %s and later also evict other GPU clients",
					c.text("migManager.version"), firstEvicting)
			} else if daemon {
				why = "its DaemonSet does not select " + labelClient
			}
			f.Reason = fmt.Sprintf("it uses GPUs without requesting them (%s), and nothing evicts it: %s", how, why)
			f.Fix = c.evict(q, owner)
		}
		free = free && f.Severity == check.OK
		c.add(f)
	}
	if free {
		c.add(check.Finding{
			Check: migPod, Subject: "pods", Reason: "no pod prevents the change",
			Evidence: c.listed(cluster.Pods, "%d pods on %s", len(c.pods[c.kube.Name]), c.kube.Name),
		})
	}
}

// operates reports whether a pod belongs to the operator: an operand, which the MIG manager pauses, or a validator.
func (c *migChange) operates(q *corev1.Pod) bool {
	if q.Namespace != c.Namespace {
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
func (c *migChange) evictsClients() bool {
	first, _ := chart.ParseVersion(firstEvicting)
	v, err := chart.ParseVersion(c.text("migManager.version"))
	return err != nil || !v.Before(first)
}

// evict returns the command that removes a pod, or that allows the MIG manager to evict it.
func (c *migChange) evict(q *corev1.Pod, owner *metav1.OwnerReference) string {
	switch {
	case owner == nil || owner.Kind != "DaemonSet":
		return fmt.Sprintf("kubectl delete pod -n %s %s", q.Namespace, q.Name)
	case !c.evictsClients():
		return fmt.Sprintf("kubectl delete daemonset -n %s %s  # apply it again after the change",
			q.Namespace, owner.Name)
	}
	return fmt.Sprintf("kubectl label node %s %s=true && %s",
		c.kube.Name, labelClient, makeClient(q.Namespace, owner.Name))
}

// room checks whether new pods can be scheduled during the change.
func (c *migChange) room() {
	f := check.Finding{
		Check: migCordon, Subject: "Node/" + c.kube.Name, Reason: "the node is cordoned: no new pod can take a GPU",
		Evidence: check.Seen("spec", "Node/"+c.kube.Name, "unschedulable: %t", c.kube.Spec.Unschedulable),
	}
	if !c.kube.Spec.Unschedulable {
		f.Say(check.Note, "the node is not cordoned: a new pod may take a GPU before the change begins")
		f.Fix = "kubectl cordon " + c.kube.Name
	}
	c.add(f)
}
