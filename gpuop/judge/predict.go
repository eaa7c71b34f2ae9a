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
func (n *nodeReport) sharing() {
	value, labeled := n.kube.Labels[sharing.ConfigLabel]
	f := check.Finding{Check: nodeSharing, Subject: sharing.ConfigLabel}
	if n.shares == nil {
		if labeled && n.policy != nil {
			f.Say(check.Warning, "the label selects the config %q, but the ClusterPolicy sets no ConfigMap "+
				"(devicePlugin.config.name): the label has no effect", value)
			f.Fix = "gpuop values gen PLATFORM time-slicing=4"
			n.add(f)
		}
		return
	}
	name, config, ok, problem := n.chosen()
	switch {
	case n.shares.configs == nil:
		return // already reported: the ConfigMap is missing, or could not be read
	case !ok && problem != nil:
		f.Severity, f.Reason, f.Fix = check.Error, problem.Reason, problem.Fix
	case !ok:
		f.Say(check.Error, "the device plugin rejects the node's config %q and does not start", name)
		f.Fix = fmt.Sprintf("kubectl get configmap -n %s %s -o yaml | gpuop lint -", n.Namespace, n.shares.name)
	case name == "":
		f.Say(check.Note, "no label and no devicePlugin.config.default select a config: the node shares no GPU")
		if problem != nil {
			f.Fix = problem.Fix
		}
	default:
		f.Reason = fmt.Sprintf("the node gets the config %q (%s)", name, config.Strategy())
	}
	n.add(f)
}

