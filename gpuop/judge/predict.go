package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

const labelProduct = mig.WholeGPU + ".product"

// sharing checks that the node selects a valid config of the device plugin.
func (w *nodeJudge) sharing() {
	value, labeled := w.kube.Labels[sharing.ConfigLabel]
	v := check.Finding{Check: nodeSharing, Subject: sharing.ConfigLabel}
	if w.shares == nil {
		if labeled && w.policy != nil {
			v.Say(check.Warning, "the label selects the config %q, but the ClusterPolicy sets no ConfigMap "+
				"(devicePlugin.config.name): the label has no effect", value)
			v.Fix = "gpuop values gen PLATFORM time-slicing=4"
			w.add(v)
		}
		return
	}
	name, config, ok, problem := w.chosen()
	switch {
	case w.shares.configs == nil:
		return // already reported: the ConfigMap is missing, or could not be read
	case !ok && problem != nil:
		v.Severity, v.Reason, v.Fix = check.Error, problem.Reason, problem.Fix
	case !ok:
		v.Say(check.Error, "the device plugin rejects the node's config %q and does not start", name)
		v.Fix = fmt.Sprintf("kubectl get configmap -n %s %s -o yaml | gpuop lint -", w.Namespace, w.shares.name)
	case name == "":
		v.Say(check.Note, "no label and no devicePlugin.config.default select a config: the node shares no GPU")
		if problem != nil {
			v.Fix = problem.Fix
		}
	default:
		v.Reason = fmt.Sprintf("the node gets the config %q (%s)", name, config.Strategy())
	}
	w.add(v)
}

// stale reports a ConfigMap that changed after the node's device plugin read it. The operator does not restart the
// plugin when the ConfigMap changes.
func (w *nodeJudge) stale() {
	if w.shares == nil || w.shares.changed.IsZero() {
		return
	}
	var read time.Time
	for _, l := range w.operands {
		if l.component != "device-plugin" || l.pod == nil {
			continue
		}
		for _, c := range l.pod.Status.ContainerStatuses {
			if c.State.Running != nil && c.Name == "nvidia-device-plugin" {
				read = c.State.Running.StartedAt.Time
			}
		}
	}
	// the config manager reads the file again when the label changes
	if labeled := labelWritten(w.kube, sharing.ConfigLabel); labeled.After(read) && !read.IsZero() {
		read = labeled
	}
	if read.IsZero() || !read.Before(w.shares.changed) {
		return
	}
	v := check.Finding{
		Check: staleConfig, Subject: "ConfigMap/" + w.shares.name, Since: w.shares.changed, Cause: "stale " + w.shares.name,
	}
	v.Say(check.Error, "the ConfigMap changed %s after the device plugin read it, and the plugin was not restarted: "+
		"the node still uses the old config", w.shares.changed.Sub(read).Round(time.Second))
	v.Fix = fmt.Sprintf("kubectl rollout restart -n %s daemonset/nvidia-device-plugin-daemonset daemonset/gpu-feature-discovery", w.Namespace)
	v.Evidence = check.Seen("managedFields", "ConfigMap/"+w.shares.name, "data").At(w.shares.changed)
	w.add(v)
}

// expectation holds the predicted labels and resources of a node, and what the prediction is based on.
type expectation struct {
	sharing.Prediction
	// gpus are the GPUs that the prediction assumes.
	gpus []mig.GPU
	// divided means that the MIG config puts at least one GPU into MIG mode. by says where the config is defined.
	divided bool
	by      string
}

