package preflight

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/verdict"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/verify"
)

// Kinds are what Judge looks at.
var Kinds = []cluster.Kind{
	cluster.Nodes, cluster.Pods, cluster.DaemonSets, cluster.Namespaces, cluster.Quotas, cluster.CRDs, cluster.ClusterPolicies, cluster.Events,
}

// Options say what is intended.
type Options struct {
	// Table is what is known of the chart.
	Table *chart.Table
	// Version is the chart's release that is to be installed.
	Version chart.Version
	// Values are the values files, the last of which wins; none means those of the ClusterPolicy that
	// is installed, and else the chart's defaults.
	Values []map[string]any
}

// Sources of what is expected.
const (
	sourceState  = "gpu-operator controllers/state_manager.go"
	sourceObject = "gpu-operator controllers/object_controls.go"
	sourceStart  = "GPU Operator documentation, getting started"
	sourceGKE    = "GPU Operator documentation, Google GKE"
	sourcePSA    = "Kubernetes documentation, Pod Security Admission"
	sourceTaints = "Kubernetes documentation, taints and tolerations"
	sourceMatrix = "GPU Operator documentation, platform support"
)

// partial makes a row that says that something is not there Unknown where the list is not whole.
func (r *run) partial(v *verdict.Verdict, k cluster.Kind) {
	if m := r.Lacks(k); m != nil {
		v.State, v.Reason, v.Next = verdict.Unknown, "is not found, and that proves nothing: "+m.Detail, ""
	}
}

// A run is one Judge on its way.
type run struct {
	*cluster.State
	settings
	gpu  []*corev1.Node // by name, as the API server lists them
	tree *verdict.Tree
	rows []row
	// kubernetes is the server's version; where kubelets is true, the newest kubelet's.
	kubernetes string
	kubelets   bool
}

// Judge returns a row for each thing that an installation depends on, for the cluster and for each node
// with GPUs. What could not be read is Unknown.
func Judge(s *cluster.State, o Options) []verdict.Verdict {
	r := &run{State: s, settings: settings{values: o.Values, table: o.Table, version: o.Version}, tree: &verdict.Tree{}, rows: series(o.Version)}
	if policies := s.Policies(); len(o.Values) == 0 && len(policies) > 0 {
		r.policy, _ = policies[0].Object["spec"].(map[string]any)
	}
	for i := range s.Nodes {
		if cluster.GPUNode(&s.Nodes[i]) {
			r.gpu = append(r.gpu, &s.Nodes[i])
		}
	}
	slices.SortFunc(r.gpu, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	r.kubernetes, r.kubelets = kubernetesVersion(s)
	r.missing()
	r.kubernetesSupported()
	if s.Nodes != nil {
		r.gpuNodes()
		r.driverOS()
		r.containerRuntime()
	}
	r.discovery()
	r.devicePlugins()
	r.podSecurity()
	r.quota()
	r.serviceMonitor()
	r.clients()
	if s.Nodes != nil {
		r.nodes()
	}
	r.tree.Add(verify.Refusals(s)...)
	return verdict.Together(r.tree.Verdicts)
}

func (r *run) add(v verdict.Verdict) { r.tree.Add(v) }

// missing says what was not read. A custom resource whose definition is not installed is no loss.
func (r *run) missing() {
	for _, m := range r.Missing {
		if m.Why == cluster.Absent || m.Kind == cluster.Events && m.Why == cluster.Unread || !slices.Contains(Kinds, m.Kind) {
			continue
		}
		v := verdict.Verdict{ID: "not-read", State: verdict.Unknown, Subject: string(m.Kind), Reason: m.Detail, Source: "Kubernetes documentation, RBAC"}
		switch m.Why {
		case cluster.Forbidden:
			v.Next = "kubectl auth can-i " + m.Verb + " " + string(m.Kind) + " --all-namespaces"
		case cluster.Failed:
			v.Next = "run it again"
		case cluster.Partial:
			v.State, v.Source = verdict.Note, "gpu-operator hack/must-gather.sh"
		default:
			v.Next = "kubectl get " + string(m.Kind) + " -A -o yaml > " + strings.SplitN(string(m.Kind), ".", 2)[0] + ".yaml"
			v.Source = "gpu-operator hack/must-gather.sh"
		}
		r.add(v)
	}
}

func (r *run) kubernetesSupported() {
	v := verdict.Verdict{ID: "kubernetes-version", Subject: "Kubernetes", Source: sourceMatrix}
	first, last := 0, 0
	for _, each := range r.rows {
		if each.first > 0 {
			first, last, v.Source = min(cmp.Or(first, each.first), each.first), max(last, each.last), each.source
		}
	}
	version := r.kubernetes
	have, ok := minor(version)
	older := verdict.Failed
	if r.kubelets {
		older = verdict.Warning // the server may be newer, by up to three minors
	}
	switch {
	case !ok:
		v.State, v.Reason, v.Next = verdict.Unknown, "the server's version is not known", "kubectl version -o yaml > version.yaml"
	case first == 0:
		v.State, v.Reason = verdict.Unknown, fmt.Sprintf("%s; gpuop knows of no support matrix for %s", version, r.release())
		v.Next = "read the platform support page of " + r.release()
	case have < first:
		v.State, v.Reason = older, fmt.Sprintf("%s is older than what %s supports: 1.%d to 1.%d", version, r.release(), first, last)
		v.Next = "upgrade Kubernetes, or gpuop preflight --version with an older release"
	case have > last:
		v.State, v.Reason = verdict.Warning, fmt.Sprintf("%s is newer than what %s was validated with: 1.%d to 1.%d", version, r.release(), first, last)
		v.Next = "gpuop preflight --version latest"
	default:
		v.Reason = fmt.Sprintf("%s is among 1.%d to 1.%d, which %s supports", version, first, last, r.release())
	}
	if ok && r.kubelets {
		v.Reason += "; judged by the newest kubelet: the server's own version is not known"
		v.Next = cmp.Or(v.Next, "kubectl version -o yaml > version.yaml")
	}
	r.add(v)
}

// kubernetesVersion is the server's version. A folder may lack it: then it is the newest kubelet's,
// than which a server is not older, and kubelets is true.
func kubernetesVersion(s *cluster.State) (version string, kubelets bool) {
	if s.Version != "" {
		return s.Version, false
	}
	newest := -1
	for i := range s.Nodes {
		v := s.Nodes[i].Status.NodeInfo.KubeletVersion
		if n, ok := minor(v); ok && n > newest {
			newest, version = n, v
		}
	}
	return version, true
}

// release names the chart's release.
func (r *run) release() string { return r.version.String() }

func (r *run) gpuNodes() {
	v := verdict.Verdict{ID: "gpu-nodes", Subject: "nodes", Reason: fmt.Sprintf("%d of %d nodes have GPUs", len(r.gpu), len(r.Nodes)), Source: sourceState}
	if len(r.gpu) == 0 {
		v.State = verdict.Warning
		v.Reason = fmt.Sprintf("none of %d nodes has a label of NFD's, the operator's or a cloud's that says that it has NVIDIA GPUs: only the cluster is judged", len(r.Nodes))
		v.Next = "install NFD, or kubectl label node NODE feature.node.kubernetes.io/pci-10de.present=true"
	}
	r.add(v)
}

// A system is an operating system as the operator's driver images name it.
type system struct{ id, version string }

// tag is what the operator puts into the driver's image tag.
func (s system) tag(v chart.Version) string { return v.SystemTag(s.id, s.version) }

func (s system) String() string { return strings.TrimSpace(s.id + " " + s.version) }

const (
	labelID      = "feature.node.kubernetes.io/system-os_release.ID"
	labelVersion = "feature.node.kubernetes.io/system-os_release.VERSION_ID"
)

// withoutMonitors is the first release that gets ready without the definition of ServiceMonitors, and whose
// driver manager evicts clients.
var withoutMonitors, _ = chart.ParseVersion("v26.7.0")

// images are how a node's status names an operating system; NFD's labels say it better.
var images = []struct{ prefix, id string }{
	{"Ubuntu ", "ubuntu"}, {"Red Hat Enterprise Linux ", "rhel"}, {"Rocky Linux ", "rocky"},
	{"Oracle Linux Server ", "ol"}, {"SUSE Linux Enterprise Server ", "sles"}, {"Debian GNU/Linux ", "debian"}, {"Amazon Linux ", "amzn"},
	{"Container-Optimized OS", "cos"}, {"Bottlerocket OS ", "bottlerocket"}, {"Talos", "talos"}, {"Flatcar ", "flatcar"},
}

// rhcos is how the status of a node names the system of OpenShift. Its os-release names RHEL since OpenShift 4.19.
const rhcos = "Red Hat Enterprise Linux CoreOS "

// systemOf returns a node's operating system, by NFD's labels or its status.
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
			if i.id == "ubuntu" { // 22.04.4 is 22.04
				if parts := strings.SplitN(version, ".", 3); len(parts) == 3 {
					version = parts[0] + "." + parts[1]
				}
			}
			return system{i.id, version}, false
		}
	}
	return system{}, false
}

