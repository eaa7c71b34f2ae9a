package manifests

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
)

// patience bounds every wait; it is no claim about speed.
const patience = 60 * time.Second

var (
	root   = filepath.Join("..", "..")
	folder = filepath.Join(root, "deployment", "kubernetes")
)

// The objects of deployment/kubernetes.
type cluster struct {
	daemonSet      apps.DaemonSet
	service        core.Service
	serviceMonitor monitoring.ServiceMonitor
	namespace      core.Namespace
	quota          core.ResourceQuota
	account        core.ServiceAccount
	counters       core.ConfigMap
}

// load decodes every manifest that the kustomization names, as strictly as the API server with
// field validation: an unknown or repeated field is an error.
func load(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{}
	into := map[string]runtime.Object{
		"apps/v1 DaemonSet": &c.daemonSet,
		"v1 Service":        &c.service,
		"monitoring.coreos.com/v1 ServiceMonitor": &c.serviceMonitor,
		"v1 Namespace":      &c.namespace,
		"v1 ResourceQuota":  &c.quota,
		"v1 ServiceAccount": &c.account,
		"v1 ConfigMap":      &c.counters,
	}
	for _, name := range resources(t) {
		data := read(t, filepath.Join(folder, name))
		var kind struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal(data, &kind); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		key := kind.APIVersion + " " + kind.Kind
		object, ok := into[key]
		if !ok {
			t.Fatalf("%s: %s is new here, or there are two", name, key)
		}
		delete(into, key)
		if err := yaml.UnmarshalStrict(data, object); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for key := range into {
		t.Errorf("no manifest is a %s", key)
	}
	return c
}

// resources returns the files that the kustomization names.
func resources(t *testing.T) []string {
	t.Helper()
	var k struct {
		APIVersion, Kind, Namespace string
		Resources                   []string
	}
	if err := yaml.UnmarshalStrict(read(t, filepath.Join(folder, "kustomization.yaml")), &k); err != nil {
		t.Fatal(err)
	}
	return k.Resources
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func (c *cluster) container() core.Container { return c.daemonSet.Spec.Template.Spec.Containers[0] }

// environment returns the variables of the container, as on the node "node-7".
func (c *cluster) environment() map[string]string {
	env := map[string]string{}
	for _, e := range c.container().Env {
		env[e.Name] = e.Value
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil && e.ValueFrom.FieldRef.FieldPath == "spec.nodeName" {
			env[e.Name] = "node-7"
		}
	}
	return env
}

func TestKustomizationNamesEveryManifest(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, f := range files {
		if name := filepath.Base(f); name != "kustomization.yaml" && name != "values.yaml" {
			there = append(there, name)
		}
	}
	if diff := cmp.Diff(there, slices.Sorted(slices.Values(resources(t)))); diff != "" {
		t.Errorf("files and the kustomization's resources (-files +named):\n%s", diff)
	}
}

func TestObjectsFindEachOther(t *testing.T) {
	c := load(t)
	pod := c.daemonSet.Spec.Template
	if !labels.SelectorFromSet(c.daemonSet.Spec.Selector.MatchLabels).Matches(labels.Set(pod.Labels)) {
		t.Errorf("the DaemonSet does not select its pods: %v", pod.Labels)
	}
	if !labels.SelectorFromSet(c.service.Spec.Selector).Matches(labels.Set(pod.Labels)) {
		t.Errorf("the Service does not select the pods: %v", pod.Labels)
	}
	if !labels.SelectorFromSet(c.serviceMonitor.Spec.Selector.MatchLabels).Matches(labels.Set(c.service.Labels)) {
		t.Errorf("the ServiceMonitor does not select the Service: %v", c.service.Labels)
	}
	servicePort := c.service.Spec.Ports[0]
	if got := c.serviceMonitor.Spec.Endpoints[0].Port; got != servicePort.Name {
		t.Errorf("the ServiceMonitor scrapes port %q, the Service has %q", got, servicePort.Name)
	}
	if got := servicePort.TargetPort.StrVal; got != c.container().Ports[0].Name {
		t.Errorf("the Service sends to port %q, the container has %q", got, c.container().Ports[0].Name)
	}
	mounts := map[string]string{}
	for _, m := range c.container().VolumeMounts {
		mounts[m.Name] = m.MountPath
	}
	for _, v := range pod.Spec.Volumes {
		if mounts[v.Name] == "" {
			t.Errorf("the volume %s is not mounted", v.Name)
		}
		delete(mounts, v.Name)
	}
	if len(mounts) > 0 {
		t.Errorf("mounts without a volume: %v", mounts)
	}
	for _, name := range []string{c.daemonSet.Name, c.service.Name, c.serviceMonitor.Name, c.quota.Name, c.account.Name, c.counters.Name} {
		for _, msg := range validation.NameIsDNSSubdomain(name, false) {
			t.Errorf("name %s: %s", name, msg)
		}
	}
}

// What the GPU Operator and everything made for it rely on.
func TestTheOperatorsNames(t *testing.T) {
	c := load(t)
	type contract struct {
		Port            int32
		PortName        string
		ServicePortName string
		Liveness        string
		Token           bool
	}
	got := contract{
		Port: c.container().Ports[0].ContainerPort, PortName: c.container().Ports[0].Name,
		ServicePortName: c.service.Spec.Ports[0].Name, Liveness: c.container().LivenessProbe.HTTPGet.Path,
		Token: c.daemonSet.Spec.Template.Spec.AutomountServiceAccountToken == nil || *c.daemonSet.Spec.Template.Spec.AutomountServiceAccountToken,
	}
	want := contract{Port: 9400, PortName: "metrics", ServicePortName: "gpu-metrics", Liveness: "/health"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestTheContainerMayDoLittle(t *testing.T) {
	s := load(t).container().SecurityContext
	switch {
	case s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation:
		t.Error("privileges may be escalated")
	case s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem:
		t.Error("the root file system is not read-only")
	case s.Privileged != nil && *s.Privileged:
		t.Error("the container is privileged")
	case !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) || len(s.Capabilities.Add) > 0:
		t.Errorf("capabilities %+v, want none", s.Capabilities)
	}
}

// runtimeVariables are read by NVIDIA's container runtime, not by the exporter.
var runtimeVariables = []string{"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_MIG_MONITOR_DEVICES"}

func TestTheExporterTakesTheDaemonSetsSettings(t *testing.T) {
	c := load(t)
	env := c.environment()
	lookedUp := map[string]bool{}
	cfg, err := config.Parse(c.container().Args, func(name string) (string, bool) {
		lookedUp[name] = true
		v, ok := env[name]
		return v, ok
	}, os.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	for name := range maps.Keys(env) {
		if !lookedUp[name] && !slices.Contains(runtimeVariables, name) {
			t.Errorf("nothing reads the variable %s", name)
		}
	}
	_, port, err := net.SplitHostPort(cfg.Web.Address)
	if err != nil || port != "9400" {
		t.Errorf("the exporter listens on %s, the manifest says 9400", cfg.Web.Address)
	}
	if !cfg.Kubernetes.Enabled || cfg.Labels.NodeName != "node-7" {
		t.Errorf("Kubernetes %v on node %q", cfg.Kubernetes.Enabled, cfg.Labels.NodeName)
	}
	if !slices.ContainsFunc(c.container().VolumeMounts, func(m core.VolumeMount) bool {
		return m.MountPath == path.Dir(cfg.Kubernetes.Socket)
	}) {
		t.Errorf("the kubelet's socket %s is not mounted", cfg.Kubernetes.Socket)
	}
	// The counters are those of the ConfigMap, mounted as a folder.
	for _, m := range c.container().VolumeMounts {
		if m.MountPath == path.Dir(cfg.Metrics.File) && m.SubPath == "" {
			return
		}
	}
	t.Errorf("no folder with %s is mounted", cfg.Metrics.File)
}

// inImage returns the paths of the files that the Dockerfile copies.
func inImage(t *testing.T) map[string]bool {
	t.Helper()
	files := map[string]bool{}
	for line := range strings.Lines(string(read(t, filepath.Join(root, "deployment", "docker", "Dockerfile")))) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] != "COPY" || strings.HasPrefix(words[1], "--from=") {
			continue
		}
		to := words[len(words)-1]
		for _, from := range words[1 : len(words)-1] {
			if strings.HasSuffix(to, "/") {
				files[to+path.Base(from)] = true
			} else {
				files[to] = true
			}
			if _, err := os.Stat(filepath.Join(root, from)); err != nil && !strings.HasPrefix(from, "bin/") {
				t.Errorf("the Dockerfile copies %s: %v", from, err)
			}
		}
	}
	return files
}

func TestTheImageHasEveryShippedCountersFile(t *testing.T) {
	shipped, err := filepath.Glob(filepath.Join(root, "etc", "*.csv"))
	if err != nil || len(shipped) == 0 {
		t.Fatalf("shipped files: %v, %v", shipped, err)
	}
	files := inImage(t)
	for _, f := range shipped {
		if p := "/etc/dcgm-exporter/" + filepath.Base(f); !files[p] {
			t.Errorf("%s is not in the image", p)
		}
	}
}

func TestProbesAndPageAreWhereTheManifestsSay(t *testing.T) {
	c := load(t)
	env := c.environment()
	ctx, cancel := context.WithCancel(context.Background())
	var log bytes.Buffer // read once Run has returned
	listening, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- app.Run(ctx, app.Process{
			Args: append(slices.Clone(c.container().Args), "--source=sim", "--address=127.0.0.1:0", "--collect-interval=100",
				"--collectors="+filepath.Join(root, "etc", "default-counters.csv")),
			Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
			Out: io.Discard, Err: &log, Start: time.Now(), Version: "test",
			Listening: func(a net.Addr) { listening <- a.String() },
		})
	}()
	var address string
	select {
	case address = <-listening:
	case err := <-done:
		t.Fatalf("Run: %v\n%s", err, &log)
	case <-time.After(patience):
		t.Fatal("does not listen")
	}
	for _, p := range []string{
		c.container().LivenessProbe.HTTPGet.Path, c.container().ReadinessProbe.HTTPGet.Path, c.serviceMonitor.Spec.Endpoints[0].Path,
	} {
		if err := within(patience, func() error { return get("http://" + address + p) }); err != nil {
			t.Error(err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v\n%s", err, &log)
	}
}

func get(url string) error {
	resp, err := (&http.Client{Timeout: patience}).Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(url + ": " + resp.Status)
	}
	return nil
}

// within tries until there is no error.
func within(limit time.Duration, try func() error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); ; <-tick.C {
		if err := try(); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// The manifests that docs/kubernetes.md gives are whole, and are taken as they are.
func TestTheDocumentedAccessDecodes(t *testing.T) {
	text := string(read(t, filepath.Join(root, "docs", "kubernetes.md")))
	before, _, found := strings.Cut(text, "apiVersion: rbac.authorization.k8s.io/v1\n")
	start := strings.LastIndex(before, "```yaml\n") + len("```yaml\n")
	block, _, closed := strings.Cut(text[start:], "```")
	documents := strings.Split(block, "\n---\n")
	if !found || !closed || len(documents) != 3 {
		t.Fatalf("docs/kubernetes.md: expected a block of three manifests, found %d", len(documents))
	}
	var account core.ServiceAccount
	var role rbac.ClusterRole
	var binding rbac.ClusterRoleBinding
	for i, object := range []runtime.Object{&account, &role, &binding} {
		if err := yaml.UnmarshalStrict([]byte(documents[i]), object); err != nil {
			t.Errorf("%v in\n%s", err, documents[i])
		}
	}
	// What internal/kube watches and gets, and nothing else.
	watch := []string{"list", "watch"}
	want := []rbac.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: watch},
		{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceslices"}, Verbs: watch},
		{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch"}},
	}
	if diff := cmp.Diff(want, role.Rules); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
	if binding.RoleRef.Name != role.Name || binding.Subjects[0].Name != account.Name ||
		binding.Subjects[0].Namespace != account.Namespace || account.Namespace != load(t).namespace.Name {
		t.Errorf("account, role and binding do not name each other: %v", binding)
	}
}

// The overlay for shared GPUs is the base with the component of that name, which
// tests/chart holds against the chart.
func TestOverlayForSharedGPUs(t *testing.T) {
	overlay := filepath.Join(root, "deployment", "kubernetes-shared-gpus")
	var k struct {
		APIVersion, Kind      string
		Resources, Components []string
	}
	if err := yaml.UnmarshalStrict(read(t, filepath.Join(overlay, "kustomization.yaml")), &k); err != nil {
		t.Fatal(err)
	}
	if len(k.Resources) != 1 || filepath.Join(overlay, k.Resources[0]) != folder {
		t.Errorf("the overlay is of %q", k.Resources)
	}
	if len(k.Components) != 1 || filepath.Join(overlay, k.Components[0]) != filepath.Join(folder, "components", "shared-gpus") {
		t.Errorf("the overlay has the components %q", k.Components)
	}
	// The exporter reads what the component mounts.
	var patch apps.DaemonSet
	if err := yaml.UnmarshalStrict(read(t, filepath.Join(folder, "components", "shared-gpus", "daemonset.yaml")), &patch); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Parse(nil, func(string) (string, bool) { return "", false }, os.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	pod := patch.Spec.Template.Spec
	if m := pod.Containers[0].VolumeMounts[0]; m.MountPath != cfg.Kubernetes.PodLogs || !m.ReadOnly || m.Name != pod.Volumes[0].Name {
		t.Errorf("%s is not mounted read-only", cfg.Kubernetes.PodLogs)
	}
	if path := pod.Volumes[0].HostPath; path == nil || path.Path != cfg.Kubernetes.PodLogs {
		t.Errorf("%s is not the host's", cfg.Kubernetes.PodLogs)
	}
	if !pod.HostPID {
		t.Error("hostPID is not set")
	}
}
