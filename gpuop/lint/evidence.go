package lint

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
)

// A searched directory also contains files of other programs. Such a file is checked only if its keys and names show
// that it is for the operator. Similar names are not enough.

var (
	// aboutGPUs matches every text that can be for the operator. Other files are not parsed.
	aboutGPUs = regexp.MustCompile(`(?i)nvidia|gpu|mig|dcgm|toolkit|driver|sharing`)
	// ownWords matches texts that are for the operator: its kinds, its chart in another tool's file, helm commands for
	// its chart, and MIG configs.
	ownWords = regexp.MustCompile(`(?m)^\s*apiVersion:\s*["']?nvidia\.com/v1|` +
		`^\s*(?:chart|name|chartName):\s*["']?(?:\S*/)?gpu-operator["']?\s*$|` +
		`^mig-configs:|\bhelm3?\s[^\n]*gpu-operator`)
	// topLevelKey matches the top-level keys of YAML.
	topLevelKey = regexp.MustCompile(`(?m)^([A-Za-z][A-Za-z-]*):`)
)

// sharedKeys and genericKeys are top-level keys that other charts have too. They are evidence only with a key of the
// operator's chart below them. For genericKeys, keys in everyChartHas are not evidence.
var (
	sharedKeys  = []string{"driver", "validator", "daemonsets", "platform", "hostPaths", "mig"}
	genericKeys = []string{"operator", "nfd", "node-feature-discovery", "cdi", "devicePlugin", "gfd", "psa", "psp",
		"nameOverride", "fullnameOverride", "extraObjects", "global"}
	everyChartHas = []string{"enabled", "image", "repository", "tag", "version", "imagePullPolicy", "imagePullSecrets",
		"resources", "tolerations", "nodeSelector", "affinity", "env", "args", "annotations", "labels", "name",
		"config", "priorityClassName", "logging", "nameOverride", "fullnameOverride", "upgradeCRD",
		"admissionController", "master", "worker", "gc", "topologyUpdater"}
)

// otherCharts lists charts that are easily confused with the operator's. marks are keys that only the other chart has.
var otherCharts = []struct{ name, marks string }{
	{"NVIDIA's network operator", `sriovNetworkOperator sriov-network-operator ofedDriver rdmaSharedDevicePlugin
		nvPeerDriver sriovDevicePlugin ibKubernetes secondaryNetwork nvIpam docaTelemetryService nicFeatureDiscovery
		maintenanceOperator maintenance-operator-chart nicConfigurationOperator nic-configuration-operator-chart
		nfd.deployNodeFeatureRules operator.maintenanceOperator operator.useDTK`},
	{"AMD's GPU operator", "deviceConfig kmm controllerManager"},
}

// otherChartOf returns the name of the other chart that the values are for, or "".
func otherChartOf(t *chart.Table, root *yaml.Node) string {
	for _, c := range otherCharts {
		marks := 0
		for mark := range strings.FieldsSeq(c.marks) {
			if fields.Get(root, strings.Split(mark, ".")...) != nil {
				marks++
			}
		}
		if marks > 0 && marks >= exactKeys(t, root) {
			return c.name
		}
	}
	return ""
}

// exactKeys counts the top-level keys that are evidence for the operator's chart.
func exactKeys(t *chart.Table, root *yaml.Node) (n int) {
	for _, f := range fields.Of(root) {
		switch {
		case !t.HasComponent(f.Name):
		case slices.Contains(sharedKeys, f.Name) && !hasKeyOf(t, f.Name, f.Value):
		case slices.Contains(genericKeys, f.Name) && !hasKeyOf(t, f.Name, f.Value, everyChartHas...):
		default:
			n++
		}
	}
	return n
}

// isOwn reports whether a document in a searched directory is for the operator.
func (r *run) isOwn(d *doc) bool {
	switch d.kind {
	case kindClusterPolicy, kindNVIDIADriver, kindGPUCluster:
		return strings.HasPrefix(fields.Text(d.root, "apiVersion"), "nvidia.com/")
	case kindUmbrella:
		inner := umbrella(r.table, d.root)
		return otherChartOf(r.table, inner) == "" &&
			slices.ContainsFunc(fields.Of(inner), func(f fields.Field) bool { return r.table.HasComponent(f.Name) })
	case kindValues:
		own := exactKeys(r.table, d.root)
		return r.chartOfValues(d.file) != nil || own >= 2 && own*2 >= len(fields.Of(d.root))
	case kindPlugin:
		return isPluginConfig(d.root)
	}
	return true
}

// isForeignPlugin reports whether a device plugin's config shares resources, and all of them belong to another vendor.
func isForeignPlugin(root *yaml.Node) bool {
	foreign := false
	for _, way := range []string{"timeSlicing", "mps"} {
		for _, item := range fields.Items(fields.Get(root, "sharing", way, "resources")) {
			domain, _, found := strings.Cut(fields.Text(item, "name"), "/")
			if !found || check.Nearest(domain, []string{"nvidia.com"}) != "" {
				return false
			}
			foreign = true
		}
	}
	return foreign
}

// isPluginConfig reports whether a document is certainly a config of the device plugin.
func isPluginConfig(root *yaml.Node) bool {
	if fields.Text(root, "version") != "v1" && fields.Get(root, "sharing") == nil || isForeignPlugin(root) {
		return false
	}
	for _, path := range []string{"sharing.timeSlicing", "sharing.mps", "flags.migStrategy", "flags.failOnInitError",
		"flags.nvidiaDriverRoot", "flags.plugin", "flags.gfd", "imex.channelIDs"} {
		if fields.Get(root, strings.Split(path, ".")...) != nil {
			return true
		}
	}
	return false
}

// isOwnText is like isOwn, for a text that is not valid YAML.
func (r *run) isOwnText(file string, data []byte) bool {
	own := map[string]bool{}
	for _, m := range topLevelKey.FindAllSubmatch(data, -1) {
		if name := string(m[1]); r.table.HasComponent(name) && !slices.Contains(genericKeys, name) {
			own[name] = true
		}
	}
	return len(own) >= 2 || ownWords.Match(data) || r.chartOfValues(file) != nil
}

// mayBeOwn reports whether a file in a searched directory is worth parsing.
func mayBeOwn(data []byte) bool { return aboutGPUs.Match(data) && !bytes.Contains(data, []byte{0}) }

// looksLikeScript reports whether a text is a script. A script begins with #!, or it has commands that gpuop checks and
// no top-level keys of YAML.
func looksLikeScript(data []byte) bool {
	return bytes.HasPrefix(data, []byte("#!")) ||
		!isMapping(data) && commandLine.Match(data) && !topLevelKey.Match(data)
}

// isMapping reports whether a text is a YAML mapping.
func isMapping(data []byte) bool {
	var root yaml.Node
	return yaml.Unmarshal(data, &root) == nil && len(root.Content) > 0 && root.Content[0].Kind == yaml.MappingNode
}

// commandLine matches a line that begins with a command that gpuop checks.
var commandLine = regexp.MustCompile(`(?m)^\s*(?:\$ )?(?:sudo\s+)?(?:helm3?|kubectl|oc|microk8s|k3s)\s+[a-z]`)

// foreignReference matches the repository or the name of AMD's chart, which is also named gpu-operator.
var foreignReference = regexp.MustCompile(`(?i)(^|[^a-z])(rocm|amd)([^a-z0-9]|$)`)

// operatorOf returns the name of another vendor's operator that the references name, or "".
func operatorOf(references ...string) string {
	if slices.ContainsFunc(references, foreignReference.MatchString) {
		return "AMD's GPU operator"
	}
	return ""
}
