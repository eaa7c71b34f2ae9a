package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
)

// kubernetes checks the server's version against the support matrix.
func kubernetes(v *view) []check.Finding {
	first, last := 0, 0
	for _, r := range series(v.Release) {
		if r.first > 0 {
			first, last = min(cmp.Or(first, r.first), r.first), max(last, r.last)
		}
	}
	version := v.Version
	have, ok := minor(version)
	f := check.Finding{Check: kubernetesVersion, Subject: "Kubernetes",
		Evidence: check.Seen("answer", "/version", "%s", cmp.Or(version, "none"))}
	switch {
	case !ok:
		f.Severity, f.Reason, f.Fix = check.Unknown, "the server's version is unknown",
			"kubectl version -o yaml > version.yaml"
	case first == 0:
		f.Say(check.Unknown, "%s; gpuop has no support matrix for %s", version, v.Release)
		f.Fix = "see the platform support page of " + v.Release.String()
	case have < first:
		f.Say(check.Error, "%s is too old: %s supports 1.%d to 1.%d", version, v.Release, first, last)
		f.Fix = "upgrade Kubernetes, or try an older release with gpuop preflight --version"
	case have > last:
		f.Say(check.Warning, "%s is newer than the versions validated with %s: 1.%d to 1.%d",
			version, v.Release, first, last)
		f.Fix = "gpuop preflight --version latest"
	default:
		f.Reason = fmt.Sprintf("%s is in the range 1.%d to 1.%d that %s supports", version, first, last, v.Release)
	}
	return []check.Finding{f}
}

// system is an operating system as named in the driver's image tags.
type system struct{ id, version string }

// tag returns the suffix of the driver's image tag.
func (s system) tag(v chart.Version) string { return v.SystemTag(s.id, s.version) }

func (s system) String() string { return strings.TrimSpace(s.id + " " + s.version) }

const (
	labelID      = nfdPrefix + "system-os_release.ID"
	labelVersion = nfdPrefix + "system-os_release.VERSION_ID"
)

// monitorsOptional is the first release that becomes ready without the ServiceMonitor CRD. Since this release, the
// operator also evicts clients.
var monitorsOptional, _ = chart.ParseVersion("v26.7.0")

// images maps prefixes of the OS image in a node's status to an ID. NFD's labels take precedence.
var images = []struct{ prefix, id string }{
	{"Ubuntu ", "ubuntu"}, {"Red Hat Enterprise Linux ", "rhel"}, {"Rocky Linux ", "rocky"},
	{"Oracle Linux Server ", "ol"}, {"SUSE Linux Enterprise Server ", "sles"}, {"Debian GNU/Linux ", "debian"},
	{"Amazon Linux ", "amzn"},
	{"Container-Optimized OS", "cos"}, {"Bottlerocket OS ", "bottlerocket"}, {"Talos", "talos"},
	{"Flatcar ", "flatcar"},
}

// rhcos is the prefix of the OS image of OpenShift nodes. Since OpenShift 4.19, their os-release names RHEL.
const rhcos = "Red Hat Enterprise Linux CoreOS "

// systemOf returns a node's operating system: RHCOS according to its status, and others according to NFD's labels or,
// without labels, the status. labeled reports whether NFD's labels name the system.
func systemOf(n *corev1.Node) (s system, labeled bool) {
	if version, found := strings.CutPrefix(n.Status.NodeInfo.OSImage, rhcos); found {
		version, _, _ = strings.Cut(version, " ")
		return system{"rhcos", version}, n.Labels[labelID] != ""
	}
	if id, version := n.Labels[labelID], n.Labels[labelVersion]; id != "" && version != "" {
		return system{id, version}, true
	}
	for _, i := range images {
		if rest, found := strings.CutPrefix(n.Status.NodeInfo.OSImage, i.prefix); found {
			version, _, _ := strings.Cut(rest, " ")
			if i.id == "ubuntu" { // the tags use 22.04, not 22.04.4
				if parts := strings.SplitN(version, ".", 3); len(parts) == 3 {
					version = parts[0] + "." + parts[1]
				}
			}
			return system{i.id, version}, false
		}
	}
	return system{}, false
}

