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
func (j *judge) kubernetes() {
	first, last := 0, 0
	for _, r := range series(j.Release) {
		if r.first > 0 {
			first, last = min(cmp.Or(first, r.first), r.first), max(last, r.last)
		}
	}
	version := j.Version
	have, ok := minor(version)
	v := check.Finding{Check: kubernetesVersion, Subject: "Kubernetes", Evidence: check.Seen("answer", "/version", "%s", cmp.Or(version, "none"))}
	switch {
	case !ok:
		v.Severity, v.Reason, v.Fix = check.Unknown, "the server's version is unknown", "kubectl version -o yaml > version.yaml"
	case first == 0:
		v.Say(check.Unknown, "%s; gpuop has no support matrix for %s", version, j.Release)
		v.Fix = "see the platform support page of " + j.Release.String()
	case have < first:
		v.Say(check.Error, "%s is too old: %s supports 1.%d to 1.%d", version, j.Release, first, last)
		v.Fix = "upgrade Kubernetes, or try an older release with gpuop preflight --version"
	case have > last:
		v.Say(check.Warning, "%s is newer than the versions validated with %s: 1.%d to 1.%d", version, j.Release, first, last)
		v.Fix = "gpuop preflight --version latest"
	default:
		v.Reason = fmt.Sprintf("%s is in the range 1.%d to 1.%d that %s supports", version, first, last, j.Release)
	}
	j.add(v)
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
	{"Oracle Linux Server ", "ol"}, {"SUSE Linux Enterprise Server ", "sles"}, {"Debian GNU/Linux ", "debian"}, {"Amazon Linux ", "amzn"},
	{"Container-Optimized OS", "cos"}, {"Bottlerocket OS ", "bottlerocket"}, {"Talos", "talos"}, {"Flatcar ", "flatcar"},
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
	return check.Seen("status", "Node/"+n.Name, "%s, %s=%s, %s=%s", n.Status.NodeInfo.OSImage, labelID, n.Labels[labelID],
		labelVersion, n.Labels[labelVersion])
}

