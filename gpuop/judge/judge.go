package judge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

// These are the labels, and prefixes of labels, that the checks read.
const (
	deployPrefix   = "nvidia.com/gpu.deploy."
	labelClient    = deployPrefix + "client"
	labelDriver    = deployPrefix + "driver"
	labelPresent   = "nvidia.com/gpu.present"
	labelOperands  = deployPrefix + "operands"
	labelWorkload  = "nvidia.com/gpu.workload.config"
	labelUpgrade   = "nvidia.com/gpu-driver-upgrade-state"
	labelSkip      = "nvidia.com/gpu-driver-upgrade.skip"
	labelCapable   = "nvidia.com/mig.capable"
	labelMIGState  = "nvidia.com/mig.config.state"
	labelVGPUState = "nvidia.com/vgpu.config.state"
	nfdPrefix      = "feature.node.kubernetes.io/"

	// LabelMIG selects the MIG config of a node. Setting it starts a MIG change.
	LabelMIG = "nvidia.com/mig.config"
)

// preInstalled is the value of the driver's deploy label on nodes with a preinstalled driver. The driver manager sets
// this value if it finds such a driver, and no driver container then runs on the node.
const preInstalled = "pre-installed"

// Options say what the user intends to install.
type Options struct {
	// Table describes the releases of the chart.
	Table *chart.Table
	// Release is the release of the chart. The zero value means the installed release or, without one, the newest.
	Release chart.Version
	// Values are the intended values. If they are empty, the installed ClusterPolicy is used or, without one, the
	// chart's defaults.
	Values map[string]any
}

// PreflightKinds returns the kinds of objects that Preflight needs.
func PreflightKinds() []cluster.Kind {
	return []cluster.Kind{cluster.Nodes, cluster.Pods, cluster.DaemonSets, cluster.Namespaces, cluster.Quotas,
		cluster.CRDs, cluster.ClusterPolicies, cluster.Events}
}

// VerifyKinds returns the kinds of objects that Verify and Prepare need.
func VerifyKinds() []cluster.Kind {
	return []cluster.Kind{cluster.Nodes, cluster.Pods, cluster.DaemonSets, cluster.ConfigMaps, cluster.ClusterPolicies,
		cluster.NVIDIADrivers, cluster.GPUClusters, cluster.CRDs, cluster.Events}
}

// Preflight checks everything that an installation depends on: first the cluster, then each node with GPUs. A kind of
// object that could not be read is reported, and the checks that depend on it are skipped or Unknown.
func Preflight(s *cluster.State, o Options) []check.Finding {
	v := newView(s, o)
	v.before = true
	findings := slices.Concat(unread(v, PreflightKinds()), kubernetes(v), gpuNodesFound(v), driverSystems(v),
		runtimes(v), staleCRDs(v), discovery(v), devicePlugins(v), privileges(v), quota(v), serviceMonitor(v),
		clients(v))
	for _, kube := range v.gpu {
		findings = append(findings, preflightNode(v, kube)...)
	}
	return check.Together(addRefusals(v, findings))
}

// Verify checks an installation: first the cluster, then each node with GPUs, both in dependency order. A kind of
// object that could not be read is reported, and the checks that depend on it are skipped or Unknown.
func Verify(s *cluster.State, o Options) []check.Finding {
	v := newView(s, o)
	notReady := map[string]bool{} // the components that are not ready on at least one node
	var nodes []check.Finding
	for _, kube := range v.gpu {
		n := verifyNode(v, kube)
		nodes = append(nodes, n.findings...)
		for _, o := range n.operands {
			notReady[o.component] = notReady[o.component] || isBroken(o)
		}
	}
	findings := check.Together(withoutExplained(slices.Concat(unread(v, VerifyKinds()), operator(v), staleCRDs(v),
		customResources(v), gpuNodesFound(v), devicePlugins(v), daemonSets(v, notReady), sharingFiles(v), nodes)))
	for i := range findings {
		if findings[i].Severity == check.OK {
			findings[i].Since = time.Time{} // otherwise a report could not group the findings about healthy nodes
		}
	}
	return findings
}