// systemSeen returns evidence of a node's operating system.
func systemSeen(n *corev1.Node) check.Evidence {
	return check.Seen("status", "Node/"+n.Name, "%s, %s=%s, %s=%s",
		n.Status.NodeInfo.OSImage, labelID, n.Labels[labelID],
		labelVersion, n.Labels[labelVersion])
}

// driverSystems checks for mixed operating systems. The operator selects the driver image for all nodes by the
// operating system of the first GPU node.
func driverSystems(v *view) []check.Finding {
	if len(v.gpu) == 0 {
		return nil
	}
	first := v.gpu[0]
	os, labeled := systemOf(first)
	tag := os.tag(v.Release)
	f := check.Finding{Check: driverOS, Subject: "operating systems", Evidence: systemSeen(first)}
	drivers, byOS := 0, map[string]int{}
	var wrong []string
	for _, n := range v.gpu {
		if !v.runs("driver", n) {
			continue
		}
		drivers++
		s, _ := systemOf(n)
		byOS[cmp.Or(s.tag(v.Release), "unknown")]++
		if s.tag(v.Release) != tag {
			wrong = append(wrong, n.Name)
		}
	}
	precompiled := v.is("driver.usePrecompiled")
	switch {
	case drivers == 0:
		f.Reason = "no GPU node gets the operator's driver container"
	case !v.is("driver.enabled"):
		f.Reason, f.Evidence = fmt.Sprintf("%s; driver.enabled=false: the nodes need their own drivers", counts(byOS)),
			v.setting("driver.enabled")
	case v.is("driver.nvidiaDriverCRD.enabled"):
		f.Reason = fmt.Sprintf("%s; each NVIDIADriver selects the image for its nodes", counts(byOS))
		f.Evidence = v.setting("driver.nvidiaDriverCRD.enabled")
	case !precompiled && (os.id == "rhcos" || v.openShift() && v.get("operator.use_ocp_driver_toolkit") != false):
		f.Reason = "OpenShift's driver toolkit builds the driver for each version of RHCOS"
	case os.id == "":
		f.Say(check.Error,
			"the operator cannot continue: the operating system of %s, the first GPU node, is unknown because "+
				"NFD has not set %s", first.Name, labelID)
		f.Fix = "kubectl get node " + first.Name + " -o jsonpath='{.metadata.labels}'"
	case len(wrong) > 0:
		f.Severity, f.Nodes, f.Cause = check.Error, strings.Join(wrong, ", "), "operating systems"
		f.Reason = fmt.Sprintf("mixed operating systems (%s): "+
			"all nodes get the driver image of %s (%s), which is wrong for %s",
			counts(byOS), first.Name, tag, check.Count(len(wrong), "node"))
		f.Fix = driverForEachSystem(wrong...)
	default:
		f.Reason = fmt.Sprintf("%d GPU nodes get the driver image for %s", drivers, tag)
		if drivers == 1 {
			f.Reason = fmt.Sprintf("1 GPU node gets the driver image for %s", tag)
		}
		if precompiled {
			f.Reason += ", one for each kernel"
		}
		if !labeled {
			f.Reason += ", according to their status: NFD has not labeled them yet"
		}
	}
	return []check.Finding{f}
}

// driverForEachSystem returns advice for nodes with another operating system, which need their own driver.
func driverForEachSystem(nodes ...string) string {
	return "helm upgrade … --set driver.nvidiaDriverCRD.enabled=true # and an NVIDIADriver with a nodeSelector for " +
		"each system; or install the driver yourself and kubectl label node " + strings.Join(nodes, " ") + " " +
		labelDriver + "=false --overwrite"
}

// counts lists how many nodes have each value, most frequent first: "2 with ubuntu22.04, 1 with rhel9".
func counts(by map[string]int) string {
	var words []string
	for _, k := range slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(by[b]-by[a], strings.Compare(a, b))
	}) {
		words = append(words, fmt.Sprintf("%d with %s", by[k], k))
	}
	return strings.Join(words, ", ")
}

func runtimeOf(n *corev1.Node) string {
	name, _, _ := strings.Cut(n.Status.NodeInfo.ContainerRuntimeVersion, "://")
	return name
}