// driverOS follows the operator: the driver's image is chosen by the operating system of the first node
// with GPUs that the API server lists, for all nodes.
func (r *run) driverOS() {
	if len(r.gpu) == 0 {
		return
	}
	v := verdict.Verdict{ID: "driver-os", Subject: "operating systems", Source: sourceState}
	first := r.gpu[0]
	os, labeled := systemOf(first)
	var drivers []*corev1.Node
	for _, n := range r.gpu {
		if r.runs("driver", n) {
			drivers = append(drivers, n)
		}
	}
	byOS := map[string]int{}
	for _, n := range drivers {
		s, _ := systemOf(n)
		byOS[cmp.Or(s.tag(r.version), "unknown")]++
	}
	switch {
	case len(drivers) == 0:
		v.Reason = "every node with GPUs brings its own driver"
		r.add(v)
		return
	case !r.is("driver.enabled"):
		v.Reason = fmt.Sprintf("%s; driver.enabled=false: the nodes bring their drivers", counts(byOS))
		r.add(v)
		return
	case r.is("driver.nvidiaDriverCRD.enabled"):
		v.Reason = fmt.Sprintf("%s; each NVIDIADriver chooses the image of its own nodes", counts(byOS))
		r.add(v)
		return
	case !r.is("driver.usePrecompiled") && (os.id == "rhcos" || r.openShift() && r.get("operator.use_ocp_driver_toolkit") != false):
		v.Reason = "the driver is built by OpenShift's driver toolkit for each version of RHCOS"
		r.add(v)
		return
	case os.id == "":
		v.State, v.Reason = verdict.Failed, fmt.Sprintf("the operating system of %s, the first node with GPUs, is not known, and the operator stops: NFD has set no %s", first.Name, labelID)
		v.Next = "kubectl get node " + first.Name + " -o jsonpath='{.metadata.labels}'"
		r.add(v)
		return
	case r.is("driver.usePrecompiled") && r.oneKernelTwoSystems(v):
		return
	}
	tag := os.tag(r.version)
	v.Reason = fmt.Sprintf("all %d nodes with GPUs get the driver image of %s", len(drivers), tag)
	if len(drivers) == 1 {
		v.Reason = fmt.Sprintf("1 node with GPUs gets the driver image of %s", tag)
	}
	if r.is("driver.usePrecompiled") {
		v.Reason += ", one for each kernel"
	}
	if !labeled {
		v.Reason += ", by their status: NFD has not labeled them yet"
	}
	var wrong []string
	for _, n := range drivers {
		if s, _ := systemOf(n); s.tag(r.version) != tag {
			wrong = append(wrong, n.Name)
			r.add(verdict.Verdict{
				ID: "driver-os", State: verdict.Failed, Node: n.Name, Subject: "driver image", Source: sourceState,
				Reason: fmt.Sprintf("the node runs %s and would get the driver image of %s", cmp.Or(s.String(), "an unknown system"), tag),
				Next:   "kubectl label node " + n.Name + " nvidia.com/gpu.deploy.driver=false --overwrite # and install its driver, or use an NVIDIADriver for each system",
			})
		}
	}
	if len(wrong) > 0 {
		v.State = verdict.Failed
		v.Reason = fmt.Sprintf("%s: the operator takes the system of the first, %s, for all: %d get the image of %s and should not", counts(byOS), first.Name, len(wrong), tag)
		v.Next = "helm upgrade … --set driver.nvidiaDriverCRD.enabled=true # and an NVIDIADriver with a nodeSelector for each system"
	}
	r.add(v)
}