// stale reports a ConfigMap that changed after the node's device plugin read it. The operator does not restart the
// plugin when the ConfigMap changes.
func (n *nodeReport) stale() {
	if n.shares == nil || n.shares.changed.IsZero() {
		return
	}
	var read time.Time
	for _, l := range n.operands {
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
	if labeled := labelWritten(n.kube, sharing.ConfigLabel); labeled.After(read) && !read.IsZero() {
		read = labeled
	}
	if read.IsZero() || !read.Before(n.shares.changed) {
		return
	}
	f := check.Finding{
		Check: staleConfig, Subject: "ConfigMap/" + n.shares.name, Since: n.shares.changed, Cause: "stale " +
			n.shares.name,
	}
	f.Say(check.Error, "the ConfigMap changed %s after the device plugin read it, and the plugin was not restarted: "+
		"the node still uses the old config", n.shares.changed.Sub(read).Round(time.Second))
	f.Fix = fmt.Sprintf("kubectl rollout restart -n %s daemonset/nvidia-device-plugin-daemonset "+
		"daemonset/gpu-feature-discovery", n.Namespace)
	f.Evidence = check.Seen("managedFields", "ConfigMap/"+n.shares.name, "data").At(n.shares.changed)
	n.add(f)
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
func (n *nodeReport) predicted(follows, missing bool) {
	capacity := node.GPUResources(n.kube)
	want, doubt := n.expect()
	if doubt != nil {
		n.add(*doubt)
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
		f := check.Finding{Check: allocatable, Subject: resource}
		switch {
		case expected == found && found == 0:
			continue
		case expected == found:
			f.Reason = fmt.Sprintf("the node offers %d, as predicted from %s", found, want.basis(n))
		case missing, follows:
			differs = differs || missing
			continue // another finding explains the difference
		case want.divided && n.kube.Labels[labelMIGState] == "success" && expected > found:
			differs = true
			f.Check, f.Severity = migNoDevices, check.Error
			f.Reason = fmt.Sprintf("the MIG change to %q succeeded, "+
				"but the node offers %d, expected %d according to %s",
				n.kube.Labels[LabelMIG], found, expected, want.by)
			f.Fix = fmt.Sprintf("kubectl rollout restart -n %s daemonset/nvidia-device-plugin-daemonset", n.Namespace)
		default:
			differs = true
			f.Say(check.Error, "the node offers %d, expected %d from %s", found, expected, want.basis(n))
			f.Fix = n.logOf("nvidia-device-plugin-daemonset", "nvidia-device-plugin")
		}
		n.add(f)
	}
	if differs {
		n.stale()
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
func (e *expectation) basis(n *nodeReport) string {
	text := fmt.Sprintf("%d × %s", len(e.gpus), e.gpus[0].Product)
	if e.divided {
		text += ", MIG config " + n.kube.Labels[LabelMIG]
	}
	if name, config, ok, _ := n.chosen(); ok && name != "" {
		text += fmt.Sprintf(", sharing config %s (%s)", name, config.Strategy())
	}
	return text
}

// expect predicts the node's labels and resources. want is nil if they cannot be predicted. doubt reports why not, or
// what makes the prediction uncertain. It is nil if there is nothing to report.
func (n *nodeReport) expect() (want *expectation, doubt *check.Finding) {
	unknown := func(subject, reason string) *check.Finding {
		return &check.Finding{Check: prediction, Severity: check.Unknown, Subject: subject, Reason: reason,
			Evidence: label(n.kube, labelProduct)}
	}
	gpus, err := node.GPUs(n.kube)
	if err != nil || len(gpus) == 0 {
		if strings.HasSuffix(n.kube.Labels[labelProduct], "-MIG-INVALID") ||
			n.kube.Labels[labelProduct] == "" && len(node.GPUResources(n.kube)) == 0 {
			return nil, nil // these states have findings already
		}
		if n.kube.Labels[labelProduct] == "" && !n.is("gfd.enabled") {
			return nil, nil // without GPU Feature Discovery, the node has no labels
		}
		return nil, unknown(mig.WholeGPU,
			"the labels do not show which GPUs the node has, so its resources cannot be checked")
	}
	if n.policy == nil && n.lacks(cluster.ClusterPolicies) && n.why(cluster.ClusterPolicies) != cluster.Absent {
		return nil, unknown(mig.WholeGPU,
			"the ClusterPolicy could not be read, so the MIG strategy and the sharing config are unknown")
	}
	_, config, ok, _ := n.chosen()
	switch {
	case !ok && n.shares.configs == nil && n.lacks(cluster.ConfigMaps):
		return nil, unknown("ConfigMap/"+n.shares.name,
			"the sharing config could not be read, so the expected resources are unknown")
	case !ok:
		return nil, nil // sharingFiles or sharing has reported why
	}
	strategy := cmp.Or(n.text("mig.strategy"), mig.StrategyNone)
	if n.policy == nil {
		strategy = cmp.Or(n.kube.Labels[mig.StrategyLabel], mig.StrategyNone)
	}
	want = &expectation{gpus: gpus}
	if name := n.kube.Labels[LabelMIG]; name != "" && n.kube.Labels[labelCapable] != "false" {
		if doubt = n.partitioned(want, name); doubt != nil && want.gpus == nil {
			return nil, doubt
		}
	}
	want.Prediction = sharing.Predict(want.gpus, strategy, config)
	if i := slices.IndexFunc(want.Findings,
		func(found check.Finding) bool { return found.Severity == check.Error }); i >= 0 && doubt == nil {
		f := withoutPlace(want.Findings[i])
		f.Evidence = n.setting("mig.strategy")
		doubt = &f
	}
	return want, doubt
}

// partitioned applies the named MIG config to want.gpus. If the config is unknown, want.gpus is unchanged. If the
// config does not fit, want.gpus is nil. In both cases, partitioned returns a finding.
func (n *nodeReport) partitioned(want *expectation, name string) (doubt *check.Finding) {
	board, product := want.gpus[0].Board, want.gpus[0].Product
	named, source, found := n.migConfig(name, board)
	if !found {
		doubt = &check.Finding{
			Check: migConfig, Severity: check.Error, Subject: LabelMIG,
			Reason: fmt.Sprintf("no MIG config %q for the node in %s",
				name, cmp.Or(source, "the ConfigMaps and the defaults")),
			Fix: fmt.Sprintf("gpuop mig profiles  # and kubectl get configmap -n %s %s-mig-config -o yaml", n.Namespace,
				n.kube.Name),
		}
		if source == "" && (n.lacks(cluster.ConfigMaps) || board == nil) {
			doubt.Say(check.Unknown, "the MIG config %q for %s is unknown: no ConfigMap that was read contains it",
				name, product)
		}
		return doubt
	}
	after, problem := divide(named, want.gpus, n.kube.Labels)
	if problem == "" {
		want.gpus, want.by = after, source
		want.divided = slices.ContainsFunc(after, func(g mig.GPU) bool { return g.Enabled })
		return nil
	}
	want.gpus = nil
	severity := check.Error
	if n.unsettled() {
		severity = check.Waiting
	}
	id := migConfig
	if n.kube.Labels[labelMIGState] == "success" {
		id = migNoDevices
	}
	return &check.Finding{
		Check: id, Severity: severity, Subject: LabelMIG, Reason: fmt.Sprintf("%s (%s)", problem, source),
		Fix: n.migLog(),
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
		return nil, fmt.Sprintf("the config %q creates %s, but gpu.product is %s",
			named.Name, strings.Join(kinds, ", "), shown)
	case have%count != 0:
		return nil, fmt.Sprintf("the config %q creates %d %s on each GPU, but gpu.count is %d, not a multiple of %d",
			named.Name, count, canonical, have, count)
	}
	return slices.Repeat(after, have/count), ""
}