// runtimes checks for mixed container runtimes. The operator assumes one runtime for all nodes: containerd if
// any GPU node has it, otherwise the runtime of the last GPU node. On OpenShift, it assumes CRI-O. Source: gpu-operator
// getRuntime.
func runtimes(v *view) []check.Finding {
	if len(v.gpu) == 0 {
		return nil
	}
	chosen, toolkits, by := "", 0, map[string]int{}
	for _, n := range v.gpu {
		name := runtimeOf(n)
		if v.runs("container-toolkit", n) {
			by[cmp.Or(name, "unknown")]++
			toolkits++
		}
		if chosen != "containerd" && slices.Contains([]string{"docker", "containerd", "cri-o"}, name) {
			chosen = name
		}
	}
	if v.openShift() {
		chosen = "cri-o"
	}
	chosen = cmp.Or(chosen, "containerd")
	found := cmp.Or(counts(by), "no node runs the toolkit")
	f := check.Finding{
		Check: containerRuntime, Subject: "container runtimes",
		Reason:   fmt.Sprintf("the toolkit configures %s on %s", chosen, check.Count(toolkits, "GPU node")),
		Evidence: v.listed(cluster.Nodes, "%s", found),
	}
	if !v.is("toolkit.enabled") {
		f.Reason = found + "; toolkit.enabled=false: the nodes' runtimes are not changed"
		f.Evidence = v.setting("toolkit.enabled")
		return []check.Finding{f}
	}
	var wrong []string
	for _, n := range v.gpu {
		if name := runtimeOf(n); name != chosen && name != "" && v.runs("container-toolkit", n) {
			wrong = append(wrong, n.Name)
		}
	}
	if len(wrong) > 0 {
		f.Severity, f.Nodes, f.Cause = check.Error, strings.Join(wrong, ", "), "container runtimes"
		f.Reason = fmt.Sprintf("mixed container runtimes (%s): "+
			"the operator configures %s on all nodes, which is wrong for %s",
			counts(by), chosen, check.Count(len(wrong), "node"))
		f.Fix = "move the nodes to " + chosen + ", or kubectl label node " + strings.Join(wrong, " ") + " " +
			labelOperands + "=false --overwrite"
	}
	return []check.Finding{f}
}

// openShift reports whether the cluster is OpenShift. A gathered folder may lack the CRDs, so the nodes' OS images are
// checked too.
func (v *view) openShift() bool {
	return v.CRD("clusterversions.config.openshift.io") != nil ||
		slices.ContainsFunc(v.Nodes,
			func(n corev1.Node) bool { return strings.HasPrefix(n.Status.NodeInfo.OSImage, rhcos) })
}

// runs reports whether a node should run a component for containers: no label excludes it, and the node is not for
// virtual machines.
func (v *view) runs(component string, n *corev1.Node) bool {
	value := n.Labels[deployPrefix+component]
	return n.Labels[labelOperands] != "false" && value != "false" && (component != "driver" || value != preInstalled) &&
		!v.forMachines(n)
}

// gke reports whether a node has the provider ID and the node pool label of GKE.
func (v *view) gke() bool {
	return slices.ContainsFunc(v.Nodes, func(n corev1.Node) bool {
		return strings.HasPrefix(n.Spec.ProviderID, "gce://") && n.Labels["cloud.google.com/gke-nodepool"] != ""
	})
}