// oneKernelTwoSystems follows getKernelVersionsMap: precompiled drivers have an image for each kernel, and of one
// kernel no two systems. It reports whether a row says so. The system in the image's name is that of the first node
// all the same.
func (r *run) oneKernelTwoSystems(v verdict.Verdict) bool {
	kernels := map[string]string{}
	for _, n := range r.gpu {
		kernel := cmp.Or(n.Labels["feature.node.kubernetes.io/kernel-version.full"], n.Status.NodeInfo.KernelVersion)
		s, _ := systemOf(n)
		if have, found := kernels[kernel]; found && have != s.id+s.version {
			v.State, v.Reason = verdict.Failed, fmt.Sprintf("%s has the kernel %s with %s, another node with %s: the operator refuses that", n.Name, kernel, s.id+s.version, have)
			v.Next = "kubectl get nodes -L feature.node.kubernetes.io/kernel-version.full," + labelVersion
		}
		kernels[kernel] = s.id + s.version
	}
	if v.State == verdict.OK {
		return false
	}
	r.add(v)
	return true
}

// counts lists "2 with ubuntu22.04, 1 with rhel9".
func counts(by map[string]int) string {
	var words []string
	for _, k := range slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Or(by[b]-by[a], strings.Compare(a, b)) }) {
		words = append(words, fmt.Sprintf("%d with %s", by[k], k))
	}
	return strings.Join(words, ", ")
}

func runtimeOf(n *corev1.Node) string {
	name, _, _ := strings.Cut(n.Status.NodeInfo.ContainerRuntimeVersion, "://")
	return name
}

// containerRuntime follows the operator (getRuntime): one runtime for all nodes, containerd as soon as a
// node with GPUs has it, else that of the last; CRI-O on OpenShift.
func (r *run) containerRuntime() {
	if len(r.gpu) == 0 {
		return
	}
	chosen, by := "", map[string]int{}
	for _, n := range r.gpu {
		name := runtimeOf(n)
		if r.runs("container-toolkit", n) {
			by[cmp.Or(name, "unknown")]++
		}
		if chosen != "containerd" && (name == "docker" || name == "containerd" || name == "cri-o") {
			chosen = name
		}
	}
	if r.openShift() {
		chosen = "cri-o"
	}
	chosen = cmp.Or(chosen, "containerd")
	v := verdict.Verdict{ID: "container-runtime", Subject: "container runtimes", Source: sourceState}
	if !r.is("toolkit.enabled") {
		v.Reason = counts(by) + "; toolkit.enabled=false: the nodes' own runtimes are used as they are"
		r.add(v)
		return
	}
	v.Reason = fmt.Sprintf("the toolkit configures %s on all %d nodes with GPUs", chosen, len(r.gpu))
	wrong := 0
	for _, n := range r.gpu {
		if name := runtimeOf(n); name != chosen && name != "" && r.runs("container-toolkit", n) {
			wrong++
			r.add(verdict.Verdict{
				ID: "container-runtime", State: verdict.Failed, Node: n.Name, Subject: "container runtime", Source: sourceState,
				Reason: fmt.Sprintf("the node runs %s, and the toolkit would configure %s", n.Status.NodeInfo.ContainerRuntimeVersion, chosen),
				Next:   "move the node to " + chosen + ", or kubectl label node " + n.Name + " nvidia.com/gpu.deploy.operands=false --overwrite",
			})
		}
	}
	if wrong > 0 {
		v.State, v.Reason = verdict.Failed, fmt.Sprintf("%s: the operator configures %s on all, wrong on %d", counts(by), chosen, wrong)
		v.Next = "kubectl get nodes -o custom-columns=NAME:.metadata.name,RUNTIME:.status.nodeInfo.containerRuntimeVersion"
	}
	r.add(v)
}