// view is what the checks read: a cluster's state, indexes of it, and the settings. It does not change.
type view struct {
	*cluster.State
	Options
	before     bool                         // the view is for Preflight
	installed  bool                         // the ClusterPolicy's labels name exactly the version Release
	policy     *unstructured.Unstructured   // in force; nil if there is none, or if Options.Values replaces it
	gpu        []*corev1.Node               // the nodes with GPUs, sorted by name
	components []chart.Operand              // the first operand of each component, in the order of their creation
	sets       []operandSet                 // the DaemonSets of the operands, in dependency order
	pods       map[string][]*corev1.Pod     // by node
	maps       map[string]*corev1.ConfigMap // the ConfigMaps of the operator's namespace, by name
	shareName  string                       // the device plugin's ConfigMap: devicePlugin.config.name
	shares     map[string]*sharing.Config   // its configs by key; nil if the ConfigMap is missing or unreadable
}

func newView(s *cluster.State, o Options) *view {
	v := &view{State: s, Options: o, pods: map[string][]*corev1.Pod{}, maps: map[string]*corev1.ConfigMap{}}
	if policies := s.Policies(); len(policies) > 0 {
		labels := policies[0].GetLabels()
		if len(o.Values) == 0 {
			v.policy = policies[0]
		}
		if release, ok := v.Table.Labeled(labels); ok && v.Release == (chart.Version{}) {
			written := cmp.Or(labels["app.kubernetes.io/version"], labels["helm.sh/chart"])
			v.Release, v.installed = release, strings.HasSuffix(written, release.String())
		}
	}
	v.Release = cmp.Or(v.Release, v.Table.Latest())
	for i := range s.Nodes {
		if cluster.GPUNode(&s.Nodes[i]) {
			v.gpu = append(v.gpu, &s.Nodes[i])
		}
	}
	slices.SortFunc(v.gpu, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	for i := range s.ConfigMaps {
		if m := &s.ConfigMaps[i]; m.Namespace == s.Namespace {
			v.maps[m.Name] = m
		}
	}
	for i := range s.Pods {
		if p := &s.Pods[i]; p.Spec.NodeName != "" {
			v.pods[p.Spec.NodeName] = append(v.pods[p.Spec.NodeName], p)
		}
	}
	for _, o := range v.Table.Operands(v.Release) {
		if o.Label != "" && v.order(o.Label) == len(v.components) {
			v.components = append(v.components, o)
		}
	}
	for i := range s.DaemonSets {
		set := operandSet{&s.DaemonSets[i], componentOf(s.DaemonSets[i].Spec.Template.Spec.NodeSelector)}
		if set.component != "" && set.Namespace == s.Namespace {
			v.sets = append(v.sets, set)
		}
	}
	slices.SortStableFunc(v.sets, func(a, b operandSet) int {
		return cmp.Or(cmp.Compare(v.order(a.component), v.order(b.component)), cmp.Compare(a.Name, b.Name))
	})
	v.shareName = v.text("devicePlugin.config.name")
	if m := v.maps[v.shareName]; m != nil {
		v.shares = map[string]*sharing.Config{}
		for key, text := range m.Data {
			v.shares[key], _ = sharing.Parse([]byte(text))
		}
	}
	return v
}

// operandSet is an operand's DaemonSet, with the component that it runs.
type operandSet struct {
	*appsv1.DaemonSet
	component string
}

// componentOf returns the component that a DaemonSet runs, such as "driver": the part after nvidia.com/gpu.deploy. of a
// label in its nodeSelector. It returns "" without such a label. The label nvidia.com/gpu.deploy.client does not count,
// because DaemonSets of other programs use it.
func componentOf(selector map[string]string) string {
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		if component, ok := strings.CutPrefix(key, deployPrefix); ok && key != labelClient {
			return component
		}
	}
	return ""
}