// discovery checks that Node Feature Discovery is installed once, by the chart or independently of it.
func discovery(v *view) []check.Finding {
	if v.DaemonSets == nil {
		return nil // unread has reported it
	}
	var other, own []string
	for _, d := range v.discoverers() {
		// Argo CD and other tools that apply rendered charts do not set this annotation
		name, found := d.Annotations["meta.helm.sh/release-name"]
		if d.Namespace == v.Namespace && strings.HasPrefix(d.Labels["helm.sh/chart"], "node-feature-discovery") &&
			(!found || name == v.helmRelease()) {
			own = append(own, d.Namespace+"/"+d.Name)
		} else {
			other = append(other, d.Namespace+"/"+d.Name)
		}
	}
	all := append(slices.Clone(other), own...)
	f := check.Finding{
		Check: nfd, Subject: "Node Feature Discovery",
		Evidence: v.listed(cluster.DaemonSets, "%d of %d DaemonSets are NFD workers: %s", len(all), len(v.DaemonSets),
			cmp.Or(strings.Join(all, ", "), "none")),
	}
	wanted := v.is("nfd.enabled")
	known := slices.ContainsFunc(v.Nodes, func(n corev1.Node) bool { return cluster.OperatorGPUNode(&n) })
	whole := v.Lacks(cluster.DaemonSets) == nil
	switch {
	case v.openShift() && len(all) > 0:
		f.Reason = "DaemonSet " + all[0] + " is installed; NVIDIA's operator from OperatorHub does not include one"
	case v.openShift() && !known && whole:
		f.Say(check.Error,
			"no NFD worker is installed, and NVIDIA's operator from OperatorHub does not include one: without Red "+
				"Hat's NFD Operator the GPU nodes are not found")
		f.Fix = "install the NFD Operator from OperatorHub, and create a NodeFeatureDiscovery"
	case v.policy != nil && len(other) > 0 && len(own) == 0:
		// the ClusterPolicy does not have nfd.enabled, but the missing worker shows that the Helm release sets it to
		// false
		f.Reason = "DaemonSet " + other[0] + " is installed, and the Helm release does not add a second one"
	case wanted && len(other) > 0:
		f.Say(check.Error,
			"DaemonSet %s is already installed, and the chart would install a second one: "+
				"both would write the same labels", other[0])
		f.Fix = "helm upgrade … --set nfd.enabled=false"
	case wanted && len(own) > 0:
		f.Reason = "DaemonSet " + own[0] + " was installed by the chart"
	case wanted:
		f.Reason = "not installed; the chart will install it"
		v.partial(&f, cluster.DaemonSets)
	case len(all) > 0:
		f.Reason = "DaemonSet " + all[0] + " is installed, and nfd.enabled=false"
	case known:
		f.Say(check.Note, "nfd.enabled=false and no NFD worker is installed, but GPU nodes are labeled already")
	default:
		f.Say(check.Error,
			"nfd.enabled=false and no NFD worker is installed: GPU nodes are not found, and no operand is scheduled")
		f.Fix = "helm upgrade … --set nfd.enabled=true"
		v.partial(&f, cluster.DaemonSets)
	}
	return []check.Finding{f}
}

// helmRelease returns the name of the Helm release that installed the operator, or "gpu-operator" if unknown.
func (v *view) helmRelease() string {
	for _, p := range v.Policies() {
		if name := p.GetAnnotations()["meta.helm.sh/release-name"]; name != "" {
			return name
		}
	}
	return "gpu-operator"
}

// discoverers returns the DaemonSets of Node Feature Discovery workers.
func (v *view) discoverers() []*appsv1.DaemonSet {
	var out []*appsv1.DaemonSet
	for i := range v.DaemonSets {
		d := &v.DaemonSets[i]
		if slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
			return strings.Contains(c.Image, "node-feature-discovery") && (slices.Contains(c.Command, "nfd-worker") ||
				strings.Contains(d.Name, "worker"))
		}) {
			out = append(out, d)
		}
	}
	return out
}

// privileges checks that the namespace allows privileged pods.
func privileges(v *view) []check.Finding {
	if v.Namespaces == nil {
		return nil
	}
	const enforce = "pod-security.kubernetes.io/enforce"
	f := check.Finding{Check: podSecurity, Subject: "Namespace/" + v.Namespace}
	f.Fix = "kubectl label namespace " + v.Namespace + " " + enforce + "=privileged --overwrite"
	i := slices.IndexFunc(v.Namespaces, func(n corev1.Namespace) bool { return n.Name == v.Namespace })
	if i < 0 {
		f.Say(check.Note, "does not exist yet; the operands need the Pod Security level privileged")
		f.Fix = "kubectl create namespace " + v.Namespace + " && " + f.Fix
		f.Evidence = v.listed(cluster.Namespaces, "no %s among the %d namespaces", v.Namespace, len(v.Namespaces))
		return []check.Finding{f}
	}
	level := v.Namespaces[i].Labels[enforce]
	f.Evidence = check.Seen("label", f.Subject, "%s=%s", enforce, level)
	switch {
	case level == "privileged":
		f.Reason, f.Fix = "enforces privileged, which the operands need", ""
	case level == "":
		f.Say(check.Note, "enforces no level; if the cluster's default is not privileged, the operands are rejected")
	case v.is("psa.enabled"):
		f.Severity, f.Reason, f.Fix = check.Note,
			fmt.Sprintf("enforces %s; the operator changes it to privileged because psa.enabled=true", level), ""
	default:
		f.Say(check.Error, "enforces %s: the operands' pods are privileged and will be rejected", level)
	}
	return []check.Finding{f}
}