// openShift reports whether the cluster is Red Hat's. A folder may hold no definitions.
func (r *run) openShift() bool {
	return slices.Contains(r.CRDs, "clusterversions.config.openshift.io") ||
		slices.ContainsFunc(r.Nodes, func(n corev1.Node) bool { return strings.HasPrefix(n.Status.NodeInfo.OSImage, rhcos) })
}

// runs reports whether a node is to run a component of containers: its labels keep none off it, and it does not
// serve virtual machines.
func (r *run) runs(component string, n *corev1.Node) bool {
	const deploy = "nvidia.com/gpu.deploy."
	value := n.Labels[deploy+component]
	use, _ := r.get("sandboxWorkloads.defaultWorkload").(string)
	if own := n.Labels["nvidia.com/gpu.workload.config"]; own == "container" || strings.HasPrefix(own, "vm-") {
		use = own
	}
	return n.Labels[deploy+"operands"] != "false" && value != "false" && (component != "driver" || value != "pre-installed") &&
		(!r.is("sandboxWorkloads.enabled") || !strings.HasPrefix(use, "vm-"))
}

// gke reports whether the cluster is Google's.
func (r *run) gke() bool {
	return slices.ContainsFunc(r.Nodes, func(n corev1.Node) bool {
		return strings.HasPrefix(n.Spec.ProviderID, "gce://") && n.Labels["cloud.google.com/gke-nodepool"] != ""
	})
}

// discovery looks for Node Feature Discovery that the chart has not installed.
func (r *run) discovery() {
	v := verdict.Verdict{ID: "nfd", Subject: "Node Feature Discovery", Source: sourceStart}
	if r.DaemonSets == nil {
		return // it stands among what was not read
	}
	var other, own []string
	for i := range r.DaemonSets {
		d := &r.DaemonSets[i]
		if !isWorker(d) {
			continue
		}
		// what applies rendered charts, as Argo CD does, leaves no name of a release
		if name, found := d.Annotations["meta.helm.sh/release-name"]; d.Namespace == r.Namespace && strings.HasPrefix(d.Labels["helm.sh/chart"], "node-feature-discovery") && (!found || name == r.helmRelease()) {
			own = append(own, d.Namespace+"/"+d.Name)
		} else {
			other = append(other, d.Namespace+"/"+d.Name)
		}
	}
	wanted := r.is("nfd.enabled")
	known := slices.ContainsFunc(r.Nodes, func(n corev1.Node) bool { return cluster.OperatorGPUNode(&n) })
	switch {
	case r.openShift() && len(other)+len(own) > 0:
		v.Reason = "DaemonSet " + append(other, own...)[0] + " is there; what OperatorHub installs of NVIDIA's brings none"
		r.add(v)
		return
	case r.openShift() && !known && r.Lacks(cluster.DaemonSets) == nil:
		v.State, v.Reason = verdict.Failed, "no worker is there, and what OperatorHub installs of NVIDIA's brings none: without Red Hat's NFD Operator no node is found to have GPUs"
		v.Next = "install the NFD Operator from OperatorHub, and create a NodeFeatureDiscovery"
		r.add(v)
		return
	case len(r.values) == 0 && r.policy != nil && len(other) > 0 && len(own) == 0:
		// the ClusterPolicy does not say nfd.enabled, and what is there does
		v.Reason = "DaemonSet " + other[0] + " is there, and the release that is installed has none beside it"
		r.add(v)
		return
	}
	switch {
	case wanted && len(other) > 0:
		v.State, v.Reason = verdict.Failed, fmt.Sprintf("DaemonSet %s runs already, and the chart would install a second one: two masters write the same labels", other[0])
		v.Next = "helm upgrade … --set nfd.enabled=false"
	case wanted && len(own) > 0:
		v.Reason = "DaemonSet " + own[0] + " is the chart's"
	case wanted:
		v.Reason = "none is there, and the chart installs it"
		r.partial(&v, cluster.DaemonSets)
	case len(other)+len(own) > 0:
		v.Reason = "DaemonSet " + append(other, own...)[0] + " is there, and nfd.enabled=false"
	case known:
		v.State, v.Reason = verdict.Note, "nfd.enabled=false and no worker is there; nodes are labeled all the same"
	case r.Lacks(cluster.DaemonSets) != nil:
		r.partial(&v, cluster.DaemonSets)
	default:
		v.State, v.Reason = verdict.Failed, "nfd.enabled=false and no worker is there: no node is found to have GPUs, and no operand is scheduled"
		v.Next = "helm upgrade … --set nfd.enabled=true"
	}
	r.add(v)
}

// helmRelease is the name of the Helm release that the operator's own objects carry.
func (r *run) helmRelease() string {
	for _, p := range r.Policies() {
		if name := p.GetAnnotations()["meta.helm.sh/release-name"]; name != "" {
			return name
		}
	}
	return "gpu-operator"
}

func has(s *corev1.PodSpec, is func(*corev1.Container) bool) bool {
	for i := range s.Containers {
		if is(&s.Containers[i]) {
			return true
		}
	}
	return false
}

// isOperand reports whether the operator owns an object.
func isOperand(owners []metav1.OwnerReference) bool {
	return slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool { return strings.HasPrefix(o.APIVersion, "nvidia.com/") })
}

// registers reports whether a container registers nvidia.com/gpu with the kubelet.
func registers(c *corev1.Container) bool {
	if strings.Contains(c.Name, "mps-control-daemon") {
		return false // of the same image
	}
	if slices.Contains(c.Command, "nvidia-device-plugin") {
		return true // as HAMi's does, in an image of its own
	}
	image := c.Image[strings.LastIndex(c.Image, "/")+1:]
	for _, name := range []string{"k8s-device-plugin", "nvidia-gpu-device-plugin", "nvidia-device-plugin"} {
		if strings.HasPrefix(image, name) {
			// GPU Feature Discovery is of the same image
			return !slices.Contains(c.Command, "gpu-feature-discovery") && !strings.Contains(c.Name, "gpu-feature-discovery")
		}
	}
	return false
}

