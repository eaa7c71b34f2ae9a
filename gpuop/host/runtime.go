package host

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

const (
	sourceRuntime = "nvidia-container-toolkit cmd/nvidia-ctk-installer/container/runtime, gpu-operator controllers/object_controls.go"
	sourceImports = "containerd docs/man/containerd-config.toml.5.md, imports; DefaultConfigIncludePattern since containerd v2.2"
	sourceDevChar = "https://github.com/NVIDIA/gpu-operator/issues/430"
	dropIn        = "/etc/containerd/conf.d/99-nvidia.toml"
	handler       = "nvidia" // of the RuntimeClass that the operator makes
	toolkitLog    = "kubectl logs -n gpu-operator -l app=nvidia-container-toolkit-daemonset"
)

// A handled is one runtime of a container runtime's configuration.
type handled struct {
	binary  string
	systemd bool // SystemdCgroup
	file    string
}

// A configured is the merged configuration of a container runtime.
type configured struct {
	files    []string
	runtimes map[string]handled
	deflt    string
}

// A kubeRuntime is a container runtime of a Kubernetes node.
type kubeRuntime struct {
	name, socket, config string
	endpoint             string // the end of what the kubelet's flags or configuration name
}

// kubeRuntimes are all, in the order in which they are looked for.
var kubeRuntimes = []kubeRuntime{
	{"k3s", "/run/k3s/containerd/containerd.sock", "/var/lib/rancher/k3s/agent/etc/containerd/config.toml", "k3s/containerd/containerd.sock"},
	{"RKE2", "/run/k3s/containerd/containerd.sock", "/var/lib/rancher/rke2/agent/etc/containerd/config.toml", "k3s/containerd/containerd.sock"},
	{"MicroK8s", "/var/snap/microk8s/common/run/containerd.sock", "/var/snap/microk8s/current/args/containerd.toml", "microk8s/common/run/containerd.sock"},
	{"k0s", "/run/k0s/containerd.sock", "/etc/k0s/containerd.toml", "k0s/containerd.sock"},
	{"containerd", "/run/containerd/containerd.sock", "/etc/containerd/config.toml", "run/containerd/containerd.sock"},
	{"CRI-O", "/var/run/crio/crio.sock", "/etc/crio/crio.conf", "crio.sock"},
	{"Docker", "/var/run/docker.sock", "/etc/docker/daemon.json", "cri-dockerd.sock"},
}

// runtime returns the container runtime that the kubelet uses: the one that its flags name, or the
// first of which there is a configuration or a socket.
func (n *node) runtime() (kubeRuntime, bool) {
	flags, _ := n.read("/var/lib/kubelet/kubeadm-flags.env") // not every kubelet has flags
	config, _ := n.read("/var/lib/kubelet/config.yaml")
	for _, r := range kubeRuntimes {
		if strings.Contains(flags+config, r.endpoint) && n.hasAny(r.config, path.Dir(r.config)) {
			return r, true
		}
	}
	for _, r := range kubeRuntimes {
		if n.hasAny(r.config, r.socket) || r.name == "CRI-O" && n.has("/etc/crio") || r.name == "containerd" && n.has(dropIn) {
			return r, true
		}
	}
	return kubeRuntime{}, false
}

func (n *node) hasAny(names ...string) bool {
	for _, name := range names {
		if n.has(name) {
			return true
		}
	}
	return false
}

// runtimes judges the configuration of the node's container runtime: whether the RuntimeClass nvidia
// has a handler there, and whether that is a program.
func (n *node) runtimes() {
	const id, subject = "runtime", "container runtime"
	r, found := n.runtime()
	if !found {
		if n.has("/etc") && n.has("/run") {
			n.add(id, report.Unknown, subject, "not judged: neither a configuration nor a socket of containerd, CRI-O, Docker, k3s, RKE2, MicroK8s or k0s is there", "", sourceRuntime)
		} else {
			n.add(id, report.Unknown, subject, "not judged: "+n.path+" lacks /etc or /run", "", sourceRuntime)
		}
		return
	}
	read := n.containerd
	switch r.name {
	case "CRI-O":
		read = n.crio
	case "Docker":
		read = n.docker
	}
	switch c, err := read(r.config); {
	case absent(err):
		n.add(id, report.Failed, r.name, r.config+" is not there: the container toolkit has not configured "+r.name, toolkitLog, sourceRuntime)
	case err != nil:
		n.unknown(id, r.name, err, sourceRuntime)
	default:
		n.judgeRuntime(r, c)
		n.strayConfig(r, c)
	}
}

