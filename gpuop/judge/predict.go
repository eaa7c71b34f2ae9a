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

func (n *nodeReport) sharing() {
	say := func(s check.Severity, fix, format string, args ...any) {
		n.report(nodeSharing, s, sharing.ConfigLabel, fix, format, args...)
	}
	if n.shareName == "" {
		if value, labeled := n.kube.Labels[sharing.ConfigLabel]; labeled && n.policy != nil {
			say(check.Warning, "gpuop values gen PLATFORM time-slicing=4", "the label selects the config %q, but the "+
				"ClusterPolicy sets no ConfigMap (devicePlugin.config.name): the label has no effect", value)
		}
		return
	}
	switch name, config, ok, problem := n.chosen(); {
	case n.shares == nil: // already reported: the ConfigMap is missing, or could not be read
	case !ok && problem != nil:
		say(check.Error, problem.Fix, "%s", problem.Reason)
	case !ok:
		say(check.Error, fmt.Sprintf("kubectl get configmap -n %s %s -o yaml | gpuop lint -", n.Namespace, n.shareName),
			"the device plugin rejects the node's config %q and does not start", name)
	case name == "":
		say(check.Note, problem.Fix,
			"no label and no devicePlugin.config.default select a config: the node shares no GPU")
	default:
		say(check.OK, "", "the node gets the config %q (%s)", name, config.Strategy())
	}
}

// stale reports a ConfigMap that changed after the node's device plugin read it. The operator does not restart the
// plugin when the ConfigMap changes.
func (n *nodeReport) stale() {
	var read time.Time // the config manager reads the file when the plugin starts, and again when the label changes
	for _, p := range n.operandPods {
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Running != nil && c.Name == "nvidia-device-plugin" {
				read = slices.MaxFunc([]time.Time{c.State.Running.StartedAt.Time,
					labelWritten(n.kube, sharing.ConfigLabel)}, time.Time.Compare)
			}
		}
	}
	if n.shares == nil || read.IsZero() {
		return
	}
	// the keys may have different owners, so take the latest write
	times := append(owners(n.maps[n.shareName].ManagedFields, "data"), read)
	name, changed := n.shareName, slices.MaxFunc(times, time.Time.Compare)
	if changed.Equal(read) {
		return
	}
	f := check.Finding{Check: staleConfig, Subject: "ConfigMap/" + name, Since: changed, Cause: "stale " + name}
	say(&f, check.Error, "kubectl rollout restart -n "+n.Namespace+" daemonset/nvidia-device-plugin-daemonset "+
		"daemonset/gpu-feature-discovery", "the ConfigMap changed %s after the device plugin read it, and the plugin "+
		"was not restarted: the node still uses the old config", changed.Sub(read).Round(time.Second))
	f.Evidence = check.Seen("managedFields", f.Subject, "data").At(changed)
	n.add(f)
}

// expectation holds the predicted labels and resources of a node, and what the prediction is based on.
type expectation struct {
	sharing.Prediction
	gpus  []mig.GPU
	by    string // where the MIG config is defined; empty if no GPU is in MIG mode
	basis string // describes the GPUs, the MIG config and the sharing config
}