// quota checks that the namespace allows pods with the operands' priority class.
func quota(v *view) []check.Finding {
	if v.Quotas == nil {
		return nil
	}
	var of []corev1.ResourceQuota
	covered := false
	for _, q := range v.Quotas {
		if q.Namespace != v.Namespace {
			continue
		}
		scoped := coversPriority(&q)
		covered = covered || scoped
		if scoped || q.Spec.ScopeSelector == nil && len(q.Spec.Scopes) == 0 {
			of = append(of, q)
		}
	}
	none := check.Finding{
		Check: priorityQuota, Subject: "system-node-critical",
		Reason: "no quota limits pods of this priority in " + v.Namespace,
		Evidence: v.listed(cluster.Quotas, "%d quotas apply to pods of this priority in namespace %s",
			len(of), v.Namespace),
	}
	if v.gke() && !covered {
		none.Say(check.Error,
			"GKE rejects pods with the priority system-node-critical in namespaces without a quota for "+
				"it, and %s has none", v.Namespace)
		none.Fix = "kubectl create quota gpu-operator-quota -n " + v.Namespace +
			" --hard=pods=100 --scopes=PriorityClass"
	}
	var findings []check.Finding
	if none.Severity != check.OK || len(of) == 0 {
		findings = append(findings, none)
	}
	for _, q := range of {
		f := check.Finding{Check: none.Check, Subject: "ResourceQuota/" + q.Namespace + "/" + q.Name}
		hard, limited := q.Status.Hard[corev1.ResourcePods]
		if !limited {
			hard, limited = q.Spec.Hard[corev1.ResourcePods]
		}
		used := q.Status.Used[corev1.ResourcePods]
		f.Evidence = check.Seen("status", f.Subject, "pods %s of %s", used.String(), hard.String())
		switch {
		case limited && used.Value() >= hard.Value():
			f.Say(check.Error, "%s of %s allowed pods exist: further operand pods would be rejected",
				used.String(), hard.String())
			f.Fix = "kubectl edit resourcequota -n " + q.Namespace + " " + q.Name
		case !limited:
			f.Reason = "does not limit the number of pods"
		default:
			f.Reason = fmt.Sprintf("%s of %s allowed pods exist", used.String(), hard.String())
		}
		findings = append(findings, f)
	}
	return findings
}

// coversPriority reports whether a quota's scopes select the operands' priority class. GKE rejects pods of that class
// in namespaces without such a quota; a quota without scopes is not enough.
func coversPriority(q *corev1.ResourceQuota) bool {
	if q.Spec.ScopeSelector == nil {
		return slices.Contains(q.Spec.Scopes, corev1.ResourceQuotaScopePriorityClass)
	}
	return slices.ContainsFunc(q.Spec.ScopeSelector.MatchExpressions,
		func(e corev1.ScopedResourceSelectorRequirement) bool {
			named := slices.Contains(e.Values, "system-node-critical")
			return e.ScopeName == corev1.ResourceQuotaScopePriorityClass &&
				(e.Operator == corev1.ScopeSelectorOpExists ||
					e.Operator == corev1.ScopeSelectorOpIn && named ||
					e.Operator == corev1.ScopeSelectorOpNotIn && !named)
		})
}