// devicePlugins looks for a second device plugin.
func (r *run) devicePlugins() {
	if r.DaemonSets == nil {
		return
	}
	v := verdict.Verdict{ID: "device-plugin", Subject: "device plugin", Reason: "no other than the operator's registers nvidia.com/gpu", Source: sourceGKE}
	found := false
	for i := range r.DaemonSets {
		d := &r.DaemonSets[i]
		if isOperand(d.OwnerReferences) || !has(&d.Spec.Template.Spec, registers) {
			continue
		}
		found = true
		name := d.Namespace + "/" + d.Name
		row := verdict.Verdict{ID: "device-plugin", State: verdict.Failed, Subject: "DaemonSet/" + name, Source: sourceStart,
			Reason: fmt.Sprintf("registers nvidia.com/gpu on %d nodes beside the operator's own plugin: the kubelet knows the one that registered last", d.Status.DesiredNumberScheduled),
			Next:   "kubectl delete daemonset -n " + d.Namespace + " " + d.Name + ", or helm upgrade … --set devicePlugin.enabled=false"}
		switch gke := d.Namespace == "kube-system" && strings.HasPrefix(d.Name, "nvidia-gpu-device-plugin"); {
		case !r.is("devicePlugin.enabled"):
			row.State, row.Reason, row.Next = verdict.OK, "registers nvidia.com/gpu, and devicePlugin.enabled=false", ""
		case d.Status.DesiredNumberScheduled == 0:
			row.State, row.Reason, row.Next = verdict.Note, "is scheduled on no node", ""
		case gke:
			row.Next, row.Source = "create the node pools with --node-labels=gke-no-default-nvidia-gpu-device-plugin=true", sourceGKE
		}
		r.add(row)
	}
	for i := range r.Pods {
		p := &r.Pods[i]
		owner := metav1.GetControllerOfNoCopy(p)
		if owner != nil && owner.Kind == "DaemonSet" || !has(&p.Spec, registers) || !r.is("devicePlugin.enabled") {
			continue
		}
		found = true
		r.add(verdict.Verdict{ID: "device-plugin", State: verdict.Failed, Node: p.Spec.NodeName, Subject: "Pod/" + p.Namespace + "/" + p.Name, Source: sourceStart,
			Reason: "registers nvidia.com/gpu beside the operator's own plugin, and is of no DaemonSet", Next: "find what starts it: a static pod's manifest lies on the node"})
	}
	if !found {
		r.partial(&v, cluster.DaemonSets)
		r.add(v)
	}
}

// podSecurity looks at the namespace: the operands are privileged.
func (r *run) podSecurity() {
	if r.Namespaces == nil {
		return
	}
	v := verdict.Verdict{ID: "pod-security", Subject: "Namespace/" + r.Namespace, Source: sourcePSA}
	i := slices.IndexFunc(r.Namespaces, func(n corev1.Namespace) bool { return n.Name == r.Namespace })
	label := "kubectl label namespace " + r.Namespace + " pod-security.kubernetes.io/enforce=privileged --overwrite"
	switch {
	case i < 0:
		v.State, v.Reason = verdict.Note, "is not there yet; the operands are privileged and need the level privileged"
		v.Next = "kubectl create namespace " + r.Namespace + " && " + label
	case r.Namespaces[i].Labels["pod-security.kubernetes.io/enforce"] == "privileged":
		v.Reason = "enforces privileged, as the operands need"
	case r.Namespaces[i].Labels["pod-security.kubernetes.io/enforce"] == "":
		v.State, v.Reason = verdict.Note, "enforces no level; where the cluster's default is not privileged, the operands are refused"
		v.Next = label
	case r.is("psa.enabled"):
		v.State, v.Reason = verdict.Note, fmt.Sprintf("enforces %s, which the operator changes to privileged: psa.enabled=true", r.Namespaces[i].Labels["pod-security.kubernetes.io/enforce"])
	default:
		v.State = verdict.Failed
		v.Reason = fmt.Sprintf("enforces %s: the operands are privileged, and their pods are refused", r.Namespaces[i].Labels["pod-security.kubernetes.io/enforce"])
		v.Next = label
	}
	r.add(v)
}