// predicted compares the node's resources with the prediction. follows means that wrong resources are expected; missing
// means that the node has no GPU resource. Both have findings already.
func (w *nodeJudge) predicted(follows, missing bool) {
	capacity := node.GPUResources(w.kube)
	want, doubt := w.expect()
	if doubt != nil {
		w.add(*doubt)
	}
	if want == nil {
		return
	}
	differs := false
	resources := slices.Sorted(maps.Keys(want.Resources))
	for _, resource := range slices.Sorted(maps.Keys(capacity)) {
		if _, found := want.Resources[resource]; !found && isDevice(resource) {
			resources = append(resources, resource)
		}
	}
	for _, resource := range resources {
		expected, found := want.Resources[resource], capacity[resource]
		v := check.Finding{Check: allocatable, Subject: resource}
		switch {
		case expected == found && found == 0:
			continue
		case expected == found:
			v.Reason = fmt.Sprintf("the node offers %d, as predicted from %s", found, want.basis(w))
		case missing, follows:
			differs = differs || missing
			continue // another finding explains the difference
		case want.divided && w.kube.Labels[labelMIGState] == "success" && expected > found:
			differs = true
			v.Check, v.Severity = migNoDevices, check.Error
			v.Reason = fmt.Sprintf("the MIG change to %q succeeded, but the node offers %d, expected %d according to %s",
				w.kube.Labels[LabelMIG], found, expected, want.by)
			v.Fix = fmt.Sprintf("kubectl rollout restart -n %s daemonset/nvidia-device-plugin-daemonset", w.Namespace)
		default:
			differs = true
			v.Say(check.Error, "the node offers %d, expected %d from %s", found, expected, want.basis(w))
			v.Fix = w.logOf("nvidia-device-plugin-daemonset", "nvidia-device-plugin")
		}
		w.add(v)
	}
	if differs {
		w.stale()
	}
}

// isDevice reports whether the device plugin advertises the resource: nvidia.com/gpu, a MIG resource, or either with
// the suffix .shared. Other plugins also use the nvidia.com prefix, for example for passthrough GPUs and network
// devices.
func isDevice(name string) bool {
	name = strings.TrimSuffix(name, ".shared")
	return name == mig.WholeGPU || strings.HasPrefix(name, "nvidia.com/mig-")
}

// basis describes what the prediction is based on: GPUs, MIG config and sharing config.
func (e *expectation) basis(w *nodeJudge) string {
	text := fmt.Sprintf("%d × %s", len(e.gpus), e.gpus[0].Product)
	if e.divided {
		text += ", MIG config " + w.kube.Labels[LabelMIG]
	}
	if name, config, ok, _ := w.chosen(); ok && name != "" {
		text += fmt.Sprintf(", sharing config %s (%s)", name, config.Strategy())
	}
	return text
}

// expect predicts the node's labels and resources. want is nil if they cannot be predicted. doubt reports why not, or
// what makes the prediction uncertain. It is nil if there is nothing to report.
func (w *nodeJudge) expect() (want *expectation, doubt *check.Finding) {
	unknown := func(subject, reason string) *check.Finding {
		return &check.Finding{Check: prediction, Severity: check.Unknown, Subject: subject, Reason: reason, Evidence: label(w.kube, labelProduct)}
	}
	gpus, err := node.GPUs(w.kube)
	if err != nil || len(gpus) == 0 {
		if strings.HasSuffix(w.kube.Labels[labelProduct], "-MIG-INVALID") || w.kube.Labels[labelProduct] == "" && len(node.GPUResources(w.kube)) == 0 {
			return nil, nil // these states have findings already
		}
		if w.kube.Labels[labelProduct] == "" && !w.is("gfd.enabled") {
			return nil, nil // without GPU Feature Discovery, the node has no labels
		}
		return nil, unknown(mig.WholeGPU, "the labels do not show which GPUs the node has, so its resources cannot be checked")
	}
	if w.policy == nil && w.lacks(cluster.ClusterPolicies) && !w.absent(cluster.ClusterPolicies) {
		return nil, unknown(mig.WholeGPU, "the ClusterPolicy could not be read, so the MIG strategy and the sharing config are unknown")
	}
	_, config, ok, _ := w.chosen()
	switch {
	case !ok && w.shares.configs == nil && w.lacks(cluster.ConfigMaps):
		return nil, unknown("ConfigMap/"+w.shares.name, "the sharing config could not be read, so the expected resources are unknown")
	case !ok:
		return nil, nil // configs or sharing has reported why
	}
	strategy := cmp.Or(w.text("mig.strategy"), mig.StrategyNone)
	if w.policy == nil {
		strategy = cmp.Or(w.kube.Labels[mig.StrategyLabel], mig.StrategyNone)
	}
	want = &expectation{gpus: gpus}
	if name := w.kube.Labels[LabelMIG]; name != "" && w.kube.Labels[labelCapable] != "false" {
		if doubt = w.partitioned(want, name); doubt != nil && want.gpus == nil {
			return nil, doubt
		}
	}
	want.Prediction = sharing.Predict(want.gpus, strategy, config)
	if i := slices.IndexFunc(want.Findings, func(f check.Finding) bool { return f.Severity == check.Error }); i >= 0 && doubt == nil {
		v := withoutPlace(want.Findings[i])
		v.Evidence = w.setting("mig.strategy")
		doubt = &v
	}
	return want, doubt
}