// packaged is the next step for containerds that a distribution of Kubernetes brings and configures itself.
var packaged = map[string]string{
	"k3s":      "sudo systemctl restart k3s-agent  # or k3s: it looks for nvidia-container-runtime when it starts",
	"RKE2":     "sudo systemctl restart rke2-agent  # or rke2-server: it looks for nvidia-container-runtime when it starts",
	"MicroK8s": "helm upgrade … with toolkit.env CONTAINERD_CONFIG=/var/snap/microk8s/current/args/containerd-template.toml and CONTAINERD_SOCKET=/var/snap/microk8s/common/run/containerd.sock",
	"k0s":      "helm upgrade … with toolkit.env CONTAINERD_CONFIG=/etc/k0s/containerd.d/nvidia.toml and CONTAINERD_SOCKET=/run/k0s/containerd.sock",
}

func (n *node) judgeRuntime(r kubeRuntime, c configured) {
	const id = "runtime"
	in := strings.Join(c.files, " and ")
	h, found := c.runtimes[handler]
	if !found {
		state, reason := report.Failed, fmt.Sprintf("%s has no runtime %q in %s: pods with the RuntimeClass %s stay in ContainerCreating", r.name, handler, in, handler)
		if n.passed != nil && n.has(validationDir+"/toolkit-ready") {
			state, reason = report.Warning, reason+"; toolkit-ready is there, so that this is as intended only with cdi.nriPluginEnabled"
		}
		next := toolkitLog
		if own, found := packaged[r.name]; found {
			next = own
		}
		n.add(id, state, r.name, reason, next, sourceRuntime)
		return
	}
	if h.binary != "" && path.IsAbs(h.binary) && !n.has(h.binary) {
		if _, err := n.info(h.binary); !absent(err) {
			n.unknown(id, r.name, err, sourceRuntime)
			return
		}
		n.add(id, report.Failed, r.name, fmt.Sprintf("the runtime %q in %s runs %s, which is not there: the toolkit was removed, or installs to another folder", handler, h.file, h.binary), toolkitLog, sourceRuntime)
		return
	}
	reason := fmt.Sprintf("the RuntimeClass %s has a handler in %s", handler, h.file)
	if c.deflt == handler {
		reason += ", which is the default of all pods"
	}
	n.add(id, report.OK, r.name, reason, "", sourceRuntime)
	if h.systemd {
		n.devChar()
	}
}

// devChar reports missing links in /dev/char: systemd resolves devices there when it renews a pod's
// cgroup, and without them takes the GPUs away from running containers.
func (n *node) devChar() {
	if n.version == "" || !n.has("/dev/char") {
		return
	}
	if majors, err := n.majors(); err == nil {
		for _, name := range frontend {
			if major, known := majors[name]; known && n.link(fmt.Sprintf("/dev/char/%d:255", major)) == "" {
				n.add("dev-char", report.Warning, "/dev/char", fmt.Sprintf("/dev/char/%d:255 is not there, and systemd manages cgroups: systemctl daemon-reload takes the GPUs away from running containers", major),
					"sudo nvidia-ctk system create-dev-char-symlinks --create-all", sourceDevChar)
				return
			}
		}
	}
}

// strayConfig reports a configuration of the toolkit that the node's runtime does not read. k3s and RKE2 find the
// toolkit's runtime themselves, so that it does no harm there.
func (n *node) strayConfig(r kubeRuntime, c configured) {
	next, own := packaged[r.name]
	if !own || !n.hasAny("/etc/containerd/config.toml", dropIn) {
		return
	}
	state, reason := report.Warning, r.name+" reads "+r.config+", and the toolkit has written to /etc/containerd, which has no effect"
	if _, found := c.runtimes[handler]; found {
		state, reason, next = report.Note, reason+"; the RuntimeClass "+handler+" has its handler all the same", ""
	}
	n.add("runtime-stray", state, "/etc/containerd", reason, next, sourceRuntime)
}

