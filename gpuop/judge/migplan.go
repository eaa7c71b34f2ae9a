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
	c := &migChange{newNodeReport(newView(s, o), &s.Nodes[i]), config}
	needed := []cluster.Kind{cluster.ClusterPolicies, cluster.ConfigMaps, cluster.Pods}
	for _, f := range Unread(s, slices.DeleteFunc(needed, func(k cluster.Kind) bool { return !c.lacks(k) })) {
		c.add(f)
	}
	c.manager()
	c.state()
	if c.lacks(cluster.ConfigMaps) || c.file() {
		c.partition()
	}
	if !c.lacks(cluster.Pods) || c.Pods != nil {
		c.holders()
	}
	if subject := "Node/" + name; c.kube.Spec.Unschedulable {
		c.report(migCordon, check.OK, subject, "", "the node is cordoned: no new pod can take a GPU")
	} else {
		c.report(migCordon, check.Note, subject, "kubectl cordon "+name,
			"the node is not cordoned: a new pod may take a GPU before the change begins")
	}
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

// manager checks that the node's GPUs support MIG, and that a MIG manager reacts to changes of the label.
func (c *migChange) manager() {
	const key = deployPrefix + "mig-manager"
	isReady := func(p *corev1.Pod) bool {
		return p.Labels["app"] == "nvidia-mig-manager" &&
			podCondition(p, corev1.PodReady).Status == corev1.ConditionTrue
	}
	switch {
	case c.kube.Labels[labelCapable] == "false":
		c.report(migCapable, check.Error, labelCapable, "kubectl get nodes -l nvidia.com/mig.capable=true",
			"the node's GPUs do not support MIG")
	case c.kube.Labels[key] != "true":
		c.report(migManager, check.Error, key,
			"kubectl get clusterpolicy -o jsonpath='{.items[*].spec.migManager.enabled}'", "the label is %s, expected "+
				"true: no MIG manager runs on the node, so changes of %s have no effect",
			shown(c.kube.Labels, key), LabelMIG)
	case !c.lacks(cluster.Pods) && !slices.ContainsFunc(c.operandPods, isReady):
		c.report(migManager, check.Error, key,
			fmt.Sprintf("kubectl describe daemonset -n %s nvidia-mig-manager", c.Namespace),
			"no MIG manager pod is ready on the node, so changes of %s have no effect", LabelMIG)
	case !c.lacks(cluster.Pods):
		c.report(migManager, check.OK, key, "", "the MIG manager is ready")
	}
}

// state reports a change in progress, a label that is the same already, a driver upgrade, and paused operands.
func (c *migChange) state() {
	labels, name := c.kube.Labels, c.kube.Name
	config, state := labels[LabelMIG], labels[labelMIGState]
	under := state == "pending" || state == "rebooting"
	switch {
	case under:
		c.report(migUnderWay, check.Error, labelMIGState, "gpuop verify --node "+name,
			"the config %q is %s: a change is in progress or stuck; do not start another one", config, state)
	case config != c.config:
	case state == "success":
		c.report(migSame, check.Note, LabelMIG, "", "the label is already %q: nothing will happen", config)
	default:
		c.report(migSame, check.Error, LabelMIG, c.relabel(LabelMIG+"-"),
			"the label is already %q, and the MIG manager reacts only to changes: remove it first", config)
	}
	if c.upgrading() || labels[labelUpgrade] == "upgrade-required" && c.noDriverPod() == "" {
		c.report(migUpgrade, check.Error, labelUpgrade, "kubectl get nodes -L "+labelUpgrade,
			"a driver upgrade pauses the same operands as a MIG change, and is not finished (%s)", labels[labelUpgrade])
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if value := labels[key]; strings.HasPrefix(key, deployPrefix) && node.Paused(value) && !under {
			c.report(migPaused, check.Error, key, c.relabel(key+"=true --overwrite"),
				"the label is %s, but no MIG change is in progress: the MIG manager will not resume the operand", value)
		}
	}
}

// file checks the node's mig-parted file. It returns false after an error that prevents a prediction.
func (c *migChange) file() bool {
	file, custom := c.migFile(), c.text("migManager.config.name")
	switch {
	case file == nil && custom == "":
		c.report(migConfig, check.Warning, "ConfigMap/"+c.kube.Name+"-mig-config", c.migLog(),
			"the MIG manager has not yet written the configs of this node's GPUs; the operator's defaults were used")
		return true
	case file == nil:
		c.report(migConfig, check.Error, "ConfigMap/"+custom, "kubectl get configmaps -n "+c.Namespace,
			"not found in namespace %s, although migManager.config.name refers to it: the MIG manager cannot start",
			c.Namespace)
		return false
	}
	name := "ConfigMap/" + file.Name
	config, findings := mig.ParseConfig([]byte(file.Data[mig.ConfigKey]))
	if file.Data[mig.ConfigKey] == "" {
		c.report(migConfig, check.Error, name,
			fmt.Sprintf("kubectl get -n %s configmap/%s -o yaml", c.Namespace, file.Name),
			"it has no key %s, or the key is empty; the MIG manager reads only this key", mig.ConfigKey)
		return false
	}
	for _, f := range findings {
		// partition reports DoesNotFit and Coverage for the requested config
		if f.Severity == check.Error && f.Check != mig.DoesNotFit && f.Check != mig.Coverage {
			f.Subject = fmt.Sprintf("%s config.yaml:%d", name, f.Line)
			c.add(withoutPlace(f, check.Seen("data", name, "config.yaml, line %d", f.Line)))
		}
	}
	if config == nil {
		return false
	}
	_, found := config.Config(c.config)
	if names := config.Names(); !found {
		fix := check.Suggest(c.config, names, "the file has the configs "+cmp.Or(strings.Join(names, ", "), "(none)"))
		c.report(migConfig, check.Error, name, fix, "it has no config %q: the change would fail", c.config)
	}
	return found
}