// predicted compares the node's resources with the prediction. follows means that wrong resources are expected; missing
// means that the node has no GPU resource. Both have findings already.
func (n *nodeReport) predicted(follows, missing bool) {
	want := n.expect()
	if want == nil {
		return
	}
	capacity, resources := node.Resources(n.kube.Status.Capacity), slices.Collect(maps.Keys(want.Resources))
	for resource := range capacity {
		if isDevice(resource) {
			resources = append(resources, resource)
		}
	}
	slices.Sort(resources)
	differs := false
	for _, resource := range slices.Compact(resources) {
		expected, found := want.Resources[resource], capacity[resource]
		differs = differs || expected != found
		switch {
		case expected == found && found > 0:
			n.report(allocatable, check.OK, resource, "", "the node offers %d, as predicted from %s", found, want.basis)
		case expected == found:
		case missing, follows: // another finding explains the difference
		case want.by != "" && n.kube.Labels[labelMIGState] == "success" && expected > found:
			n.report(migNoDevices, check.Error, resource,
				fmt.Sprintf("kubectl rollout restart -n %s daemonset/nvidia-device-plugin-daemonset", n.Namespace),
				"the MIG change to %q succeeded, but the node offers %d, expected %d according to %s",
				n.kube.Labels[LabelMIG], found, expected, want.by)
		default:
			n.report(allocatable, check.Error, resource,
				n.logOf("nvidia-device-plugin-daemonset", "nvidia-device-plugin"),
				"the node offers %d, expected %d from %s", found, expected, want.basis)
		}
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

// expect predicts the node's labels and resources. If that is impossible, it reports why and returns nil.
func (n *nodeReport) expect() *expectation {
	unknown := func(subject, reason string) *expectation {
		n.report(prediction, check.Unknown, subject, "", "%s", reason)
		return nil
	}
	gpus, err := node.GPUs(n.kube)
	product := n.kube.Labels[labelProduct]
	shares, config, ok, _ := n.chosen()
	switch noGPUs := err != nil || len(gpus) == 0; {
	case noGPUs && (strings.HasSuffix(product, "-MIG-INVALID") ||
		product == "" && (len(node.Resources(n.kube.Status.Capacity)) == 0 || !n.is("gfd.enabled"))):
		return nil // another finding says why, or GPU Feature Discovery is disabled
	case noGPUs:
		return unknown(mig.WholeGPU,
			"the labels do not show which GPUs the node has, so its resources cannot be checked")
	case n.policy == nil && n.lacks(cluster.ClusterPolicies) && n.why(cluster.ClusterPolicies) != cluster.Absent:
		return unknown(mig.WholeGPU,
			"the ClusterPolicy could not be read, so the MIG strategy and the sharing config are unknown")
	case !ok && n.shares == nil && n.lacks(cluster.ConfigMaps):
		return unknown("ConfigMap/"+n.shareName,
			"the sharing config could not be read, so the expected resources are unknown")
	case !ok:
		return nil // sharingFiles or sharing has reported why
	}
	strategy := n.text("mig.strategy")
	if n.policy == nil {
		strategy = n.kube.Labels[mig.StrategyLabel]
	}
	want := &expectation{gpus: gpus}
	name := n.kube.Labels[LabelMIG]
	if name != "" && n.kube.Labels[labelCapable] != "false" && !n.partitioned(want, name) {
		return nil
	}
	want.Prediction = sharing.Predict(want.gpus, cmp.Or(strategy, mig.StrategyNone), config)
	want.basis = fmt.Sprintf("%d × %s", len(want.gpus), want.gpus[0].Product)
	if want.by != "" {
		want.basis += ", MIG config " + name
	}
	if shares != "" {
		want.basis += fmt.Sprintf(", sharing config %s (%s)", shares, config.Strategy())
	}
	isError := func(f check.Finding) bool { return f.Severity == check.Error }
	if i := slices.IndexFunc(want.Findings, isError); i >= 0 {
		n.add(withoutPlace(want.Findings[i], n.setting("mig.strategy")))
	}
	return want
}

// partitioned applies the named MIG config to want.gpus. It returns false if the config does not fit.
func (n *nodeReport) partitioned(want *expectation, name string) bool {
	board := want.gpus[0].Board
	named, source, found := n.migConfig(name, board)
	if !found {
		severity := check.Error
		if source == "" && (n.lacks(cluster.ConfigMaps) || board == nil) {
			severity = check.Unknown
		}
		n.report(migConfig, severity, LabelMIG, "gpuop mig profiles "+want.gpus[0].Product,
			"no MIG config %q for the node in %s", name, cmp.Or(source, "the ConfigMaps and the defaults"))
		return true
	}
	after, problem := divide(named, want.gpus, n.kube.Labels)
	if problem == "" {
		want.gpus = after
		if slices.ContainsFunc(after, func(g mig.GPU) bool { return g.Enabled }) {
			want.by = source
		}
		return true
	}
	id, severity := migConfig, check.Error
	if n.kube.Labels[labelMIGState] == "success" {
		id = migNoDevices
	}
	if n.unsettled() {
		severity = check.Waiting
	}
	n.report(id, severity, LabelMIG, n.migLog(), "%s (%s)", problem, source)
	return false
}

// divide returns the node's GPUs after a MIG config has been applied, or a problem if the config does not fit them. The
// label nvidia.com/gpu.count counts MIG devices if the strategy is single, so it must be a multiple of the devices per
// GPU.
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
	kinds := slices.Sorted(maps.Keys(after[0].Instances))
	have, _ := strconv.Atoi(labels[mig.WholeGPU+".count"])
	canonical, _ := mig.CanonicalProfile(profile)
	each := after[0].Instances[canonical]
	switch {
	case len(kinds) != 1 || each == 0:
		return nil, fmt.Sprintf("the config %q creates %s, but gpu.product is %s",
			named.Name, cmp.Or(strings.Join(kinds, ", "), "no MIG device"), shown)
	case have%each != 0:
		return nil, fmt.Sprintf("the config %q creates %d %s on each GPU, but gpu.count is %d, not a multiple of %d",
			named.Name, each, canonical, have, each)
	}
	return slices.Repeat(after, have/each), ""
}