// driverOS checks for mixed operating systems. The operator selects the driver image for all nodes by the operating
// system of the first GPU node.
func (j *judge) driverOS() {
	if len(j.gpu) == 0 {
		return
	}
	first := j.gpu[0]
	os, labeled := systemOf(first)
	tag := os.tag(j.Release)
	v := check.Finding{Check: driverOS, Subject: "operating systems", Evidence: systemSeen(first)}
	drivers, byOS := 0, map[string]int{}
	var wrong []string
	for _, n := range j.gpu {
		if !j.runs("driver", n) {
			continue
		}
		drivers++
		s, _ := systemOf(n)
		byOS[cmp.Or(s.tag(j.Release), "unknown")]++
		if s.tag(j.Release) != tag {
			wrong = append(wrong, n.Name)
		}
	}
	precompiled := j.is("driver.usePrecompiled")
	switch {
	case drivers == 0:
		v.Reason = "no GPU node gets the operator's driver container"
	case !j.is("driver.enabled"):
		v.Reason, v.Evidence = fmt.Sprintf("%s; driver.enabled=false: the nodes need their own drivers", counts(byOS)), j.setting("driver.enabled")
	case j.is("driver.nvidiaDriverCRD.enabled"):
		v.Reason = fmt.Sprintf("%s; each NVIDIADriver selects the image for its nodes", counts(byOS))
		v.Evidence = j.setting("driver.nvidiaDriverCRD.enabled")
	case !precompiled && (os.id == "rhcos" || j.openShift() && j.get("operator.use_ocp_driver_toolkit") != false):
		v.Reason = "OpenShift's driver toolkit builds the driver for each version of RHCOS"
	case os.id == "":
		v.Say(check.Error, "the operator cannot continue: the operating system of %s, the first GPU node, is unknown because "+
			"NFD has not set %s", first.Name, labelID)
		v.Fix = "kubectl get node " + first.Name + " -o jsonpath='{.metadata.labels}'"
	case len(wrong) > 0:
		v.Severity, v.Nodes, v.Cause = check.Error, strings.Join(wrong, ", "), "operating systems"
		v.Reason = fmt.Sprintf("mixed operating systems (%s): all nodes get the driver image of %s (%s), which is wrong for %s",
			counts(byOS), first.Name, tag, check.Count(len(wrong), "node"))
		v.Fix = driverForEachSystem(wrong...)
	default:
		v.Reason = fmt.Sprintf("%d GPU nodes get the driver image for %s", drivers, tag)
		if drivers == 1 {
			v.Reason = fmt.Sprintf("1 GPU node gets the driver image for %s", tag)
		}
		if precompiled {
			v.Reason += ", one for each kernel"
		}
		if !labeled {
			v.Reason += ", according to their status: NFD has not labeled them yet"
		}
	}
	j.add(v)
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

// containerRuntime checks for mixed container runtimes. The operator assumes one runtime for all nodes: containerd if
// any GPU node has it, otherwise the runtime of the last GPU node. On OpenShift, it assumes CRI-O. Source: gpu-operator
// getRuntime.
func (j *judge) containerRuntime() {
	if len(j.gpu) == 0 {
		return
	}
	chosen, toolkits, by := "", 0, map[string]int{}
	for _, n := range j.gpu {
		name := runtimeOf(n)
		if j.runs("container-toolkit", n) {
			by[cmp.Or(name, "unknown")]++
			toolkits++
		}
		if chosen != "containerd" && slices.Contains([]string{"docker", "containerd", "cri-o"}, name) {
			chosen = name
		}
	}
	if j.openShift() {
		chosen = "cri-o"
	}
	chosen = cmp.Or(chosen, "containerd")
	found := cmp.Or(counts(by), "no node runs the toolkit")
	v := check.Finding{
		Check: containerRuntime, Subject: "container runtimes",
		Reason:   fmt.Sprintf("the toolkit configures %s on %s", chosen, check.Count(toolkits, "GPU node")),
		Evidence: j.listed(cluster.Nodes, "%s", found),
	}
	if !j.is("toolkit.enabled") {
		v.Reason = found + "; toolkit.enabled=false: the nodes' runtimes are not changed"
		v.Evidence = j.setting("toolkit.enabled")
		j.add(v)
		return
	}
	var wrong []string
	for _, n := range j.gpu {
		if name := runtimeOf(n); name != chosen && name != "" && j.runs("container-toolkit", n) {
			wrong = append(wrong, n.Name)
		}
	}
	if len(wrong) > 0 {
		v.Severity, v.Nodes, v.Cause = check.Error, strings.Join(wrong, ", "), "container runtimes"
		v.Reason = fmt.Sprintf("mixed container runtimes (%s): the operator configures %s on all nodes, which is wrong for %s",
			counts(by), chosen, check.Count(len(wrong), "node"))
		v.Fix = "move the nodes to " + chosen + ", or kubectl label node " + strings.Join(wrong, " ") + " " + labelOperands + "=false --overwrite"
	}
	j.add(v)
}

// openShift reports whether the cluster is OpenShift. A gathered folder may lack the CRDs, so the nodes' OS images are
// checked too.
func (j *judge) openShift() bool {
	return j.CRD("clusterversions.config.openshift.io") != nil ||
		slices.ContainsFunc(j.Nodes, func(n corev1.Node) bool { return strings.HasPrefix(n.Status.NodeInfo.OSImage, rhcos) })
}

// runs reports whether a node should run a component for containers: no label excludes it, and the node is not for
// virtual machines.
func (j *judge) runs(component string, n *corev1.Node) bool {
	value := n.Labels[deployPrefix+component]
	return n.Labels[labelOperands] != "false" && value != "false" && (component != "driver" || value != preInstalled) && !j.forMachines(n)
}

// gke reports whether a node has the provider ID and the node pool label of GKE.
func (j *judge) gke() bool {
	return slices.ContainsFunc(j.Nodes, func(n corev1.Node) bool {
		return strings.HasPrefix(n.Spec.ProviderID, "gce://") && n.Labels["cloud.google.com/gke-nodepool"] != ""
	})
}

// workers checks that Node Feature Discovery is installed once, by the chart or independently of it.
func (j *judge) workers() {
	if j.DaemonSets == nil {
		return // unread has reported it
	}
	var other, own []string
	for _, d := range j.discoverers() {
		// Argo CD and other tools that apply rendered charts do not set this annotation
		name, found := d.Annotations["meta.helm.sh/release-name"]
		if d.Namespace == j.Namespace && strings.HasPrefix(d.Labels["helm.sh/chart"], "node-feature-discovery") &&
			(!found || name == j.helmRelease()) {
			own = append(own, d.Namespace+"/"+d.Name)
		} else {
			other = append(other, d.Namespace+"/"+d.Name)
		}
	}
	all := append(slices.Clone(other), own...)
	v := check.Finding{
		Check: nfd, Subject: "Node Feature Discovery",
		Evidence: j.listed(cluster.DaemonSets, "%d of %d DaemonSets are NFD workers: %s", len(all), len(j.DaemonSets),
			cmp.Or(strings.Join(all, ", "), "none")),
	}
	wanted := j.is("nfd.enabled")
	known := slices.ContainsFunc(j.Nodes, func(n corev1.Node) bool { return cluster.OperatorGPUNode(&n) })
	whole := j.Lacks(cluster.DaemonSets) == nil
	switch {
	case j.openShift() && len(all) > 0:
		v.Reason = "DaemonSet " + all[0] + " is installed; NVIDIA's operator from OperatorHub does not include one"
	case j.openShift() && !known && whole:
		v.Say(check.Error, "no NFD worker is installed, and NVIDIA's operator from OperatorHub does not include one: without Red "+
			"Hat's NFD Operator the GPU nodes are not found")
		v.Fix = "install the NFD Operator from OperatorHub, and create a NodeFeatureDiscovery"
	case j.policy != nil && len(other) > 0 && len(own) == 0:
		// the ClusterPolicy does not have nfd.enabled, but the missing worker shows that the Helm release sets it to
		// false
		v.Reason = "DaemonSet " + other[0] + " is installed, and the Helm release does not add a second one"
	case wanted && len(other) > 0:
		v.Say(check.Error, "DaemonSet %s is already installed, and the chart would install a second one: both would write the same labels", other[0])
		v.Fix = "helm upgrade … --set nfd.enabled=false"
	case wanted && len(own) > 0:
		v.Reason = "DaemonSet " + own[0] + " was installed by the chart"
	case wanted:
		v.Reason = "not installed; the chart will install it"
		j.partial(&v, cluster.DaemonSets)
	case len(all) > 0:
		v.Reason = "DaemonSet " + all[0] + " is installed, and nfd.enabled=false"
	case known:
		v.Say(check.Note, "nfd.enabled=false and no NFD worker is installed, but GPU nodes are labeled already")
	default:
		v.Say(check.Error, "nfd.enabled=false and no NFD worker is installed: GPU nodes are not found, and no operand is scheduled")
		v.Fix = "helm upgrade … --set nfd.enabled=true"
		j.partial(&v, cluster.DaemonSets)
	}
	j.add(v)
}

// helmRelease returns the name of the Helm release that installed the operator, or "gpu-operator" if unknown.
func (j *judge) helmRelease() string {
	for _, p := range j.Policies() {
		if name := p.GetAnnotations()["meta.helm.sh/release-name"]; name != "" {
			return name
		}
	}
	return "gpu-operator"
}

// discoverers returns the DaemonSets of Node Feature Discovery workers.
func (j *judge) discoverers() []*appsv1.DaemonSet {
	var out []*appsv1.DaemonSet
	for i := range j.DaemonSets {
		d := &j.DaemonSets[i]
		if slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
			return strings.Contains(c.Image, "node-feature-discovery") && (slices.Contains(c.Command, "nfd-worker") ||
				strings.Contains(d.Name, "worker"))
		}) {
			out = append(out, d)
		}
	}
	return out
}