// order returns the position of a component among the operands. Components that the release does not have are last.
func (v *view) order(component string) int {
	if i := slices.IndexFunc(v.components, func(o chart.Operand) bool { return o.Label == component }); i >= 0 {
		return i
	}
	return len(v.components)
}

// set returns a setting from the values or the ClusterPolicy, or nil if it is not set.
func (v *view) set(path string) any {
	if value, found, err := unstructured.NestedFieldNoCopy(v.Values, strings.Split(path, ".")...); found && err == nil {
		return value
	}
	if v.policy == nil {
		return nil
	}
	path = strings.Replace("spec."+path, "driver.nvidiaDriverCRD.enabled", "driver.useNvidiaDriverCRD", 1)
	value, _, _ := unstructured.NestedFieldNoCopy(v.policy.Object, strings.Split(path, ".")...)
	return value
}

// get returns a setting, or the chart's default if it is not set.
func (v *view) get(path string) any {
	if value := v.set(path); value != nil {
		return value
	}
	value, _ := v.Table.Default(v.Release, path)
	return value
}

func (v *view) is(path string) bool { b, _ := v.get(path).(bool); return b }

// text returns a setting as text, or "" if it is not set. It does not use the chart's default.
func (v *view) text(path string) string {
	if value := v.set(path); value != nil {
		return fmt.Sprint(value)
	}
	return ""
}

// tolerations returns a setting that is a list of tolerations. Invalid parts are skipped.
func (v *view) tolerations(path string) (list []corev1.Toleration) {
	data, _ := json.Marshal(v.get(path))
	_ = json.Unmarshal(data, &list)
	return list
}

// why returns why the list of a kind is nil or incomplete, or "" if it is complete.
func (v *view) why(kind cluster.Kind) cluster.Why {
	if m := v.Lacks(kind); m != nil {
		return m.Why
	}
	return ""
}

// lacks reports whether a kind could not be read, or is not served by the cluster. An incomplete list counts as read.
// An incomplete list of pods or DaemonSets counts as read only if it has an object of the operator's namespace.
func (v *view) lacks(kind cluster.Kind) bool {
	switch why := v.why(kind); {
	case why != cluster.Partial:
		return why != ""
	case kind == cluster.Pods:
		return !slices.ContainsFunc(v.Pods, func(p corev1.Pod) bool { return p.Namespace == v.Namespace })
	case kind == cluster.DaemonSets:
		return !slices.ContainsFunc(v.DaemonSets, func(d appsv1.DaemonSet) bool { return d.Namespace == v.Namespace })
	}
	return false
}

// unread reports the kinds that the checks need but lack. Before an installation, the findings of the checks themselves
// say that a list is incomplete.
func unread(v *view, kinds []cluster.Kind) []check.Finding {
	// NVIDIA's must-gather script collects no ConfigMaps, and NVIDIADrivers and GPUClusters only if there are any
	unneeded := map[cluster.Kind]bool{
		cluster.ConfigMaps:    v.shareName == "",
		cluster.NVIDIADrivers: !v.is("driver.nvidiaDriverCRD.enabled"),
		cluster.GPUClusters:   v.policy != nil,
		cluster.Events:        true, // they only explain causes
		cluster.CRDs:          !v.before,
	}
	findings := Unread(v.State, slices.DeleteFunc(kinds, func(k cluster.Kind) bool {
		why := v.why(k)
		return !v.lacks(k) || why == cluster.Partial && v.before || why == cluster.Unread && unneeded[k]
	}))
	for i := range findings {
		if !v.before && findings[i].Evidence.Object == string(cluster.CRDs) {
			findings[i].Severity = check.Note // only staleCRDs reads CRDs
		}
	}
	return findings
}

