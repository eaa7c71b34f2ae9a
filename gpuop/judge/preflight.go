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
	have, ok := minor(v.Version)
	f := check.Finding{Check: kubernetesVersion, Subject: "Kubernetes",
		Evidence: check.Seen("answer", "/version", "%s", cmp.Or(v.Version, "none"))}
	f.Say(check.OK, "%s; %s supports 1.%d to 1.%d", v.Version, v.Release, first, last)
	switch {
	case !ok:
		say(&f, check.Unknown, "kubectl version -o yaml > version.yaml", "the server's version is unknown")
	case first == 0:
		say(&f, check.Unknown, platformPage+v.Release.String(), noMatrix, v.Version, v.Release)
	case have < first:
		say(&f, check.Error, "upgrade Kubernetes, or try an older release with gpuop preflight --version",
			"%s is too old: %s supports 1.%d to 1.%d", v.Version, v.Release, first, last)
	case have > last:
		say(&f, check.Warning, "gpuop preflight --version latest",
			"%s is newer than the versions validated with %s: 1.%d to 1.%d", v.Version, v.Release, first, last)
	}
	return []check.Finding{f}
}

const (
	noMatrix     = "%s; gpuop has no support matrix for %s"
	platformPage = "see the platform support page of "
)

// system is an operating system as named in the driver's image tags.
type system struct{ id, version string }

func (s system) tag(v chart.Version) string { return v.SystemTag(s.id, s.version) }

func (s system) String() string { return strings.TrimSpace(s.id + " " + s.version) }

const (
	labelID      = nfdPrefix + "system-os_release.ID"
	labelVersion = nfdPrefix + "system-os_release.VERSION_ID"
	// rhcos is the prefix of the OS image of OpenShift nodes. Since OpenShift 4.19, their os-release names RHEL.
	rhcos = "Red Hat Enterprise Linux CoreOS "
)

// monitorsOptional is the first release that becomes ready without the ServiceMonitor CRD. Since this release, the
// operator also evicts clients.
var monitorsOptional, _ = chart.ParseVersion("v26.7.0")

// images maps prefixes of the OS image in a node's status to an ID.
var images = []struct{ prefix, id string }{
	{rhcos, "rhcos"}, {"Ubuntu ", "ubuntu"}, {"Red Hat Enterprise Linux ", "rhel"}, {"Rocky Linux ", "rocky"},
	{"Oracle Linux Server ", "ol"}, {"SUSE Linux Enterprise Server ", "sles"}, {"Debian GNU/Linux ", "debian"},
	{"Amazon Linux ", "amzn"}, {"Container-Optimized OS", "cos"}, {"Bottlerocket OS ", "bottlerocket"},
	{"Talos", "talos"}, {"Flatcar ", "flatcar"},
}

// systemOf returns a node's operating system: RHCOS according to its status, and others according to NFD's labels or,
// without labels, the status.
func systemOf(n *corev1.Node) system {
	image := n.Status.NodeInfo.OSImage
	id, version := n.Labels[labelID], n.Labels[labelVersion]
	if id != "" && version != "" && !strings.HasPrefix(image, rhcos) {
		return system{id, version}
	}
	for _, i := range images {
		if rest, found := strings.CutPrefix(image, i.prefix); found {
			version, _, _ := strings.Cut(rest, " ")
			if i.id == "ubuntu" { // the tags use 22.04, not 22.04.4
				version = version[:min(len(version), len("22.04"))]
			}
			return system{i.id, version}
		}
	}
	return system{}
}

func systemSeen(n *corev1.Node) check.Evidence {
	return check.Seen("status", "Node/"+n.Name, "%s; NFD: %s %s",
		n.Status.NodeInfo.OSImage, n.Labels[labelID], n.Labels[labelVersion])
}

// mixed counts the GPU nodes that run a component by a property, such as "2 with ubuntu22.04, 1 with rhel9", and lists
// those whose property is not the chosen one. An unknown property is "".
func (v *view) mixed(
	component, chosen string, property func(*corev1.Node) string,
) (nodes int, text string, wrong []string) {
	by := map[string]int{}
	for _, n := range v.gpu {
		if v.runs(component, n) {
			nodes++
			by[cmp.Or(property(n), "unknown")]++
			if property(n) != chosen {
				wrong = append(wrong, n.Name)
			}
		}
	}
	var words []string
	for _, k := range slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(by[b]-by[a], strings.Compare(a, b))
	}) {
		words = append(words, fmt.Sprintf("%d with %s", by[k], k))
	}
	return nodes, cmp.Or(strings.Join(words, ", "), "no GPU node runs the "+component), wrong
}