// podSecurity checks that the namespace allows privileged pods.
func (j *judge) podSecurity() {
	if j.Namespaces == nil {
		return
	}
	const enforce = "pod-security.kubernetes.io/enforce"
	v := check.Finding{Check: podSecurity, Subject: "Namespace/" + j.Namespace}
	v.Fix = "kubectl label namespace " + j.Namespace + " " + enforce + "=privileged --overwrite"
	i := slices.IndexFunc(j.Namespaces, func(n corev1.Namespace) bool { return n.Name == j.Namespace })
	if i < 0 {
		v.Say(check.Note, "does not exist yet; the operands need the Pod Security level privileged")
		v.Fix = "kubectl create namespace " + j.Namespace + " && " + v.Fix
		v.Evidence = j.listed(cluster.Namespaces, "no %s among the %d namespaces", j.Namespace, len(j.Namespaces))
		j.add(v)
		return
	}
	level := j.Namespaces[i].Labels[enforce]
	v.Evidence = check.Seen("label", v.Subject, "%s=%s", enforce, level)
	switch {
	case level == "privileged":
		v.Reason, v.Fix = "enforces privileged, which the operands need", ""
	case level == "":
		v.Say(check.Note, "enforces no level; if the cluster's default is not privileged, the operands are rejected")
	case j.is("psa.enabled"):
		v.Severity, v.Reason, v.Fix = check.Note, fmt.Sprintf("enforces %s; the operator changes it to privileged because psa.enabled=true", level), ""
	default:
		v.Say(check.Error, "enforces %s: the operands' pods are privileged and will be rejected", level)
	}
	j.add(v)
}