// serviceMonitor checks for the CRD of dcgm-exporter's ServiceMonitor. Before v26.7.0, the operator does not become
// ready without it.
func serviceMonitor(v *view) []check.Finding {
	if v.CRDs == nil {
		return nil
	}
	const setting, definition = "dcgmExporter.serviceMonitor.enabled", "servicemonitors.monitoring.coreos.com"
	there := v.CRD(definition) != nil
	f := check.Finding{Check: serviceMonitorCRD, Subject: setting,
		Evidence: v.listed(cluster.CRDs, "CustomResourceDefinition %s exists: %t", definition, there)}
	switch enabled := v.is(setting); {
	case !enabled:
		f.Reason, f.Evidence = "is false", v.setting(setting)
	case there:
		f.Reason = "is true, and the ServiceMonitor's CustomResourceDefinition is installed"
	case v.Release.Before(monitorsOptional):
		f.Say(check.Error,
			"is true, but the CustomResourceDefinition %s is not installed: the ClusterPolicy never becomes ready",
			definition)
		f.Fix = "install the Prometheus Operator first, or helm upgrade … --set " + setting + "=false"
	default:
		f.Say(check.Note, "is true, but the CustomResourceDefinition %s is not installed: no ServiceMonitor is created",
			definition)
		f.Fix = "install the Prometheus Operator, or scrape dcgm-exporter by annotations"
	}
	return []check.Finding{f}
}

// clients reports DaemonSets that use GPUs without requesting them. They block MIG changes and driver upgrades unless
// the operator may evict them.
func clients(v *view) []check.Finding {
	var findings []check.Finding
	for i := range v.DaemonSets {
		d := &v.DaemonSets[i]
		spec := &d.Spec.Template.Spec
		how := ""
		switch used := usesGPU(spec); {
		case cluster.AsksForGPU(spec):
		case spec.RuntimeClassName != nil && *spec.RuntimeClassName == "nvidia":
			how = "runs with the RuntimeClass nvidia"
		case strings.HasPrefix(used, "/"):
			how = "mounts " + used
		case used != "":
			how = "sets " + used
		}
		if how == "" || v.isOperand(d) || d.Namespace == v.Namespace && strings.HasPrefix(d.Labels["app"], "nvidia-") ||
			slices.ContainsFunc(spec.Containers, registers) {
			continue
		}
		f := check.Finding{
			Check: gpuClient, Subject: "DaemonSet/" + d.Namespace + "/" + d.Name,
			Reason: how + ", and is evicted during MIG changes and driver upgrades",
		}
		f.Evidence = check.Seen("spec", f.Subject, "%s; nodeSelector %s", how, cmp.Or(join(spec.NodeSelector), "none"))
		if spec.NodeSelector[labelClient] != "true" {
			f.Severity = check.Warning
			f.Reason = how +
				" without the nodeSelector nvidia.com/gpu.deploy.client=true: " +
				"it blocks MIG changes and driver upgrades on its nodes"
			f.Fix = makeClient(d.Namespace, d.Name)
			if v.Release.Before(monitorsOptional) {
				f.Fix = fmt.Sprintf("kubectl delete daemonset -n %s %s  # before a MIG change: %s does not evict it",
					d.Namespace, d.Name, v.Release)
			}
		}
		findings = append(findings, f)
	}
	return findings
}

// makeClient returns the command that marks the pods of a DaemonSet as clients, which the operator may evict.
func makeClient(namespace, name string) string {
	const patch = `'{"spec":{"template":{"spec":{"nodeSelector":{"` + labelClient + `":"true"}}}}}'`
	return fmt.Sprintf("kubectl patch daemonset -n %s %s -p %s", namespace, name, patch)
}

// usesGPU returns how a pod uses GPUs without requesting them: an environment variable or a host path. It returns "" if
// the pod has neither.
func usesGPU(s *corev1.PodSpec) string {
	for _, c := range slices.Concat(s.InitContainers, s.Containers) {
		for _, e := range c.Env {
			if e.Name == "NVIDIA_VISIBLE_DEVICES" && e.ValueFrom == nil &&
				!slices.Contains([]string{"", "none", "void"}, e.Value) {
				return "NVIDIA_VISIBLE_DEVICES=" + e.Value
			}
		}
	}
	for _, v := range s.Volumes {
		if v.HostPath != nil &&
			(strings.HasPrefix(v.HostPath.Path, "/dev/nvidia") || strings.HasPrefix(v.HostPath.Path, "/run/nvidia")) {
			return v.HostPath.Path
		}
	}
	return ""
}