// quota looks at what the namespace may run with the priority of the operands.
func (r *run) quota() {
	if r.Quotas == nil {
		return
	}
	v := verdict.Verdict{ID: "priority-quota", Subject: "system-node-critical", Reason: "no quota limits pods of this priority in " + r.Namespace, Source: sourceGKE}
	var of []corev1.ResourceQuota
	covered := false
	for _, q := range r.Quotas {
		if q.Namespace != r.Namespace {
			continue
		}
		scoped := coversPriority(&q)
		covered = covered || scoped
		if scoped || q.Spec.ScopeSelector == nil && len(q.Spec.Scopes) == 0 {
			of = append(of, q)
		}
	}
	switch {
	case r.gke() && !covered:
		row := v
		row.State, row.Reason = verdict.Failed, "GKE refuses pods with the priority system-node-critical in namespaces without a quota for it, and "+r.Namespace+" has none"
		row.Next = "kubectl create quota gpu-operator-quota -n " + r.Namespace + " --hard=pods=100 --scopes=PriorityClass # with scopeSelector system-node-critical, system-cluster-critical"
		r.add(row)
	case len(of) == 0:
		r.add(v)
	}
	for _, q := range of {
		row := v
		row.Subject = "ResourceQuota/" + q.Namespace + "/" + q.Name
		hard, limited := q.Status.Hard[corev1.ResourcePods]
		if !limited {
			hard, limited = q.Spec.Hard[corev1.ResourcePods]
		}
		used := q.Status.Used[corev1.ResourcePods]
		switch {
		case limited && used.Value() >= hard.Value():
			row.State, row.Reason = verdict.Failed, fmt.Sprintf("%s of %s pods are used: the operands of a further node are refused", used.String(), hard.String())
			row.Next = "kubectl edit resourcequota -n " + q.Namespace + " " + q.Name
		case len(computed(&q)) > 0:
			row.State = verdict.Warning
			row.Reason = fmt.Sprintf("limits %s: Kubernetes refuses each pod that does not say its own, as most operands do not, unless a LimitRange of the namespace has defaults", strings.Join(computed(&q), ", "))
			row.Next, row.Source = "kubectl describe limitrange -n "+q.Namespace+" # or set resources for each operand", "Kubernetes documentation, resource quotas"
		case !limited:
			row.Reason = "allows any number of pods with the priority of the operands"
		default:
			row.Reason = fmt.Sprintf("%s of %s pods are used", used.String(), hard.String())
		}
		r.add(row)
	}
}

// computed are the resources of a quota that every container must then say.
func computed(q *corev1.ResourceQuota) []string {
	var out []string
	for name := range q.Spec.Hard {
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory:
			out = append(out, string(name))
		}
	}
	slices.Sort(out)
	return out
}

// coversPriority reports whether a quota is for the priority classes of the operands. One without
// scopes counts their pods too, and is not what a cluster requires that limits the class.
func coversPriority(q *corev1.ResourceQuota) bool {
	if q.Spec.ScopeSelector == nil {
		return slices.Contains(q.Spec.Scopes, corev1.ResourceQuotaScopePriorityClass)
	}
	for _, e := range q.Spec.ScopeSelector.MatchExpressions {
		if e.ScopeName == corev1.ResourceQuotaScopePriorityClass && (e.Operator == corev1.ScopeSelectorOpExists ||
			(e.Operator == corev1.ScopeSelectorOpIn) == slices.Contains(e.Values, "system-node-critical")) {
			return true
		}
	}
	return false
}

// serviceMonitor looks for the definition that dcgm-exporter's ServiceMonitor needs. Until v26.7.0 the
// operator never became ready without it.
func (r *run) serviceMonitor() {
	if r.CRDs == nil {
		return
	}
	v := verdict.Verdict{ID: "servicemonitor-crd", Subject: "dcgmExporter.serviceMonitor.enabled", Source: sourceObject}
	there := slices.Contains(r.CRDs, "servicemonitors.monitoring.coreos.com")
	switch enabled := r.is("dcgmExporter.serviceMonitor.enabled"); {
	case !enabled && there:
		v.State, v.Reason = verdict.Note, "is false, and Prometheus Operator is there: it scrapes dcgm-exporter only where another object says so"
		v.Next = "helm upgrade … --set dcgmExporter.serviceMonitor.enabled=true"
	case !enabled:
		v.Reason = "is false"
	case there:
		v.Reason = "is true, and the ServiceMonitor's CustomResourceDefinition is there"
	case r.version.Before(withoutMonitors):
		v.State, v.Reason = verdict.Failed, "is true without the CustomResourceDefinition servicemonitors.monitoring.coreos.com: the ClusterPolicy never becomes ready"
		v.Next = "install Prometheus Operator first, or helm upgrade … --set dcgmExporter.serviceMonitor.enabled=false"
	default:
		v.State, v.Reason = verdict.Note, "is true without the CustomResourceDefinition servicemonitors.monitoring.coreos.com: no ServiceMonitor is made"
		v.Next = "install Prometheus Operator, or scrape dcgm-exporter by annotations"
	}
	r.add(v)
}

// clients looks for DaemonSets that hold the GPUs without requesting them: they keep MIG changes and
// driver upgrades from happening unless the operator may move them away.
func (r *run) clients() {
	if r.DaemonSets == nil {
		return
	}
	for i := range r.DaemonSets {
		d := &r.DaemonSets[i]
		how := holds(&d.Spec.Template.Spec)
		if how == "" || isOperand(d.OwnerReferences) || d.Namespace == r.Namespace && strings.HasPrefix(d.Labels["app"], "nvidia-") || has(&d.Spec.Template.Spec, registers) {
			continue
		}
		v := verdict.Verdict{ID: "gpu-client", Subject: "DaemonSet/" + d.Namespace + "/" + d.Name, Source: "gpu-operator, nvidia.com/gpu.deploy.client (v26.7.0)",
			Reason: how + ", and goes away during MIG changes and driver upgrades"}
		if d.Spec.Template.Spec.NodeSelector["nvidia.com/gpu.deploy.client"] != "true" {
			v.State = verdict.Warning
			v.Reason = how + " without the nodeSelector nvidia.com/gpu.deploy.client=true: it blocks MIG changes and driver upgrades on its nodes"
			v.Next = fmt.Sprintf(`kubectl patch daemonset -n %s %s -p '{"spec":{"template":{"spec":{"nodeSelector":{"nvidia.com/gpu.deploy.client":"true"}}}}}'`, d.Namespace, d.Name)
			if r.version.Before(withoutMonitors) {
				v.Next = fmt.Sprintf("kubectl delete daemonset -n %s %s before a MIG change: %s evicts no client", d.Namespace, d.Name, r.release())
			}
		}
		r.add(v)
	}
}