// quota checks that the namespace allows pods with the operands' priority class.
func (j *judge) quota() {
	if j.Quotas == nil {
		return
	}
	var of []corev1.ResourceQuota
	covered := false
	for _, q := range j.Quotas {
		if q.Namespace != j.Namespace {
			continue
		}
		scoped := coversPriority(&q)
		covered = covered || scoped
		if scoped || q.Spec.ScopeSelector == nil && len(q.Spec.Scopes) == 0 {
			of = append(of, q)
		}
	}
	v := check.Finding{
		Check: priorityQuota, Subject: "system-node-critical", Reason: "no quota limits pods of this priority in " + j.Namespace,
		Evidence: j.listed(cluster.Quotas, "%d quotas apply to pods of this priority in namespace %s", len(of), j.Namespace),
	}
	if j.gke() && !covered {
		v.Say(check.Error, "GKE rejects pods with the priority system-node-critical in namespaces without a quota for "+
			"it, and %s has none", j.Namespace)
		v.Fix = "kubectl create quota gpu-operator-quota -n " + j.Namespace + " --hard=pods=100 --scopes=PriorityClass"
	}
	if v.Severity != check.OK || len(of) == 0 {
		j.add(v)
	}
	for _, q := range of {
		f := check.Finding{Check: v.Check, Subject: "ResourceQuota/" + q.Namespace + "/" + q.Name}
		hard, limited := q.Status.Hard[corev1.ResourcePods]
		if !limited {
			hard, limited = q.Spec.Hard[corev1.ResourcePods]
		}
		used := q.Status.Used[corev1.ResourcePods]
		f.Evidence = check.Seen("status", f.Subject, "pods %s of %s", used.String(), hard.String())
		switch {
		case limited && used.Value() >= hard.Value():
			f.Say(check.Error, "%s of %s allowed pods exist: further operand pods would be rejected", used.String(), hard.String())
			f.Fix = "kubectl edit resourcequota -n " + q.Namespace + " " + q.Name
		case !limited:
			f.Reason = "does not limit the number of pods"
		default:
			f.Reason = fmt.Sprintf("%s of %s allowed pods exist", used.String(), hard.String())
		}
		j.add(f)
	}
}