// containerd reads the main file and what it imports. An imported file wins over the main one.
func (n *node) containerd(main string) (configured, error) {
	c := configured{runtimes: map[string]handled{}}
	tree, err := n.toml(main)
	if err != nil {
		return c, err
	}
	c.containerd(main, tree)
	imports, has := tree["imports"].([]any)
	imported := false
	for _, i := range imports {
		pattern, _ := i.(string)
		if !path.IsAbs(pattern) {
			pattern = path.Join(path.Dir(main), pattern)
		}
		for _, file := range n.glob(pattern) {
			sub, err := n.toml(file)
			if err != nil {
				return c, err
			}
			imported = imported || file == dropIn
			c.containerd(file, sub)
		}
	}
	if !imported && main == "/etc/containerd/config.toml" && n.has(dropIn) {
		state, when := report.Failed, "containerd does not read it"
		if version, _ := tree["version"].(int64); !has && version >= 3 {
			state, when = report.Warning, "containerd before v2.2 does not read it"
		}
		n.add("runtime-imports", state, dropIn, fmt.Sprintf("imports in %s does not name it: %s, and the RuntimeClass %s has no handler", main, when, handler),
			`add imports = ["/etc/containerd/conf.d/*.toml"] to `+main+", and sudo systemctl restart containerd", sourceImports)
	}
	return c, nil
}

// containerd adds what one file of containerd says: its plugin for Kubernetes is called differently
// since version 3 of the configuration, and plain "cri" in version 1.
func (c *configured) containerd(file string, tree map[string]any) {
	c.files = append(c.files, file)
	for _, plugin := range []string{"io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri"} {
		section := below(tree, "plugins", plugin, "containerd")
		if name, ok := section["default_runtime_name"].(string); ok {
			c.deflt = name
		}
		for name := range below(section, "runtimes") {
			options := below(section, "runtimes", name, "options")
			binary, _ := options["BinaryName"].(string)
			systemd, _ := options["SystemdCgroup"].(bool)
			c.runtimes[name] = handled{binary, systemd, file}
		}
	}
}

// crio reads the main file and its drop-ins, in the order of their names.
func (n *node) crio(main string) (configured, error) {
	c := configured{runtimes: map[string]handled{}}
	for _, file := range append([]string{main}, n.glob("/etc/crio/crio.conf.d/*")...) {
		tree, err := n.toml(file)
		if absent(err) && file == main {
			continue // everything can be in drop-ins
		}
		if err != nil {
			return c, err
		}
		c.files = append(c.files, file)
		section := below(tree, "crio", "runtime")
		if name, ok := section["default_runtime"].(string); ok {
			c.deflt = name
		}
		manager, _ := section["cgroup_manager"].(string)
		for name := range below(section, "runtimes") {
			binary, _ := below(section, "runtimes", name)["runtime_path"].(string)
			c.runtimes[name] = handled{binary, manager != "cgroupfs", file}
		}
	}
	if len(c.files) == 0 {
		c.files = []string{main}
	}
	return c, nil
}

// docker reads daemon.json.
func (n *node) docker(file string) (configured, error) {
	c := configured{runtimes: map[string]handled{}, files: []string{file}}
	text, err := n.read(file)
	if err != nil {
		return c, err
	}
	var daemon struct {
		Default  string   `json:"default-runtime"`
		Options  []string `json:"exec-opts"`
		Runtimes map[string]struct {
			Path string `json:"path"`
		} `json:"runtimes"`
	}
	if err := json.Unmarshal([]byte(text), &daemon); err != nil {
		return c, fmt.Errorf("%s: %w", file, err)
	}
	c.deflt = daemon.Default
	for name, r := range daemon.Runtimes {
		c.runtimes[name] = handled{r.Path, strings.Contains(strings.Join(daemon.Options, " "), "cgroupdriver=systemd"), file}
	}
	return c, nil
}

// toml reads a file. The error names it, and the line.
func (n *node) toml(file string) (map[string]any, error) {
	text, err := n.read(file)
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if _, err := toml.Decode(text, &tree); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return tree, nil
}

// below returns the table under the keys, empty where there is none.
func below(tree map[string]any, keys ...string) map[string]any {
	for _, k := range keys {
		tree, _ = tree[k].(map[string]any)
	}
	return tree
}
