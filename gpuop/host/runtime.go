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

// kubeRuntime describes a container runtime that a kubelet can use: containerd, CRI-O, or the containerd that is
// bundled with a Kubernetes distribution.
type kubeRuntime struct {
	name, socket, config string
	// fix is the fix if the handler is missing from a bundled containerd. It is empty for containerd and CRI-O.
	fix string
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

// kubeRuntime returns the kubelet's container runtime. This is the first runtime whose socket the kubelet's
// configuration names and whose configuration folder exists. If there is none, it is the first runtime with a
// configuration or a socket.
func (n *inspection) kubeRuntime() (kubeRuntime, error) {
	flags, _ := n.read("/var/lib/kubelet/kubeadm-flags.env") // the kubelet may have no flags
	config, _ := n.read("/var/lib/kubelet/config.yaml")
	for _, r := range kubeRuntimes {
		if strings.Contains(flags+config, r.socket) && n.hasAny(r.config, path.Dir(r.config)) {
			return r, nil
		}
	}
	for _, r := range kubeRuntimes {
		if n.hasAny(r.config, r.socket) || r.name == "CRI-O" && n.has("/etc/crio") ||
			r.name == "containerd" && n.has(dropIn) {
			return r, nil
		}
	}
	return kubeRuntime{name: "container runtime"},
		fmt.Errorf("no configuration or socket of containerd, CRI-O, k3s, RKE2 or MicroK8s in %s", n.path)
}

// runtimes checks that the kubelet's container runtime has a handler for the RuntimeClass nvidia, and that its binary
// exists.
func (n *inspection) runtimes() {
	r, err := n.kubeRuntime()
	var all map[string]handled
	if err == nil {
		all, err = n.configuration(r)
	}
	h, found := all[handler]
	n.run(runtimeConfig, r.name, func(f *check.Finding) error {
		if absent(err) {
			f.Say(check.Error, "%s does not exist: the container toolkit has not configured %s", r.config, r.name)
			return nil
		}
		if err == nil && !found {
			f.Say(check.Error, "%s has no runtime %q in %s or its drop-in files: "+
				"pods with the RuntimeClass %s stay in ContainerCreating", r.name, handler, r.config, handler)
			if n.has(validationDir + "/toolkit-ready") {
				f.Severity = check.Warning
				f.Reason += "; toolkit-ready exists, so this is expected only with cdi.nriPluginEnabled"
			}
			f.Fix = r.fix
		}
		if err != nil || !found {
			return err
		}
		_, err := n.info(h.binary)
		switch {
		case !path.IsAbs(h.binary) || err == nil:
			f.Say(check.OK, "the RuntimeClass %s has a handler in %s", handler, h.file)
		case absent(err):
			f.Say(check.Error, "the runtime %q in %s runs %s, which does not exist: "+
				"the toolkit was removed or is installed in another folder", handler, h.file, h.binary)
		default:
			return err
		}
		return nil
	})
	if found && h.systemd {
		n.run(devChar, "/dev/char", n.devChar)
	}
	// k3s and RKE2 detect NVIDIA's runtime themselves, so files in /etc/containerd may be harmless
	if err == nil && r.fix != "" && n.hasAny(mainConfig, dropIn) {
		n.run(runtimeStray, "/etc/containerd", func(f *check.Finding) error {
			f.Say(check.Warning, "%s reads %s, but the toolkit has written to /etc/containerd, which has no effect",
				r.name, r.config)
			f.Fix = r.fix
			if found {
				f.Severity, f.Fix = check.Note, ""
				f.Reason += "; the RuntimeClass " + handler + " has a handler anyway"
			}
			return nil
		})
	}
}

// devChar checks that /dev/char has a link to the GPUs' control device, as a sample of the links to all device nodes.
// systemd resolves devices there when it updates a pod's cgroup; without the links, running containers lose their GPUs.
func (n *inspection) devChar(f *check.Finding) error {
	gpu, _, _ := n.majors() // missing majors are reported with the device nodes
	file := fmt.Sprintf("/dev/char/%d:255", gpu)
	if n.version != "" && gpu != 0 && n.has("/dev/char") && n.link(file) == "" {
		f.Say(check.Warning, "%s is missing and systemd manages cgroups: "+
			"after systemctl daemon-reload running containers lose their GPUs", file)
	}
	return nil
}

// configuration returns the handlers in a container runtime's main configuration file and its drop-ins. If the main
// file is missing, the error wraps fs.ErrNotExist; CRI-O does not need the file. configuration also reports a drop-in
// of the toolkit that containerd's main file does not import.
func (n *inspection) configuration(r kubeRuntime) (map[string]handled, error) {
	all := map[string]handled{}
	tree, err := n.tree(r.config, all)
	patterns, _ := tree["imports"].([]any) // only containerd has imports
	if r.name == "CRI-O" {
		patterns = []any{"/etc/crio/crio.conf.d/*"}
		if absent(err) {
			err = nil // drop-ins may have the whole configuration
		}
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
		if _, more := n.tree(file, all); err == nil {
			err = more
		}
	}
	if err == nil && r.config == mainConfig && n.has(dropIn) && !slices.Contains(files, dropIn) {
		n.run(runtimeImports, dropIn, func(f *check.Finding) error {
			severity, which := check.Error, "containerd"
			if version, _ := tree["version"].(int64); tree["imports"] == nil && version >= 3 {
				severity, which = check.Warning, "containerd before v2.2"
			}
			f.Say(severity, "not listed in imports of %s: %s does not read it, so the RuntimeClass %s has no handler",
				mainConfig, which, handler)
			return nil
		})
	}
	return all, err
}

// tree parses a TOML file, and adds its runtime handlers. The name of containerd's Kubernetes plugin differs between
// versions 1, 2 and 3 of its configuration. A syntax error names the file and line.
func (n *inspection) tree(file string, all map[string]handled) (tree map[string]any, err error) {
	text, err := n.read(file)
	if err != nil {
		return nil, err
	}
	if err := toml.Unmarshal([]byte(text), &tree); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, plugin := range []string{"io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri"} {
		runtimes := below(tree, "plugins", plugin, "containerd", "runtimes")
		for name := range runtimes {
			options := below(runtimes, name, "options")
			binary, _ := options["BinaryName"].(string)
			all[name] = handled{binary, options["SystemdCgroup"] == true, file}
		}
	}
	crio := below(tree, "crio", "runtime")
	for name := range below(crio, "runtimes") {
		binary, _ := below(crio, "runtimes", name)["runtime_path"].(string)
		all[name] = handled{binary, crio["cgroup_manager"] != "cgroupfs", file}
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