// coversPriority reports whether a quota's scopes select the operands' priority class. GKE rejects pods of that class
// in namespaces without such a quota; a quota without scopes is not enough.
func coversPriority(q *corev1.ResourceQuota) bool {
	if q.Spec.ScopeSelector == nil {
		return slices.Contains(q.Spec.Scopes, corev1.ResourceQuotaScopePriorityClass)
	}
	return slices.ContainsFunc(q.Spec.ScopeSelector.MatchExpressions, func(e corev1.ScopedResourceSelectorRequirement) bool {
		named := slices.Contains(e.Values, "system-node-critical")
		return e.ScopeName == corev1.ResourceQuotaScopePriorityClass && (e.Operator == corev1.ScopeSelectorOpExists ||
			e.Operator == corev1.ScopeSelectorOpIn && named || e.Operator == corev1.ScopeSelectorOpNotIn && !named)
	})
}

// serviceMonitor checks for the CRD of dcgm-exporter's ServiceMonitor. Before v26.7.0, the operator does not become
// ready without it.
func (j *judge) serviceMonitor() {
	if j.CRDs == nil {
		return
	}
	const setting, definition = "dcgmExporter.serviceMonitor.enabled", "servicemonitors.monitoring.coreos.com"
	there := j.CRD(definition) != nil
	v := check.Finding{Check: serviceMonitorCRD, Subject: setting, Evidence: j.listed(cluster.CRDs, "CustomResourceDefinition %s exists: %t", definition, there)}
	switch enabled := j.is(setting); {
	case !enabled:
		v.Reason, v.Evidence = "is false", j.setting(setting)
	case there:
		v.Reason = "is true, and the ServiceMonitor's CustomResourceDefinition is installed"
	case j.Release.Before(monitorsOptional):
		v.Say(check.Error, "is true, but the CustomResourceDefinition %s is not installed: the ClusterPolicy never becomes ready", definition)
		v.Fix = "install the Prometheus Operator first, or helm upgrade … --set " + setting + "=false"
	default:
		v.Say(check.Note, "is true, but the CustomResourceDefinition %s is not installed: no ServiceMonitor is created", definition)
		v.Fix = "install the Prometheus Operator, or scrape dcgm-exporter by annotations"
	}
	j.add(v)
}

// clients reports DaemonSets that use GPUs without requesting them. They block MIG changes and driver upgrades unless
// the operator may evict them.
func (j *judge) clients() {
	for i := range j.DaemonSets {
		d := &j.DaemonSets[i]
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
		if how == "" || j.isOperand(d) || d.Namespace == j.Namespace && strings.HasPrefix(d.Labels["app"], "nvidia-") ||
			slices.ContainsFunc(spec.Containers, registers) {
			continue
		}
		v := check.Finding{
			Check: gpuClient, Subject: "DaemonSet/" + d.Namespace + "/" + d.Name,
			Reason: how + ", and is evicted during MIG changes and driver upgrades",
		}
		v.Evidence = check.Seen("spec", v.Subject, "%s; nodeSelector %s", how, cmp.Or(join(spec.NodeSelector), "none"))
		if spec.NodeSelector[labelClient] != "true" {
			v.Severity = check.Warning
			v.Reason = how + " without the nodeSelector nvidia.com/gpu.deploy.client=true: it blocks MIG changes and driver upgrades on its nodes"
			v.Fix = makeClient(d.Namespace, d.Name)
			if j.Release.Before(monitorsOptional) {
				v.Fix = fmt.Sprintf("kubectl delete daemonset -n %s %s  # before a MIG change: %s does not evict it", d.Namespace, d.Name, j.Release)
			}
		}
		j.add(v)
	}
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
			if e.Name == "NVIDIA_VISIBLE_DEVICES" && e.ValueFrom == nil && !slices.Contains([]string{"", "none", "void"}, e.Value) {
				return "NVIDIA_VISIBLE_DEVICES=" + e.Value
			}
		}
	}
	for _, v := range s.Volumes {
		if v.HostPath != nil && (strings.HasPrefix(v.HostPath.Path, "/dev/nvidia") || strings.HasPrefix(v.HostPath.Path, "/run/nvidia")) {
			return v.HostPath.Path
		}
	}
	return ""
}

