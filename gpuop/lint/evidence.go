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
	// ownWords matches the operator's kinds, its chart in another tool's file, helm commands for it, and MIG configs.
	ownWords = regexp.MustCompile(`(?m)^\s*apiVersion:\s*["']?nvidia\.com/v1|` +
		`^\s*(?:chart|name|chartName):\s*["']?(?:\S*/)?gpu-operator["']?\s*$|` +
		`^mig-configs:|\bhelm3?\s[^\n]*gpu-operator`)
	// topLevelKey matches the top-level keys of YAML.
	topLevelKey = regexp.MustCompile(`(?m)^([A-Za-z][A-Za-z-]*):`)
)

// sharedKeys and genericKeys are top-level keys that other charts have too. They count as the operator's only with one
// of its keys below them. For genericKeys, that is a key other than everyChartHas.
var (
	sharedKeys  = strings.Fields("driver validator daemonsets platform hostPaths mig")
	genericKeys = strings.Fields(`operator nfd node-feature-discovery cdi devicePlugin gfd psa psp nameOverride
		fullnameOverride extraObjects global`)
	everyChartHas = strings.Fields(`enabled image repository tag version imagePullPolicy imagePullSecrets resources
		tolerations nodeSelector affinity env args annotations labels name config priorityClassName logging
		nameOverride fullnameOverride upgradeCRD admissionController master worker gc topologyUpdater`)
	// indentedKeys are those of sharedKeys and genericKeys that are evidence in a file that the user names, even if the
	// indentation below them is lost.
	indentedKeys = strings.Fields("driver validator devicePlugin cdi")
)

// evidence counts the top-level keys of a document.
type evidence struct {
	own    int // keys of the operator's chart
	weak   int // keys that other charts have too
	lost   int // those of weak whose indentation was probably lost: driver without a mapping below it
	near   int // keys with similar names, and a key of the operator's chart below them
	others int // all other keys
	plugin int // keys of the device plugin's config, whatever else they are
}

func evidenceIn(t *chart.Table, root *yaml.Node) (e evidence) {
	for _, f := range fields.Of(root) {
		if slices.Contains([]string{"sharing", "flags", "imex", "shared"}, f.Name) ||
			f.Name == "version" && f.Value.Value == "v1" {
			e.plugin++
		}
		component := t.Component(f.Name)
		isGeneric := slices.Contains(genericKeys, f.Name) && !hasKeyOf(t, component, f.Value, everyChartHas...)
		switch hasKey := hasKeyOf(t, component, f.Value); {
		case component == "", component != f.Name && !hasKey:
			e.others++
		case component != f.Name:
			e.near++
		case isGeneric || slices.Contains(sharedKeys, f.Name) && !hasKey:
			e.weak++
			if slices.Contains(indentedKeys, f.Name) && f.Value.Kind != yaml.MappingNode {
				e.lost++
			}
		default:
			e.own++
		}
	}
	return e
}

// hasKeyOf reports whether group contains a key that the component has in any release, other than those in except.
func hasKeyOf(t *chart.Table, component string, group *yaml.Node, except ...string) bool {
	return slices.ContainsFunc(fields.Of(group), func(f fields.Field) bool {
		if slices.Contains(except, f.Name) {
			return false
		}
		is := t.Lookup(t.Latest(), chart.Path{component, f.Name}).Status
		return is == chart.Known || is == chart.Group || is == chart.Gone
	})
}

// otherCharts lists charts that are easily confused with the operator's. marks are keys that only the other chart has.
// lead is by how many they must outnumber the keys of the operator's chart.
var otherCharts = []struct {
	name  kind
	lead  int
	marks string
}{
	{kindPluginValues, 1, "compatWithCPUManager deviceDiscoveryStrategy deviceIDStrategy deviceListStrategy" +
		" failOnInitError gdsEnabled legacyDaemonsetAPI migStrategy mofedEnabled nfd.worker config.map"},
	{"NVIDIA's network operator", 0, `sriovNetworkOperator sriov-network-operator ofedDriver rdmaSharedDevicePlugin
		nvPeerDriver sriovDevicePlugin ibKubernetes secondaryNetwork nvIpam docaTelemetryService nicFeatureDiscovery
		maintenanceOperator maintenance-operator-chart nicConfigurationOperator nic-configuration-operator-chart
		nfd.deployNodeFeatureRules operator.maintenanceOperator operator.useDTK`},
	{"AMD's GPU operator", 0, "deviceConfig kmm controllerManager"},
}