// holds says how a DaemonSet's pods reach GPUs without a resource; "" where they do not.
func holds(s *corev1.PodSpec) string {
	if cluster.AsksForGPU(s) {
		return ""
	}
	if s.RuntimeClassName != nil && *s.RuntimeClassName == "nvidia" {
		return "runs with the RuntimeClass nvidia"
	}
	for _, v := range s.Volumes {
		if v.HostPath != nil && (strings.HasPrefix(v.HostPath.Path, "/dev/nvidia") || strings.HasPrefix(v.HostPath.Path, "/run/nvidia")) {
			return "mounts " + v.HostPath.Path
		}
	}
	for _, c := range s.Containers {
		for _, e := range c.Env {
			if e.Name == "NVIDIA_VISIBLE_DEVICES" && e.Value != "void" && e.Value != "" {
				return "sets NVIDIA_VISIBLE_DEVICES=" + e.Value
			}
		}
	}
	return ""
}

// nodes judges what each node with GPUs brings.
func (r *run) nodes() {
	tolerate := append([]tolerant{{"daemonsets.tolerations", "the operands (DaemonSets show DESIRED 0)", node.OperandTolerations(r.tolerations("daemonsets.tolerations")), false}}, r.workers()...)
	lonely := map[string][]string{} // pods without GPUs, by node
	for i := range r.Pods {
		p := &r.Pods[i]
		owner := metav1.GetControllerOfNoCopy(p)
		if p.Namespace != r.Namespace && p.Namespace != "kube-system" && !cluster.AsksForGPU(&p.Spec) && (owner == nil || owner.Kind != "DaemonSet" && owner.Kind != "Node") &&
			p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed && p.Spec.NodeName != "" {
			lonely[p.Spec.NodeName] = append(lonely[p.Spec.NodeName], p.Namespace+"/"+p.Name)
		}
	}
	mixed := len(r.gpu) < len(r.Nodes)
	for _, n := range r.gpu {
		r.ready(n)
		r.architecture(n)
		r.system(n)
		kept := r.taints(n, tolerate)
		if !kept && mixed && r.Lacks(cluster.Nodes) == nil {
			r.add(verdict.Verdict{ID: "gpu-node-untainted", State: verdict.Note, Node: n.Name, Subject: "taints", Source: sourceTaints,
				Reason: "has no taint that keeps pods without GPUs away", Next: "kubectl taint node " + n.Name + " nvidia.com/gpu=present:NoSchedule"})
		}
		if pods := lonely[n.Name]; len(pods) > 0 && mixed {
			slices.Sort(pods)
			more := ""
			if len(pods) > 1 {
				more = fmt.Sprintf(" and %d more", len(pods)-1)
			}
			r.add(verdict.Verdict{ID: "pods-without-gpu", State: verdict.Note, Node: n.Name, Subject: "pods", Source: sourceTaints,
				Reason: fmt.Sprintf("%s%s request no GPU and use the node's CPU and memory", pods[0], more), Next: "kubectl get pods -A --field-selector spec.nodeName=" + n.Name})
		}
	}
}

func (r *run) ready(n *corev1.Node) {
	v := verdict.Verdict{ID: "node-ready", Node: n.Name, Subject: "node", Reason: "is ready", Source: "Kubernetes documentation, node status"}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			v.State, v.Reason, v.Since = verdict.Warning, "is not ready: "+cmp.Or(c.Reason, "no reason is said"), c.LastTransitionTime.Time
			v.Next = "kubectl describe node " + n.Name
		}
	}
	r.add(v)
}

func (r *run) architecture(n *corev1.Node) {
	arch := cmp.Or(n.Status.NodeInfo.Architecture, n.Labels["kubernetes.io/arch"])
	v := verdict.Verdict{ID: "architecture", Node: n.Name, Subject: "architecture", Reason: arch, Source: sourceMatrix}
	os, _ := systemOf(n)
	switch {
	case n.Labels["nvidia.com/gpu.deploy.operands"] == "false":
		v.State, v.Reason = verdict.Note, arch+"; nvidia.com/gpu.deploy.operands=false keeps every operand off the node"
		if arch == "amd64" || arch == "arm64" {
			v.State = verdict.OK
		}
	case arch == "":
		v.State, v.Reason = verdict.Unknown, "the node's architecture is not known"
	case arch != "amd64" && arch != "arm64":
		v.State, v.Reason = verdict.Failed, "the operator's images are for amd64 and arm64, and the node is "+arch
		v.Next = "kubectl label node " + n.Name + " nvidia.com/gpu.deploy.operands=false --overwrite"
	case arch == "arm64" && os.id == "rhel" && strings.HasPrefix(os.version, "9.") && r.is("driver.enabled") && !r.is("driver.usePrecompiled"):
		v.State, v.Reason = verdict.Failed, "the driver containers of RHEL 9 are for amd64 alone, and the node is arm64"
		v.Next = "install the driver on the node, and helm upgrade … --set driver.enabled=false"
	}
	r.add(v)
}