func (w *nodeJudge) architecture() {
	n := w.kube
	arch := cmp.Or(n.Status.NodeInfo.Architecture, n.Labels["kubernetes.io/arch"])
	v := check.Finding{
		Check: architecture, Subject: "architecture", Reason: arch,
		Evidence: check.Seen("status", "Node/"+n.Name, "architecture %s", cmp.Or(arch, "none")),
	}
	served := arch == "amd64" || arch == "arm64"
	switch os, _ := systemOf(n); {
	case n.Labels[labelOperands] == "false":
		v.Reason = arch + "; nvidia.com/gpu.deploy.operands=false keeps every operand off the node"
		if !served {
			v.Severity = check.Note
		}
	case arch == "":
		v.Say(check.Unknown, "the node's architecture is unknown")
	case !served:
		v.Say(check.Error, "the node is %s; the operator's images support only amd64 and arm64", arch)
		v.Fix = "kubectl label node " + n.Name + " nvidia.com/gpu.deploy.operands=false --overwrite"
	case arch == "arm64" && os.id == "rhel" && strings.HasPrefix(os.version, "9.") && w.is("driver.enabled") && !w.is("driver.usePrecompiled"):
		v.Say(check.Error, "the node is arm64; the driver containers for RHEL 9 support only amd64")
		v.Fix = "install the driver on the node, then helm upgrade … --set driver.enabled=false"
	}
	w.add(v)
}

// supported checks the node's operating system and runtime against the support matrix.
func (w *nodeJudge) supported() {
	n, systems := w.kube, series(w.Release)
	os, _ := systemOf(n)
	v := check.Finding{Check: osSupported, Subject: "operating system", Reason: os.String(), Evidence: systemSeen(n)}
	if len(systems) == 0 {
		v.Say(check.Unknown, "%s; gpuop has no support matrix for %s", cmp.Or(os.String(), "unknown"), w.Release)
		v.Fix = "see the platform support page of " + w.Release.String()
		w.add(v)
		return
	}
	s, known, exact := find(systems, os)
	have, ok := minor(w.Version)
	switch {
	case os.id == "":
		v.Severity, v.Reason = check.Unknown, "the node's operating system is unknown: "+cmp.Or(n.Status.NodeInfo.OSImage, "the node's status does not name it")
	case !known && !w.is("driver.enabled"):
		v.Say(check.Note, "%s is not in the support matrix of %s, which lists %s; driver.enabled=false, so no driver image is needed", os, w.Release, named(systems))
	case !known || !exact:
		v.Say(check.Warning, "%s is not in the support matrix of %s, which lists %s", os, w.Release, named(systems))
		v.Fix = "gpuop explain driver.enabled # a preinstalled driver needs no driver image"
	case ok && s.first > 0 && (have < s.first || have > s.last):
		v.Say(check.Warning, "%s is validated with Kubernetes 1.%d to 1.%d, but the server is %s", os, s.first, s.last, w.Version)
		v.Fix = "try another release with gpuop preflight --version"
	}
	w.add(v)
	runs := n.Status.NodeInfo.ContainerRuntimeVersion
	v = check.Finding{
		Check: runtimeSupported, Subject: "container runtime", Reason: runs,
		Evidence: check.Seen("status", "Node/"+n.Name, "%s", cmp.Or(runs, "no container runtime")),
	}
	switch name := runtimeOf(n); {
	case name == "":
		v.Say(check.Unknown, "the node's container runtime is unknown")
	case name == "docker":
		v.Severity, v.Reason, v.Fix = check.Error, "docker is not supported; use containerd or CRI-O", "move the node to containerd"
	case len(s.runtimes) > 0 && !slices.Contains(s.runtimes, name):
		v.Say(check.Warning, "%s is not validated on %s; use %s", name, os, strings.Join(s.runtimes, ", "))
		v.Fix = "move the node to " + s.runtimes[0]
	}
	w.add(v)
}