// partitioned applies the named MIG config to want.gpus. If the config is unknown, want.gpus is unchanged. If the
// config does not fit, want.gpus is nil. In both cases, partitioned returns a finding.
func (w *nodeJudge) partitioned(want *expectation, name string) (doubt *check.Finding) {
	board, product := want.gpus[0].Board, want.gpus[0].Product
	named, source, found := w.migConfig(name, board)
	if !found {
		doubt = &check.Finding{
			Check: migConfig, Severity: check.Error, Subject: LabelMIG,
			Reason: fmt.Sprintf("no MIG config %q for the node in %s", name, cmp.Or(source, "the ConfigMaps and the defaults")),
			Fix: fmt.Sprintf("gpuop mig profiles  # and kubectl get configmap -n %s %s-mig-config -o yaml", w.Namespace,
				w.kube.Name),
		}
		if source == "" && (w.lacks(cluster.ConfigMaps) || board == nil) {
			doubt.Say(check.Unknown, "the MIG config %q for %s is unknown: no ConfigMap that was read contains it", name, product)
		}
		return doubt
	}
	after, problem := divide(named, want.gpus, w.kube.Labels)
	if problem == "" {
		want.gpus, want.by = after, source
		want.divided = slices.ContainsFunc(after, func(g mig.GPU) bool { return g.Enabled })
		return nil
	}
	want.gpus = nil
	severity := check.Error
	if w.unsettled() {
		severity = check.Waiting
	}
	id := migConfig
	if w.kube.Labels[labelMIGState] == "success" {
		id = migNoDevices
	}
	return &check.Finding{
		Check: id, Severity: severity, Subject: LabelMIG, Reason: fmt.Sprintf("%s (%s)", problem, source),
		Fix: w.migLog(),
	}
}

// divide returns the node's GPUs after a MIG config has been applied, or a problem if the config does not fit them.
// With the strategy single, nvidia.com/gpu.count counts MIG devices, so it must be a multiple of the devices per GPU.
func divide(named mig.NamedConfig, gpus []mig.GPU, labels map[string]string) (after []mig.GPU, problem string) {
	shown := strings.TrimSuffix(labels[labelProduct], "-SHARED")
	_, profile, single := strings.Cut(shown, "-MIG-")
	if !single {
		after, findings := named.Apply(gpus)
		for _, f := range findings {
			if f.Severity == check.Error {
				return nil, f.Reason
			}
		}
		return after, ""
	}
	one := gpus[0]
	one.Enabled, one.Instances = false, nil
	after, _ = named.Apply([]mig.GPU{one})
	count, kinds := 0, []string{}
	for name, n := range after[0].Instances {
		count += n
		kinds = append(kinds, name)
	}
	have, _ := strconv.Atoi(labels[mig.WholeGPU+".count"])
	canonical, _ := mig.CanonicalProfile(profile)
	switch {
	case count == 0:
		return nil, fmt.Sprintf("the config %q creates no MIG device, but gpu.product is %s", named.Name, shown)
	case len(kinds) != 1 || kinds[0] != canonical:
		slices.Sort(kinds)
		return nil, fmt.Sprintf("the config %q creates %s, but gpu.product is %s", named.Name, strings.Join(kinds, ", "), shown)
	case have%count != 0:
		return nil, fmt.Sprintf("the config %q creates %d %s on each GPU, but gpu.count is %d, not a multiple of %d",
			named.Name, count, canonical, have, count)
	}
	return slices.Repeat(after, have/count), ""
}