// system compares the node's operating system and runtime with the support matrix.
func (r *run) system(n *corev1.Node) {
	os, _ := systemOf(n)
	v := verdict.Verdict{ID: "os-supported", Node: n.Name, Subject: "operating system", Reason: os.String(), Source: sourceMatrix}
	if len(r.rows) == 0 {
		v.State, v.Reason = verdict.Unknown, fmt.Sprintf("%s; gpuop knows of no support matrix for %s", cmp.Or(os.String(), "unknown"), r.release())
		v.Next = "read the platform support page of " + r.release()
		r.add(v)
		return
	}
	row, known, exact := find(r.rows, os)
	v.Source = cmp.Or(row.source, r.rows[0].source)
	have, ok := minor(r.kubernetes)
	switch {
	case os.id == "":
		v.State, v.Reason = verdict.Unknown, "the node's operating system is not known: "+cmp.Or(n.Status.NodeInfo.OSImage, "its status names none")
	case !known && !r.is("driver.enabled"):
		v.State, v.Reason = verdict.Note, fmt.Sprintf("%s is not in the matrix of %s (%s); driver.enabled=false, so no driver image is needed", os, r.release(), named(r.rows))
	case !known || !exact:
		v.State, v.Reason = verdict.Warning, fmt.Sprintf("%s is not in the matrix of %s, which names %s", os, r.release(), named(r.rows))
		v.Next = "gpuop values explain driver.enabled # a driver of the node's own needs no image of its system"
	case ok && row.first > 0 && (have < row.first || have > row.last):
		v.State, v.Reason = verdict.Warning, fmt.Sprintf("%s is validated with Kubernetes 1.%d to 1.%d, and the server is %s", os, row.first, row.last, r.kubernetes)
		v.Next = "gpuop preflight --version with a release that names both"
	}
	r.add(v)
	name := runtimeOf(n)
	rv := verdict.Verdict{ID: "runtime-supported", Node: n.Name, Subject: "container runtime", Reason: n.Status.NodeInfo.ContainerRuntimeVersion, Source: v.Source}
	switch {
	case name == "":
		rv.State, rv.Reason = verdict.Unknown, "the node's container runtime is not known"
	case name == "docker":
		rv.State, rv.Reason, rv.Next = verdict.Failed, "docker is not supported: containerd and CRI-O are", "move the node to containerd"
	case len(row.runtimes) > 0 && !slices.Contains(row.runtimes, name):
		rv.State, rv.Reason = verdict.Warning, fmt.Sprintf("%s is not validated on %s, which is with %s", name, os, strings.Join(row.runtimes, ", "))
		rv.Next = "move the node to " + row.runtimes[0]
	}
	r.add(rv)
}

// tolerant is what tolerates some taints alone, by the setting or the object that says which.
type tolerant struct {
	path, what string
	have       []node.Toleration
	// discovers says that the operator is installed, and a node that NFD has labeled is no matter of it.
	discovers bool
}

// workers are the workers of NFD that label the nodes: as the chart makes them, or where no values say
// what that is and the operator is installed, those that are there.
func (r *run) workers() []tolerant {
	const what = "NFD's worker, so that the operator never learns of the GPUs"
	if len(r.values) > 0 || r.policy == nil {
		if !r.is("nfd.enabled") {
			return nil
		}
		const path = "node-feature-discovery.worker.tolerations"
		return []tolerant{{path, what, r.tolerations(path), false}}
	}
	var out []tolerant
	for i := range r.DaemonSets {
		d := &r.DaemonSets[i]
		if !isWorker(d) {
			continue
		}
		t := tolerant{path: "the tolerations of DaemonSet/" + d.Namespace + "/" + d.Name, what: what, discovers: true}
		for _, each := range d.Spec.Template.Spec.Tolerations {
			t.have = append(t.have, node.Toleration{Key: each.Key, Operator: string(each.Operator), Value: each.Value, Effect: string(each.Effect)})
		}
		out = append(out, t)
	}
	if len(out) > 1 {
		return nil // by which of them a node is labeled is not known
	}
	return out
}

// isWorker reports whether a DaemonSet is the worker of Node Feature Discovery.
func isWorker(d *appsv1.DaemonSet) bool {
	return has(&d.Spec.Template.Spec, func(c *corev1.Container) bool {
		return strings.Contains(c.Image, "node-feature-discovery") && (slices.Contains(c.Command, "nfd-worker") || strings.Contains(d.Name, "worker"))
	})
}

// taints compares the node's taints with what the operands and NFD's worker tolerate, and reports
// whether one keeps pods without GPUs away.
func (r *run) taints(n *corev1.Node, tolerate []tolerant) (kept bool) {
	ok := true
	for _, t := range n.Spec.Taints {
		taint := node.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)}
		if !taint.Stays() {
			continue
		}
		kept = kept || taint.Effect != "PreferNoSchedule"
		for _, who := range tolerate {
			if node.Covered(who.have, taint) || who.discovers && cluster.OperatorGPUNode(n) {
				continue
			}
			ok = false
			r.add(verdict.Verdict{ID: "taint", State: verdict.Failed, Node: n.Name, Subject: who.path, Source: sourceTaints,
				Cause:    fmt.Sprintf("taint %s %s", taint, who.path),
				Evidence: verdict.Evidence{Kind: "taint", Object: "Node/" + n.Name, Text: fmt.Sprint(taint)},
				Reason:   fmt.Sprintf("the taint %s is not tolerated: it keeps away %s", taint, who.what),
				Next:     fmt.Sprintf("add {key: %s, operator: Exists, effect: %s} to %s", taint.Key, taint.Effect, who.path)})
		}
	}
	if ok {
		reason := "has no taint"
		if kept {
			reason = "all taints are tolerated by the operands"
		}
		r.add(verdict.Verdict{ID: "taint", Node: n.Name, Subject: "taints", Reason: reason, Source: sourceTaints})
	}
	return kept
}