// Unread returns a finding for each kind whose list is nil or incomplete, except resources that the cluster does not
// serve. Findings about events are notes.
func Unread(s *cluster.State, kinds []cluster.Kind) []check.Finding {
	var findings []check.Finding
	for _, kind := range kinds {
		m := s.Lacks(kind)
		if m == nil || m.Why == cluster.Absent {
			continue
		}
		detail := strings.TrimSuffix(cmp.Or(m.Detail, string(m.Why)), ".")
		f := check.Finding{Check: NotRead, Subject: "list " + string(kind),
			Evidence: check.Seen("answer", string(kind), "%s", detail).At(s.At)}
		f.Say(check.Unknown, "%s; checks that need %s were skipped", detail, kind)
		if kind == cluster.Events {
			f.Say(check.Note, "%s; some causes can only be guessed", detail)
		}
		switch m.Why {
		case cluster.Forbidden:
			f.Fix = fmt.Sprintf("kubectl auth can-i list %s --all-namespaces", kind)
		case cluster.Partial, cluster.Unread:
			f.Fix = complete(kind)
		}
		findings = append(findings, f)
	}
	return findings
}

// complete returns the command that adds the whole list of a kind to a gathered folder.
func complete(kind cluster.Kind) string {
	return fmt.Sprintf("kubectl get %s -A -o yaml > %s.yaml  # into the folder", kind, kind)
}

// say sets the severity, the fix and the reason of a finding.
func say(f *check.Finding, severity check.Severity, fix, format string, args ...any) {
	f.Severity, f.Fix, f.Reason = severity, fix, fmt.Sprintf(format, args...)
}

// listed returns evidence from the list of a kind, with the time at which the cluster was read.
func (v *view) listed(kind cluster.Kind, format string, args ...any) check.Evidence {
	return check.Seen("list", string(kind), format, args...).At(v.At)
}

// setting returns evidence of a setting in the values, the ClusterPolicy or the chart.
func (v *view) setting(path string) check.Evidence {
	where := "chart " + v.Release.String()
	switch {
	case v.set(path) == nil:
	case v.policy != nil:
		where = "ClusterPolicy/" + v.policy.GetName()
	default:
		where = "values"
	}
	return check.Seen("setting", where, "%s=%v", path, v.get(path))
}

func label(n *corev1.Node, key string) check.Evidence {
	if value, found := n.Labels[key]; found {
		return check.Seen("label", "Node/"+n.Name, "%s=%s", key, value).At(labelWritten(n, key))
	}
	return check.Seen("label", "Node/"+n.Name, "%s is absent", key)
}

// shown describes the value of a label in a sentence: absent, or the quoted value.
func shown(labels map[string]string, key string) string {
	if value, found := labels[key]; found {
		return strconv.Quote(value)
	}
	return "absent"
}

// owners returns when each owner of a field last wrote to the object, according to managedFields.
func owners(fields []metav1.ManagedFieldsEntry, path ...string) []time.Time {
	var times []time.Time
	for _, e := range fields {
		if e.Time != nil && cluster.Owns(e, path...) == len(path) {
			times = append(times, e.Time.Time)
		}
	}
	return times
}

// labelWritten returns the latest time at which a node label can have got its value, or zero if unknown. A client that
// changes the value becomes the only owner of the label. Clients that write the same value later become owners too. So
// the label has had its value since the earliest write of an owner, or for longer.
func labelWritten(n *corev1.Node, label string) time.Time {
	if times := owners(n.ManagedFields, "metadata", "labels", label); len(times) > 0 {
		return slices.MinFunc(times, time.Time.Compare)
	}
	return time.Time{}
}

// some joins up to four names and says how many more there are.
func some(names []string) string {
	if more := len(names) - 4; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:4], ", "), more)
	}
	return strings.Join(names, ", ")
}

func (v *view) operatorLog() string {
	return fmt.Sprintf("kubectl logs -n %s -l app=gpu-operator --tail=100", v.Namespace)
}

func (v *view) logOf(app, container string) string {
	return fmt.Sprintf("kubectl logs -n %s -l app=%s -c %s --tail=100", v.Namespace, app, container)
}