func (n *nodeReport) architecture() {
	kube := n.kube
	arch := cmp.Or(kube.Status.NodeInfo.Architecture, kube.Labels["kubernetes.io/arch"])
	f := check.Finding{
		Check: architecture, Subject: "architecture", Reason: arch,
		Evidence: check.Seen("status", "Node/"+kube.Name, "architecture %s", cmp.Or(arch, "none")),
	}
	served := arch == "amd64" || arch == "arm64"
	switch os, _ := systemOf(kube); {
	case kube.Labels[labelOperands] == "false":
		f.Reason = arch + "; nvidia.com/gpu.deploy.operands=false keeps every operand off the node"
		if !served {
			f.Severity = check.Note
		}
	case arch == "":
		f.Say(check.Unknown, "the node's architecture is unknown")
	case !served:
		f.Say(check.Error, "the node is %s; the operator's images support only amd64 and arm64", arch)
		f.Fix = "kubectl label node " + kube.Name + " nvidia.com/gpu.deploy.operands=false --overwrite"
	case arch == "arm64" && os.id == "rhel" && strings.HasPrefix(os.version, "9.") && n.is("driver.enabled") &&
		!n.is("driver.usePrecompiled"):
		f.Say(check.Error, "the node is arm64; the driver containers for RHEL 9 support only amd64")
		f.Fix = "install the driver on the node, then helm upgrade … --set driver.enabled=false"
	}
	n.add(f)
}

// supported checks the node's operating system and runtime against the support matrix.
func (n *nodeReport) supported() {
	kube, systems := n.kube, series(n.Release)
	os, _ := systemOf(kube)
	f := check.Finding{Check: osSupported, Subject: "operating system", Reason: os.String(), Evidence: systemSeen(kube)}
	if len(systems) == 0 {
		f.Say(check.Unknown, "%s; gpuop has no support matrix for %s", cmp.Or(os.String(), "unknown"), n.Release)
		f.Fix = "see the platform support page of " + n.Release.String()
		n.add(f)
		return
	}
	s, known, exact := find(systems, os)
	have, ok := minor(n.Version)
	switch {
	case os.id == "":
		f.Severity, f.Reason = check.Unknown,
			"the node's operating system is unknown: "+cmp.Or(kube.Status.NodeInfo.OSImage,
				"the node's status does not name it")
	case !known && !n.is("driver.enabled"):
		f.Say(check.Note,
			"%s is not in the support matrix of %s, which lists %s; driver.enabled=false, so no driver image is needed",
			os, n.Release, named(systems))
	case !known || !exact:
		f.Say(check.Warning, "%s is not in the support matrix of %s, which lists %s", os, n.Release, named(systems))
		f.Fix = "gpuop explain driver.enabled # a preinstalled driver needs no driver image"
	case ok && s.first > 0 && (have < s.first || have > s.last):
		f.Say(check.Warning, "%s is validated with Kubernetes 1.%d to 1.%d, but the server is %s",
			os, s.first, s.last, n.Version)
		f.Fix = "try another release with gpuop preflight --version"
	}
	n.add(f)
	runs := kube.Status.NodeInfo.ContainerRuntimeVersion
	f = check.Finding{
		Check: runtimeSupported, Subject: "container runtime", Reason: runs,
		Evidence: check.Seen("status", "Node/"+kube.Name, "%s", cmp.Or(runs, "no container runtime")),
	}
	switch name := runtimeOf(kube); {
	case name == "":
		f.Say(check.Unknown, "the node's container runtime is unknown")
	case name == "docker":
		f.Severity, f.Reason, f.Fix = check.Error, "docker is not supported; use containerd or CRI-O",
			"move the node to containerd"
	case len(s.runtimes) > 0 && !slices.Contains(s.runtimes, name):
		f.Say(check.Warning, "%s is not validated on %s; use %s", name, os, strings.Join(s.runtimes, ", "))
		f.Fix = "move the node to " + s.runtimes[0]
	}
	n.add(f)
}

// cdiInRuntime is the first release in which the container runtime injects the GPUs through CDI.
var cdiInRuntime, _ = chart.ParseVersion("v25.10.0")

