package host

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

const (
	mainConfig = "/etc/containerd/config.toml"
	dropIn     = "/etc/containerd/conf.d/99-nvidia.toml"
	handler    = "nvidia" // the handler of the operator's RuntimeClass
	toolkitLog = "kubectl logs -n gpu-operator -l app=nvidia-container-toolkit-daemonset"
)

// handled is a runtime handler in a container runtime's configuration.
type handled struct {
	binary  string
	systemd bool // uses the systemd cgroup driver
	file    string
}

// configured is the merged configuration of a container runtime.
type configured struct {
	files    []string
	runtimes map[string]handled
}

// kubeRuntime describes a container runtime that a kubelet can use: containerd, CRI-O, or the containerd that is
// bundled with a Kubernetes distribution.
type kubeRuntime struct {
	name, socket, config string
	// next is the fix if the handler is missing from a bundled containerd. It is empty for containerd and CRI-O.
	next string
}

// kubeRuntimes lists the container runtimes in the order in which they are tried.
var kubeRuntimes = []kubeRuntime{
	{"k3s", "/run/k3s/containerd/containerd.sock", "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
		"sudo systemctl restart k3s-agent  # or k3s: it looks for nvidia-container-runtime when it starts"},
	{"RKE2", "/run/k3s/containerd/containerd.sock", "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
		"sudo systemctl restart rke2-agent  # or rke2-server: it looks for nvidia-container-runtime when it starts"},
	{"MicroK8s", "/var/snap/microk8s/common/run/containerd.sock", "/var/snap/microk8s/current/args/containerd.toml",
		"helm upgrade … with toolkit.env " +
			"CONTAINERD_CONFIG=/var/snap/microk8s/current/args/containerd-template.toml " +
			"and CONTAINERD_SOCKET=/var/snap/microk8s/common/run/containerd.sock"},
	{"containerd", "/run/containerd/containerd.sock", mainConfig, ""},
	{"CRI-O", "/run/crio/crio.sock", "/etc/crio/crio.conf", ""},
}

// runtimes checks the configuration of the kubelet's container runtime. This is the first runtime whose socket the
// kubelet's configuration names and whose configuration folder exists. If there is none, it is the first runtime with a
// configuration or a socket.
func (n *inspection) runtimes() {
	flags, _ := n.read("/var/lib/kubelet/kubeadm-flags.env") // the kubelet may have no flags
	config, _ := n.read("/var/lib/kubelet/config.yaml")
	at := slices.IndexFunc(kubeRuntimes, func(r kubeRuntime) bool {
		return strings.Contains(flags+config, r.socket) && n.hasAny(r.config, path.Dir(r.config))
	})
	if at < 0 {
		at = slices.IndexFunc(kubeRuntimes, func(r kubeRuntime) bool {
			return n.hasAny(r.config, r.socket) || r.name == "CRI-O" && n.has("/etc/crio") ||
				r.name == "containerd" && n.has(dropIn)
		})
	}
	if at < 0 {
		reason := "no configuration or socket of containerd, CRI-O, k3s, RKE2 or MicroK8s found"
		if !n.has("/etc") || !n.has("/run") {
			reason = n.path + " lacks /etc or /run"
		}
		n.add(runtimeConfig, check.Unknown, "container runtime", "not checked: "+reason, "")
		return
	}
	r := kubeRuntimes[at]
	c, err := n.configuration(r)
	switch {
	case absent(err):
		n.add(runtimeConfig, check.Error, r.name,
			r.config+" does not exist: the container toolkit has not configured "+r.name, toolkitLog)
		return
	case err != nil:
		state, reason, next := unread(err)
		n.add(runtimeConfig, state, r.name, reason, next)
		return
	}
	state, reason, next := n.checkRuntime(r, c)
	n.add(runtimeConfig, state, r.name, reason, next)
	h, found := c.runtimes[handler]
	if state == check.OK && h.systemd {
		n.devChar()
	}
	// k3s and RKE2 detect NVIDIA's runtime themselves, so files in /etc/containerd may be harmless
	if r.next != "" && n.hasAny(mainConfig, dropIn) {
		state, reason, next = check.Warning,
			r.name+" reads "+r.config+", but the toolkit has written to /etc/containerd, which has no effect", r.next
		if found {
			state, reason, next = check.Note, reason+"; the RuntimeClass "+handler+" has a handler anyway", ""
		}
		n.add(runtimeStray, state, "/etc/containerd", reason, next)
	}
}