// driverSystems checks for mixed operating systems. The operator selects the driver image for all nodes by the
// operating system of the first GPU node.
func driverSystems(v *view) []check.Finding {
	if len(v.gpu) == 0 {
		return nil
	}
	first := v.gpu[0]
	os := systemOf(first)
	tag := os.tag(v.Release)
	nodes, text, wrong := v.mixed("driver", tag, func(n *corev1.Node) string { return systemOf(n).tag(v.Release) })
	f := check.Finding{Check: driverOS, Subject: "operating systems", Evidence: systemSeen(first)}
	precompiled := v.is("driver.usePrecompiled")
	switch {
	case nodes == 0 || !v.is("driver.enabled"):
		f.Reason, f.Evidence = text+"; the operator installs no driver", v.setting("driver.enabled")
	case v.is("driver.nvidiaDriverCRD.enabled"):
		f.Reason = text + "; each NVIDIADriver selects the image for its nodes"
		f.Evidence = v.setting("driver.nvidiaDriverCRD.enabled")
	case !precompiled && (os.id == "rhcos" || v.openShift() && v.get("operator.use_ocp_driver_toolkit") != false):
		f.Reason = "OpenShift's driver toolkit builds the driver for each version of RHCOS"
	case os.id == "":
		say(&f, check.Error, "kubectl get node "+first.Name+" -o jsonpath='{.metadata.labels}'", "the operator cannot "+
			"continue: the operating system of %s, the first GPU node, is unknown because NFD has not set %s",
			first.Name, labelID)
	case len(wrong) > 0:
		f.Nodes, f.Cause = strings.Join(wrong, ", "), f.Subject
		say(&f, check.Error, driverForEachSystem(wrong...), "mixed operating systems (%s): all nodes get the driver "+
			"image of %s (%s), which is wrong for %s", text, first.Name, tag, check.Count(len(wrong), "node"))
	default:
		get, their, them := "GPU nodes get", "their", "them"
		if nodes == 1 {
			get, their, them = "GPU node gets", "its", "it"
		}
		f.Reason = fmt.Sprintf("%d %s the driver image for %s", nodes, get, tag)
		if precompiled {
			f.Reason += ", one for each kernel"
		}
		if first.Labels[labelID] == "" {
			f.Reason += ", according to " + their + " status: NFD has not labeled " + them + " yet"
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
	chosen := "containerd"
	if v.openShift() {
		chosen = "cri-o"
	} else if !slices.ContainsFunc(v.gpu, func(n *corev1.Node) bool { return runtimeOf(n) == chosen }) {
		chosen = cmp.Or(runtimeOf(v.gpu[len(v.gpu)-1]), chosen)
	}
	nodes, text, wrong := v.mixed("container-toolkit", chosen,
		func(n *corev1.Node) string { return cmp.Or(runtimeOf(n), chosen) })
	f := check.Finding{Check: containerRuntime, Subject: "container runtimes",
		Reason:   fmt.Sprintf("the toolkit configures %s on %s", chosen, check.Count(nodes, "GPU node")),
		Evidence: v.listed(cluster.Nodes, "%s", text)}
	if !v.is("toolkit.enabled") {
		f.Reason, f.Evidence = text+"; the operator does not change the runtimes", v.setting("toolkit.enabled")
	} else if len(wrong) > 0 {
		f.Nodes, f.Cause = strings.Join(wrong, ", "), f.Subject
		say(&f, check.Error, "move the nodes to "+chosen+", or kubectl label node "+strings.Join(wrong, " ")+" "+
			labelOperands+"=false --overwrite", "mixed container runtimes (%s): the operator configures %s on all "+
			"nodes, which is wrong for %s", text, chosen, check.Count(len(wrong), "node"))
	}
	return []check.Finding{f}
}

// openShift reports whether the cluster is OpenShift. A gathered folder may lack the CRDs, so the nodes' OS images are
// checked too.
func (v *view) openShift() bool {
	return v.CRD("clusterversions.config.openshift.io") != nil || slices.ContainsFunc(v.Nodes,
		func(n corev1.Node) bool { return strings.HasPrefix(n.Status.NodeInfo.OSImage, rhcos) })
}

// runs reports whether a node should run a component for containers: no label excludes it, and the node is not for
// virtual machines.
func (v *view) runs(component string, n *corev1.Node) bool {
	value := n.Labels[deployPrefix+component]
	return n.Labels[labelOperands] != "false" && value != "false" && (component != "driver" || value != preInstalled) &&
		!v.forMachines(n)
}

// discovery checks that Node Feature Discovery is installed once, by the chart or independently of it.
func discovery(v *view) []check.Finding {
	if v.DaemonSets == nil {
		return nil // unread has reported it
	}
	// Argo CD and other tools that apply rendered charts do not set this annotation
	const helmRelease = "meta.helm.sh/release-name"
	ours := "gpu-operator"
	for _, p := range slices.Backward(v.Policies()) {
		ours = cmp.Or(p.GetAnnotations()[helmRelease], ours)
	}
	var other, all []string
	for _, d := range v.discoverers() {
		name := d.Namespace + "/" + d.Name
		all = append(all, name)
		if d.Namespace != v.Namespace || !strings.HasPrefix(d.Labels["helm.sh/chart"], "node-feature-discovery") ||
			cmp.Or(d.Annotations[helmRelease], ours) != ours {
			other = append(other, name)
		}
	}
	workers := cmp.Or(strings.Join(all, ", "), "none")
	f := check.Finding{Check: nfd, Subject: "Node Feature Discovery", Reason: "workers: " + workers,
		Evidence: v.listed(cluster.DaemonSets, "NFD workers among %d DaemonSets: %s", len(v.DaemonSets), workers)}
	wanted := v.is("nfd.enabled")
	known := slices.ContainsFunc(v.Nodes, func(n corev1.Node) bool { return cluster.OperatorGPUNode(&n) })
	switch {
	case v.openShift() && len(all) > 0, v.policy != nil && len(other) > 0 && len(other) == len(all):
		// the ClusterPolicy does not have nfd.enabled, but the missing worker shows that the Helm release sets it to
		// false
	case v.openShift() && !known && v.why(cluster.DaemonSets) == "":
		say(&f, check.Error, "install the NFD Operator from OperatorHub, and create a NodeFeatureDiscovery",
			"no NFD worker is installed, and NVIDIA's operator from OperatorHub does not include one: without Red "+
				"Hat's NFD Operator the GPU nodes are not found")
	case wanted && len(other) > 0:
		say(&f, check.Error, "helm upgrade … --set nfd.enabled=false", "DaemonSet %s is already installed, and the "+
			"chart would install a second one: both would write the same labels", other[0])
	case len(all) > 0:
	case wanted:
		f.Reason = "not installed; the chart will install it"
		v.partial(&f, cluster.DaemonSets)
	case known:
		f.Say(check.Note, "nfd.enabled=false and no NFD worker is installed, but GPU nodes are labeled already")
	default:
		say(&f, check.Error, "helm upgrade … --set nfd.enabled=true", "nfd.enabled=false and no NFD worker is "+
			"installed: GPU nodes are not found, and no operand is scheduled")
		v.partial(&f, cluster.DaemonSets)
	}
	return []check.Finding{f}
}

// discoverers returns the DaemonSets of Node Feature Discovery workers.
func (v *view) discoverers() (out []*appsv1.DaemonSet) {
	for i := range v.DaemonSets {
		d := &v.DaemonSets[i]
		if slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
			return strings.Contains(c.Image, "node-feature-discovery") &&
				(slices.Contains(c.Command, "nfd-worker") || strings.Contains(d.Name, "worker"))
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
	fix := "kubectl label namespace " + v.Namespace + " " + enforce + "=privileged --overwrite"
	i := slices.IndexFunc(v.Namespaces, func(n corev1.Namespace) bool { return n.Name == v.Namespace })
	if i < 0 {
		say(&f, check.Note, "kubectl create namespace "+v.Namespace+" && "+fix,
			"does not exist yet; the operands need the Pod Security level privileged")
		f.Evidence = v.listed(cluster.Namespaces, "no %s among the %d namespaces", v.Namespace, len(v.Namespaces))
		return []check.Finding{f}
	}
	level := v.Namespaces[i].Labels[enforce]
	f.Evidence = check.Seen("label", f.Subject, "%s=%s", enforce, level)
	switch {
	case level == "privileged":
		f.Reason = "enforces privileged, which the operands need"
	case level == "":
		say(&f, check.Note, fix,
			"enforces no level; if the cluster's default is not privileged, the operands are rejected")
	case v.is("psa.enabled"):
		f.Say(check.Note, "enforces %s; the operator changes it to privileged because psa.enabled=true", level)
	default:
		say(&f, check.Error, fix, "enforces %s: the operands' pods are privileged and will be rejected", level)
	}
	return []check.Finding{f}
}

// quota checks that the namespace allows pods with the operands' priority class. GKE rejects pods of that class in
// namespaces without a quota for it; a quota without scopes is not enough.
func quota(v *view) []check.Finding {
	if v.Quotas == nil {
		return nil
	}
	var findings []check.Finding
	covered := false
	for _, q := range v.Quotas {
		scoped := coversPriority(&q)
		if q.Namespace != v.Namespace || !scoped && (q.Spec.ScopeSelector != nil || len(q.Spec.Scopes) > 0) {
			continue
		}
		covered = covered || scoped
		hard, limited := q.Status.Hard[corev1.ResourcePods]
		if !limited {
			hard, limited = q.Spec.Hard[corev1.ResourcePods]
		}
		if used := q.Status.Used[corev1.ResourcePods]; limited && used.Value() >= hard.Value() {
			name := "ResourceQuota/" + q.Namespace + "/" + q.Name
			findings = append(findings, check.Finding{Check: priorityQuota, Severity: check.Error, Subject: name,
				Reason: fmt.Sprintf("%s of %s allowed pods exist: further operand pods would be rejected",
					used.String(), hard.String()),
				Fix:      "kubectl edit resourcequota -n " + q.Namespace + " " + q.Name,
				Evidence: check.Seen("status", name, "pods %s of %s", used.String(), hard.String())})
		}
	}
	f := check.Finding{Check: priorityQuota, Subject: "system-node-critical",
		Reason:   "no quota prevents pods of this priority in " + v.Namespace,
		Evidence: v.listed(cluster.Quotas, "quotas: %d", len(v.Quotas))}
	gke := slices.ContainsFunc(v.Nodes, func(n corev1.Node) bool {
		return strings.HasPrefix(n.Spec.ProviderID, "gce://") && n.Labels["cloud.google.com/gke-nodepool"] != ""
	})
	if gke && !covered {
		say(&f, check.Error,
			"kubectl create quota gpu-operator-quota -n "+v.Namespace+" --hard=pods=100 --scopes=PriorityClass",
			"GKE rejects pods with this priority in namespaces without a quota for it, and %s has none", v.Namespace)
	} else if len(findings) > 0 {
		return findings
	}
	return append(findings, f)
}

// coversPriority reports whether a quota's scopes select the operands' priority class.
func coversPriority(q *corev1.ResourceQuota) bool {
	if q.Spec.ScopeSelector == nil {
		return slices.Contains(q.Spec.Scopes, corev1.ResourceQuotaScopePriorityClass)
	}
	return slices.ContainsFunc(q.Spec.ScopeSelector.MatchExpressions,
		func(e corev1.ScopedResourceSelectorRequirement) bool {
			named := slices.Contains(e.Values, "system-node-critical")
			return e.ScopeName == corev1.ResourceQuotaScopePriorityClass &&
				(e.Operator == corev1.ScopeSelectorOpExists || e.Operator == corev1.ScopeSelectorOpIn && named ||
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
	f := check.Finding{Check: serviceMonitorCRD, Subject: setting, Reason: "is false", Evidence: v.setting(setting)}
	if !v.is(setting) {
		return []check.Finding{f}
	}
	if f.Reason = "is true, and its CRD is installed"; v.CRD(definition) != nil {
		return []check.Finding{f}
	}
	f.Evidence = v.listed(cluster.CRDs, "no CustomResourceDefinition %s", definition)
	if v.Release.Before(monitorsOptional) {
		say(&f, check.Error, "install the Prometheus Operator first, or helm upgrade … --set "+setting+"=false",
			"is true, but its CRD %s is not installed: the ClusterPolicy never becomes ready", definition)
	} else {
		say(&f, check.Note, "install the Prometheus Operator, or scrape dcgm-exporter by annotations",
			"is true, but its CRD %s is not installed: no ServiceMonitor is created", definition)
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
		how := usesGPU(spec)
		if spec.RuntimeClassName != nil && *spec.RuntimeClassName == "nvidia" {
			how = "the RuntimeClass nvidia"
		}
		if how == "" || cluster.AsksForGPU(spec) || v.isOperand(d) || slices.ContainsFunc(spec.Containers, registers) ||
			d.Namespace == v.Namespace && strings.HasPrefix(d.Labels["app"], "nvidia-") {
			continue
		}
		f := check.Finding{Check: gpuClient, Subject: "DaemonSet/" + d.Namespace + "/" + d.Name,
			Reason: "uses " + how + ", and is evicted during MIG changes and driver upgrades"}
		f.Evidence = check.Seen("spec", f.Subject, "%s; nodeSelector %s", how, cmp.Or(join(spec.NodeSelector), "none"))
		if spec.NodeSelector[labelClient] != "true" {
			say(&f, check.Warning, makeClient(d.Namespace, d.Name), "uses %s without the nodeSelector %s=true: "+
				"it blocks MIG changes and driver upgrades on its nodes", how, labelClient)
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
	arch := cmp.Or(n.kube.Status.NodeInfo.Architecture, n.kube.Labels["kubernetes.io/arch"])
	f := check.Finding{Check: architecture, Subject: "architecture", Reason: arch,
		Evidence: check.Seen("status", "Node/"+n.kube.Name, "architecture %s", cmp.Or(arch, "none"))}
	served, off := arch == "amd64" || arch == "arm64", n.kube.Labels[labelOperands] == "false"
	switch os := systemOf(n.kube); {
	case off && served:
	case off:
		f.Say(check.Note, "%s; %s=false keeps every operand off the node", arch, labelOperands)
	case arch == "":
		f.Say(check.Unknown, "the node's architecture is unknown")
	case !served:
		say(&f, check.Error, n.relabel(labelOperands+"=false --overwrite"),
			"the node is %s; the operator's images support only amd64 and arm64", arch)
	case arch == "arm64" && os.id == "rhel" && strings.HasPrefix(os.version, "9.") && n.is("driver.enabled") &&
		!n.is("driver.usePrecompiled"):
		say(&f, check.Error, "install the driver on the node, then helm upgrade … --set driver.enabled=false",
			"the node is arm64; the driver containers for RHEL 9 support only amd64")
	}
	n.add(f)
}

// supported checks the node's operating system and runtime against the support matrix.
func (n *nodeReport) supported() {
	systems, os, runs := series(n.Release), systemOf(n.kube), n.kube.Status.NodeInfo.ContainerRuntimeVersion
	s, known, exact := find(systems, os)
	have, ok := minor(n.Version)
	f := check.Finding{Check: osSupported, Subject: "operating system", Reason: os.String(),
		Evidence: systemSeen(n.kube)}
	const unlisted = "%s is not in the support matrix of %s, which lists %s"
	switch {
	case len(systems) == 0:
		say(&f, check.Unknown, platformPage+n.Release.String(), noMatrix, cmp.Or(os.String(), "unknown"), n.Release)
	case os.id == "":
		f.Say(check.Unknown, "the node's operating system is unknown: %s",
			cmp.Or(n.kube.Status.NodeInfo.OSImage, "the node's status does not name it"))
	case !known && !n.is("driver.enabled"):
		f.Say(check.Note, unlisted+"; driver.enabled=false needs no driver image", os, n.Release, named(systems))
	case !known || !exact:
		say(&f, check.Warning, "gpuop explain driver.enabled # a preinstalled driver needs no driver image",
			unlisted, os, n.Release, named(systems))
	case ok && s.first > 0 && (have < s.first || have > s.last):
		say(&f, check.Warning, "try another release with gpuop preflight --version",
			"%s is validated with Kubernetes 1.%d to 1.%d, but the server is %s", os, s.first, s.last, n.Version)
	}
	n.add(f)
	f = check.Finding{Check: runtimeSupported, Subject: "container runtime", Reason: runs,
		Evidence: check.Seen("status", "Node/"+n.kube.Name, "%s", cmp.Or(runs, "no container runtime"))}
	switch name := runtimeOf(n.kube); {
	case name == "":
		f.Say(check.Unknown, "the node's container runtime is unknown")
	case name == "docker":
		say(&f, check.Error, "move the node to containerd", "docker is not supported; use containerd or CRI-O")
	case len(s.runtimes) > 0 && !slices.Contains(s.runtimes, name):
		say(&f, check.Warning, "move the node to "+s.runtimes[0],
			"%s is not validated on %s; use %s", name, os, strings.Join(s.runtimes, ", "))
	}
	if len(systems) > 0 {
		n.add(f)
	}
}

// cdiInRuntime is the first release in which the container runtime injects the GPUs through CDI.
var cdiInRuntime, _ = chart.ParseVersion("v25.10.0")

// cdi checks that the node's container runtime supports CDI if the operator uses it.
func (n *nodeReport) cdi() {
	runs := n.kube.Status.NodeInfo.ContainerRuntimeVersion
	version, isContainerd := strings.CutPrefix(runs, "containerd://")
	minor, ok := minor(version)
	if !isContainerd || !ok || minor >= 7 || !n.is("cdi.enabled") || n.Release.Before(cdiInRuntime) ||
		!n.runs("container-toolkit", n.kube) {
		return
	}
	f := check.Finding{Check: cdiSupport, Subject: "container runtime", Cause: "CDI " + runs,
		Evidence: check.Seen("status", "Node/"+n.kube.Name, "%s", runs)}
	say(&f, check.Error, "helm upgrade … --set cdi.enabled=false  # or upgrade containerd to 1.7 or later",
		"containerd %s does not support CDI, which %s uses to give GPUs to containers: pods get no GPU",
		version, n.Release)
	n.add(f)
}

// tolerant is a group of pods with the same tolerations. path is the setting or object that defines the tolerations.
type tolerant struct {
	path, what string
	have       []corev1.Toleration
}

// tolerants returns the operands and the NFD worker with their tolerations. If a ClusterPolicy is in force, the
// tolerations in the cluster are used, otherwise those in the values and the chart. The worker is left out if the chart
// does not install it, if the node has its labels already, or if the cluster has no worker or several: then it is
// unknown which one labels a node.
func (n *nodeReport) tolerants() []tolerant {
	const what = "the NFD worker, so the operator never finds the GPUs"
	const operands, worker = "daemonsets.tolerations", "node-feature-discovery.worker.tolerations"
	all := []tolerant{{operands, "the operands, so the node gets none of them",
		node.OperandTolerations(n.tolerations(operands))}}
	switch workers := n.discoverers(); {
	case n.policy == nil && n.is("nfd.enabled"):
		all = append(all, tolerant{worker, what, n.tolerations(worker)})
	case n.policy != nil && len(workers) == 1 && !cluster.OperatorGPUNode(n.kube):
		d := workers[0]
		all = append(all, tolerant{"the tolerations of DaemonSet/" + d.Namespace + "/" + d.Name, what,
			d.Spec.Template.Spec.Tolerations})
	}
	return all
}

// taints compares the node's taints with the tolerations of the operands and the NFD worker. It also notes if no taint
// keeps other pods off the node.
func (n *nodeReport) taints() {
	kept, ok := false, true
	for _, taint := range n.kube.Spec.Taints {
		if !node.Stays(taint) {
			continue
		}
		kept = kept || taint.Effect != corev1.TaintEffectPreferNoSchedule
		for _, who := range n.tolerants() {
			if node.Covered(who.have, taint) {
				continue
			}
			ok = false
			text := taint.ToString()
			f := check.Finding{Check: untolerated, Subject: who.path, Cause: "taint " + text + " " + who.path,
				Evidence: check.Seen("taint", "Node/"+n.kube.Name, "%s", text)}
			say(&f, check.Error, fmt.Sprintf("add {key: %s, operator: Exists, effect: %s} to %s",
				taint.Key, taint.Effect, who.path), "the taint %s is not tolerated by %s", text, who.what)
			n.add(f)
		}
	}
	f := check.Finding{Check: untolerated, Subject: "taints", Reason: "the operands tolerate all taints",
		Evidence: check.Seen("spec", "Node/"+n.kube.Name, "%s", check.Count(len(n.kube.Spec.Taints), "taint"))}
	if !kept {
		f.Reason = "no taint keeps pods away"
	}
	if ok {
		n.add(f)
	}
	// without other nodes, pods without GPUs must run here
	if !kept && len(n.gpu) < len(n.Nodes) && n.why(cluster.Nodes) == "" {
		f.Check = untainted
		say(&f, check.Note, "kubectl taint node "+n.kube.Name+" nvidia.com/gpu=present:NoSchedule",
			"no taint keeps pods without GPU requests off the node")
		n.add(f)
	}
}