// cdiInRuntime is the first release in which the container runtime injects the GPUs through CDI.
var cdiInRuntime, _ = chart.ParseVersion("v25.10.0")

// cdi checks that the node's container runtime supports CDI if the operator uses it.
func (w *nodeJudge) cdi() {
	runs := w.kube.Status.NodeInfo.ContainerRuntimeVersion
	version, isContainerd := strings.CutPrefix(runs, "containerd://")
	minor, ok := minor(version)
	old := isContainerd && ok && minor < 7
	if !old || !w.is("cdi.enabled") || w.Release.Before(cdiInRuntime) || !w.runs("container-toolkit", w.kube) {
		return
	}
	v := check.Finding{Check: cdiSupport, Subject: "container runtime", Cause: "CDI " + runs}
	v.Evidence = check.Seen("status", "Node/"+w.kube.Name, "%s", runs)
	v.Say(check.Error, "containerd %s does not support CDI, which %s uses to give GPUs to containers: pods get no GPU",
		version, w.Release)
	v.Fix = "helm upgrade … --set cdi.enabled=false  # or upgrade containerd to 1.7 or later"
	w.add(v)
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
func (j *judge) tolerants() []tolerant {
	const what = "the NFD worker, so the operator never finds the GPUs"
	all := []tolerant{{
		path: "daemonsets.tolerations", what: "the operands, so the node gets none of them",
		have: node.OperandTolerations(j.tolerations("daemonsets.tolerations")),
	}}
	if j.policy == nil {
		const path = "node-feature-discovery.worker.tolerations"
		if j.is("nfd.enabled") {
			all = append(all, tolerant{path: path, what: what, have: j.tolerations(path)})
		}
		return all
	}
	// if there are several workers, it is unknown which one labels a node
	if there := j.discoverers(); len(there) == 1 {
		d := there[0]
		all = append(all, tolerant{"the tolerations of DaemonSet/" + d.Namespace + "/" + d.Name, what, d.Spec.Template.Spec.Tolerations, true})
	}
	return all
}

// taints compares the node's taints with the tolerations of the operands and the NFD worker. It also notes if no taint
// keeps other pods off the node.
func (w *nodeJudge) taints() {
	n, kept, ok := w.kube, false, true
	for _, taint := range taintsOf(n) {
		kept = kept || taint.Effect != corev1.TaintEffectPreferNoSchedule
		for _, who := range w.tolerants() {
			if node.Covered(who.have, taint) || who.discovers && cluster.OperatorGPUNode(n) {
				continue
			}
			ok = false
			w.add(check.Finding{
				Check: untolerated, Severity: check.Error, Subject: who.path,
				Cause:    fmt.Sprintf("taint %s %s", taint.ToString(), who.path),
				Evidence: check.Seen("taint", "Node/"+n.Name, "%s", taint.ToString()),
				Reason:   fmt.Sprintf("the taint %s is not tolerated by %s", taint.ToString(), who.what),
				Fix:      fmt.Sprintf("add {key: %s, operator: Exists, effect: %s} to %s", taint.Key, taint.Effect, who.path),
			})
		}
	}
	spec := check.Seen("spec", "Node/"+n.Name, "%s", check.Count(len(n.Spec.Taints), "taint"))
	if ok {
		reason := "has no taint that keeps pods away"
		if kept {
			reason = "the operands tolerate all taints"
		}
		w.add(check.Finding{Check: untolerated, Subject: "taints", Reason: reason, Evidence: spec})
	}
	if len(w.gpu) == len(w.Nodes) {
		return // pods without GPUs have no other node to run on
	}
	if !kept && w.Lacks(cluster.Nodes) == nil {
		w.add(check.Finding{
			Check: untainted, Severity: check.Note, Subject: "taints", Evidence: spec,
			Reason: "no taint keeps pods without GPU requests off the node", Fix: "kubectl taint node " + n.Name +
				" nvidia.com/gpu=present:NoSchedule",
		})
	}
}