// checkRuntime checks that the RuntimeClass nvidia has a handler. If the path of the handler's binary is absolute, it
// also checks that the binary exists.
func (n *inspection) checkRuntime(r kubeRuntime, c configured) (state check.Severity, reason, next string) {
	h, found := c.runtimes[handler]
	_, err := n.info(h.binary)
	switch {
	case !found:
		state, next = check.Error, toolkitLog
		reason = fmt.Sprintf("%s has no runtime %q in %s: pods with the RuntimeClass %s stay in ContainerCreating",
			r.name, handler, strings.Join(c.files, " and "), handler)
		if n.passed != nil && n.has(validationDir+"/toolkit-ready") {
			state, reason = check.Warning,
				reason+"; toolkit-ready exists, so this is expected only with cdi.nriPluginEnabled"
		}
		if r.next != "" {
			next = r.next
		}
		return state, reason, next
	case path.IsAbs(h.binary) && absent(err):
		return check.Error,
			fmt.Sprintf("the runtime %q in %s runs %s, which does not exist: "+
				"the toolkit was removed or is installed in another folder", handler, h.file, h.binary), toolkitLog
	case path.IsAbs(h.binary) && err != nil:
		return unread(err)
	}
	return check.OK, fmt.Sprintf("the RuntimeClass %s has a handler in %s", handler, h.file), ""
}

// devChar checks that /dev/char has a link to the GPUs' control device, as a sample of the links to all device nodes.
// systemd resolves devices there when it updates a pod's cgroup; without the links, running containers lose their GPUs.
func (n *inspection) devChar() {
	if n.version == "" || !n.has("/dev/char") {
		return
	}
	majors, _ := n.majors() // missing majors are reported with the device nodes
	for _, name := range frontend {
		if major, known := majors[name]; known && n.link(fmt.Sprintf("/dev/char/%d:255", major)) == "" {
			n.add(devChar, check.Warning, "/dev/char",
				fmt.Sprintf("/dev/char/%d:255 is missing and systemd manages cgroups: "+
					"after systemctl daemon-reload running containers lose their GPUs", major),
				"sudo nvidia-ctk system create-dev-char-symlinks --create-all")
			return
		}
	}
}

// configuration reads a container runtime's main configuration file and its drop-ins. If the main file is missing, the
// error wraps fs.ErrNotExist; CRI-O does not need the file. configuration also reports a drop-in of the toolkit that
// containerd's main file does not import.
func (n *inspection) configuration(r kubeRuntime) (configured, error) {
	c := configured{runtimes: map[string]handled{}}
	tree, err := n.tree(r.config)
	if r.name == "CRI-O" && absent(err) {
		err = nil // drop-ins may have the whole configuration
	}
	if err != nil {
		return c, err
	}
	c.add(r.config, tree)
	patterns, _ := tree["imports"].([]any) // only containerd has imports
	if r.name == "CRI-O" {
		patterns = []any{"/etc/crio/crio.conf.d/*"}
	}
	var files []string
	for _, p := range patterns {
		pattern, _ := p.(string)
		if !path.IsAbs(pattern) {
			pattern = path.Join(path.Dir(r.config), pattern)
		}
		files = append(files, n.glob(pattern)...)
	}
	for _, file := range files { // drop-ins override the main file
		more, err := n.tree(file)
		if err != nil {
			return c, err
		}
		c.add(file, more)
	}
	if r.config == mainConfig && n.has(dropIn) && !slices.Contains(files, dropIn) {
		state, when := check.Error, "containerd does not read it"
		if version, _ := tree["version"].(int64); tree["imports"] == nil && version >= 3 {
			state, when = check.Warning, "containerd before v2.2 does not read it"
		}
		n.add(runtimeImports, state, dropIn,
			fmt.Sprintf("not listed in imports of %s: %s, so the RuntimeClass %s has no handler",
				mainConfig, when, handler),
			`add imports = ["/etc/containerd/conf.d/*.toml"] to `+mainConfig+", then sudo systemctl restart containerd")
	}
	return c, nil
}

// add merges the configuration of a file. The name of containerd's Kubernetes plugin differs between versions 1, 2 and
// 3 of its configuration.
func (c *configured) add(file string, tree map[string]any) {
	c.files = append(c.files, file)
	for _, plugin := range []string{"io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri"} {
		runtimes := below(tree, "plugins", plugin, "containerd", "runtimes")
		for name := range runtimes {
			options := below(runtimes, name, "options")
			binary, _ := options["BinaryName"].(string)
			c.runtimes[name] = handled{binary, options["SystemdCgroup"] == true, file}
		}
	}
	crio := below(tree, "crio", "runtime")
	for name := range below(crio, "runtimes") {
		binary, _ := below(crio, "runtimes", name)["runtime_path"].(string)
		c.runtimes[name] = handled{binary, crio["cgroup_manager"] != "cgroupfs", file}
	}
}

// tree parses a TOML file. A syntax error names the file and line.
func (n *inspection) tree(file string) (tree map[string]any, err error) {
	text, err := n.read(file)
	if err != nil {
		return nil, err
	}
	if err := toml.Unmarshal([]byte(text), &tree); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return tree, nil
}

// below returns the table at the keys. It is empty if there is none.
func below(tree map[string]any, keys ...string) map[string]any {
	for _, k := range keys {
		tree, _ = tree[k].(map[string]any)
	}
	return tree
}