// partition checks the config against the node's GPUs, and predicts the node's resources.
func (c *migChange) partition() {
	gpus, err := c.gpus()
	if err == nil && (len(gpus) == 0 || gpus[0].Board == nil && c.migFile() == nil) {
		err = errors.New("the GPU model is unknown")
	}
	if err != nil {
		c.report(migPredicted, check.Unknown, labelProduct, "kubectl get node "+c.kube.Name+" --show-labels",
			"cannot predict the node's resources: %s", err)
		return
	}
	profiles := "gpuop mig profiles " + gpus[0].Product
	named, _, ok := c.migConfig(c.config, gpus[0].Board)
	if !ok {
		_, err := mig.Default(*gpus[0].Board, c.config)
		c.report(migConfig, check.Error, LabelMIG, profiles, "%s", err)
		return
	}
	after, findings := named.Apply(gpus)
	fits := true
	for _, f := range findings {
		fits = fits && f.Check != mig.DoesNotFit
		f.Subject, f.Fix = LabelMIG+"="+c.config, cmp.Or(f.Fix, profiles+"  # lists what fits")
		c.add(withoutPlace(f, label(c.kube, labelProduct)))
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
	for _, f := range prediction.Findings {
		c.add(withoutPlace(f, c.setting("mig.strategy")))
	}
	mode := ""
	if !slices.EqualFunc(before, after, func(a, b mig.GPU) bool { return a.Enabled == b.Enabled }) {
		mode = "; the MIG mode changes: every program that uses the GPUs must stop"
	}
	c.report(migPredicted, check.Note, "allocatable", "", "%s after the change, %s now; mig.strategy=%s%s",
		cmp.Or(amounts(prediction.Resources), "no device"),
		cmp.Or(amounts(node.Resources(c.kube.Status.Allocatable)), "no device"), strategy, mode)
}

// amounts formats the counts of GPUs and MIG devices, such as "7 nvidia.com/mig-1g.10gb".
func amounts(all map[string]int) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name] > 0 && isDevice(name) {
			words = append(words, fmt.Sprintf("%d %s", all[name], name))
		}
	}
	return strings.Join(words, ", ")
}

// holders reports the pods that use the node's GPUs. Pods that nothing evicts are errors.
func (c *migChange) holders() {
	first, _ := chart.ParseVersion(firstEvicting)
	v, err := chart.ParseVersion(c.text("migManager.version"))
	evicts := err != nil || !v.Before(first) // an unknown version is probably new
	free := true
	for _, p := range c.pods[c.kube.Name] {
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || c.operates(p) {
			continue
		}
		owner := metav1.GetControllerOfNoCopy(p)
		isDaemon := owner != nil && owner.Kind == "DaemonSet"
		fix := fmt.Sprintf("kubectl delete pod -n %s %s", p.Namespace, p.Name)
		switch {
		case isDaemon && evicts:
			fix = c.relabel(labelClient+"=true") + " && " + makeClient(p.Namespace, owner.Name)
		case isDaemon:
			fix = fmt.Sprintf("kubectl delete daemonset -n %s %s  # apply it again afterwards", p.Namespace, owner.Name)
		}
		f := check.Finding{Check: migClient, Subject: fmt.Sprintf("Pod/%s/%s", p.Namespace, p.Name)}
		how := usesGPU(&p.Spec)
		f.Evidence = check.Seen("spec", f.Subject, "%s", how)
		_, selects := p.Spec.NodeSelector[labelClient]
		switch {
		case cluster.AsksForGPU(&p.Spec):
			f.Check, f.Evidence.Text = migPod, "limits: "+held(p)
			if !isDaemon {
				fix = "kubectl cordon " + c.kube.Name + " && " + fix
			}
			say(&f, check.Error, fix, "it holds %s: the MIG manager does not evict it, and cannot delete an instance "+
				"that is in use", held(p))
		case how == "" || strings.HasPrefix(how, "/run"):
			continue
		case isDaemon && selects && c.kube.Labels[labelClient] != "" && evicts:
			say(&f, check.OK, "", "it uses the GPUs, and the MIG manager evicts it")
		default:
			say(&f, check.Error, fix, "it uses GPUs without requesting them (%s), and nothing evicts it: "+
				"MIG manager %s and later evicts only pods of DaemonSets that select %s",
				strings.Replace(how, "/dev", "it mounts /dev", 1), firstEvicting, labelClient)
		}
		free = free && f.Severity == check.OK
		c.add(f)
	}
	if free {
		c.add(check.Finding{Check: migPod, Subject: "pods", Reason: "no pod prevents the change",
			Evidence: c.listed(cluster.Pods, "%d pods on %s", len(c.pods[c.kube.Name]), c.kube.Name)})
	}
}

// operates reports whether a pod belongs to the operator: an operand, which the MIG manager pauses, or a validator.
func (c *migChange) operates(p *corev1.Pod) bool {
	app := p.Labels["app"]
	return p.Namespace == c.Namespace && (componentOf(p.Spec.NodeSelector) != "" ||
		strings.HasPrefix(app, "nvidia-") && strings.HasSuffix(app, "-validator"))
}

func held(p *corev1.Pod) string {
	all := map[string]int{}
	for _, c := range p.Spec.Containers {
		for name, n := range node.Resources(c.Resources.Limits) {
			all[name] += n
		}
	}
	return cmp.Or(amounts(all), "a ResourceClaim or an nvidia.com device")
}

// firstEvicting is the first MIG manager that evicts pods of other DaemonSets. Source: mig-parted pkg/mig/reconfigure.
const firstEvicting = "v0.15.0"