// countAt counts the dotted paths that exist in a document.
func countAt(root *yaml.Node, paths string) (n int) {
	for path := range strings.FieldsSeq(paths) {
		if fields.Get(root, strings.Split(path, ".")...) != nil {
			n++
		}
	}
	return n
}

// otherChartOf returns the name of the other chart that the values are for, or "".
func otherChartOf(t *chart.Table, root *yaml.Node) kind {
	for _, c := range otherCharts {
		if marks := countAt(root, c.marks); marks > 0 && marks >= evidenceIn(t, root).own+c.lead {
			return c.name
		}
	}
	return ""
}

// isOwn reports whether a document in a searched directory is for the operator.
func (r *run) isOwn(d *doc) bool {
	switch d.kind {
	case kindClusterPolicy, kindNVIDIADriver, kindGPUCluster:
		return strings.HasPrefix(fields.Text(d.root, "apiVersion"), "nvidia.com/")
	case kindUmbrella:
		inner := umbrella(r.table, d.root)
		e := evidenceIn(r.table, inner)
		return otherChartOf(r.table, inner) == "" && e.own+e.weak > 0
	case kindValues:
		own := evidenceIn(r.table, d.root).own
		return r.chartOfValues(d.file) != nil || own >= 2 && own*2 >= len(fields.Of(d.root))
	case kindPlugin:
		return isPluginConfig(d.root)
	}
	return true
}

// isPluginConfig reports whether a document is certainly a config of NVIDIA's device plugin.
func isPluginConfig(root *yaml.Node) bool {
	for _, way := range []string{"timeSlicing", "mps"} {
		for _, item := range fields.Items(fields.Get(root, "sharing", way, "resources")) {
			domain, _, found := strings.Cut(fields.Text(item, "name"), "/")
			if found && check.Nearest(domain, []string{"nvidia.com"}) == "" {
				return false // another vendor's device plugin
			}
		}
	}
	return (fields.Text(root, "version") == "v1" || fields.Get(root, "sharing") != nil) &&
		countAt(root, `sharing.timeSlicing sharing.mps flags.migStrategy flags.failOnInitError flags.plugin flags.gfd
			flags.nvidiaDriverRoot imex.channelIDs`) > 0
}

// isOwnText is like isOwn, for a text that is not valid YAML.
func (r *run) isOwnText(file string, data []byte) bool {
	own := 0
	for _, m := range topLevelKey.FindAllSubmatch(data, -1) {
		if name := string(m[1]); r.table.Component(name) == name && !slices.Contains(genericKeys, name) {
			own++
		}
	}
	return own >= 2 || ownWords.Match(data) || r.chartOfValues(file) != nil
}

// looksLikeScript reports whether a text begins with #!, or has commands to check and no top-level keys of YAML.
func looksLikeScript(data []byte) bool {
	return bytes.HasPrefix(data, []byte("#!")) || !isMapping(data) && commands.Match(data) && !topLevelKey.Match(data)
}

// isMapping reports whether a text is a YAML mapping.
func isMapping(data []byte) bool {
	var root yaml.Node
	return yaml.Unmarshal(data, &root) == nil && len(root.Content) > 0 && root.Content[0].Kind == yaml.MappingNode
}

// commands matches a line that begins with a command that gpuop checks.
var commands = regexp.MustCompile(`(?m)^\s*(?:\$ )?(?:sudo\s+)?(?:helm3?|kubectl|oc|microk8s|k3s)\s+[a-z]`)

// foreignReference matches the repository or the name of AMD's chart, which is also named gpu-operator.
var foreignReference = regexp.MustCompile(`(?i)(^|[^a-z])(rocm|amd)([^a-z0-9]|$)`)

// operatorOf returns the name of another vendor's operator that the references name, or "".
func operatorOf(references ...string) string {
	if slices.ContainsFunc(references, foreignReference.MatchString) {
		return "AMD's GPU operator"
	}
	return ""
}