// cdi checks that the node's container runtime supports CDI if the operator uses it.
func (n *nodeReport) cdi() {
	runs := n.kube.Status.NodeInfo.ContainerRuntimeVersion
	version, isContainerd := strings.CutPrefix(runs, "containerd://")
	minor, ok := minor(version)
	old := isContainerd && ok && minor < 7
	if !old || !n.is("cdi.enabled") || n.Release.Before(cdiInRuntime) || !n.runs("container-toolkit", n.kube) {
		return
	}
	f := check.Finding{Check: cdiSupport, Subject: "container runtime", Cause: "CDI " + runs}
	f.Evidence = check.Seen("status", "Node/"+n.kube.Name, "%s", runs)
	f.Say(check.Error, "containerd %s does not support CDI, which %s uses to give GPUs to containers: pods get no GPU",
		version, n.Release)
	f.Fix = "helm upgrade … --set cdi.enabled=false  # or upgrade containerd to 1.7 or later"
	n.add(f)
}

// tolerant is a group of pods with the same tolerations. path is the setting or object that defines the tolerations.
type tolerant struct {
	path, what string
	have       []corev1.Toleration
	// discovers means that the pods only label nodes. Nodes that already have the labels do not need the pods.
	discovers bool
}

// tolerants returns the operands and the NFD worker with their tolerations. If a ClusterPolicy is in force, the
// tolerations in the cluster are used, otherwise those in the values and the chart. The worker is left out if the chart
// does not install it, or if the cluster has no worker or several.
func (v *view) tolerants() []tolerant {
	const what = "the NFD worker, so the operator never finds the GPUs"
	all := []tolerant{{
		path: "daemonsets.tolerations", what: "the operands, so the node gets none of them",
		have: node.OperandTolerations(v.tolerations("daemonsets.tolerations")),
	}}
	if v.policy == nil {
		const path = "node-feature-discovery.worker.tolerations"
		if v.is("nfd.enabled") {
			all = append(all, tolerant{path: path, what: what, have: v.tolerations(path)})
		}
		return all
	}
	// if there are several workers, it is unknown which one labels a node
	if there := v.discoverers(); len(there) == 1 {
		d := there[0]
		all = append(all,
			tolerant{"the tolerations of DaemonSet/" + d.Namespace + "/" + d.Name, what,
				d.Spec.Template.Spec.Tolerations, true})
	}
	return all
}

// taints compares the node's taints with the tolerations of the operands and the NFD worker. It also notes if no taint
// keeps other pods off the node.
func (n *nodeReport) taints() {
	kube, kept, ok := n.kube, false, true
	for _, taint := range taintsOf(kube) {
		kept = kept || taint.Effect != corev1.TaintEffectPreferNoSchedule
		for _, who := range n.tolerants() {
			if node.Covered(who.have, taint) || who.discovers && cluster.OperatorGPUNode(kube) {
				continue
			}
			ok = false
			n.add(check.Finding{
				Check: untolerated, Severity: check.Error, Subject: who.path,
				Cause:    fmt.Sprintf("taint %s %s", taint.ToString(), who.path),
				Evidence: check.Seen("taint", "Node/"+kube.Name, "%s", taint.ToString()),
				Reason:   fmt.Sprintf("the taint %s is not tolerated by %s", taint.ToString(), who.what),
				Fix: fmt.Sprintf("add {key: %s, operator: Exists, effect: %s} to %s",
					taint.Key, taint.Effect, who.path),
			})
		}
	}
	spec := check.Seen("spec", "Node/"+kube.Name, "%s", check.Count(len(kube.Spec.Taints), "taint"))
	if ok {
		reason := "has no taint that keeps pods away"
		if kept {
			reason = "the operands tolerate all taints"
		}
		n.add(check.Finding{Check: untolerated, Subject: "taints", Reason: reason, Evidence: spec})
	}
	if len(n.gpu) == len(n.Nodes) {
		return // pods without GPUs have no other node to run on
	}
	if !kept && n.Lacks(cluster.Nodes) == nil {
		n.add(check.Finding{
			Check: untainted, Severity: check.Note, Subject: "taints", Evidence: spec,
			Reason: "no taint keeps pods without GPU requests off the node", Fix: "kubectl taint node " + kube.Name +
				" nvidia.com/gpu=present:NoSchedule",
		})
	}
}
