package mig

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
)

// Config is a mig-parted file: named configs in file order. The node label nvidia.com/mig.config selects one of them.
type Config []NamedConfig

// NamedConfig is a config of a mig-parted file with its name.
type NamedConfig struct {
	Name    string
	Line    int
	Entries []Entry
}

// Entry describes how to partition some GPUs of a node.
type Entry struct {
	// DeviceFilter lists the PCI device IDs (0x<device>10DE) that the entry applies to. Empty means all.
	DeviceFilter []string
	// All selects every GPU that passes the filter. If it is false, Indices lists the GPUs.
	All     bool
	Indices []int
	// Enabled reports whether MIG mode is on. Devices are the instances on each GPU.
	Enabled bool
	Devices Request
	Line    int
}

// ConfigKey is the only key of a ConfigMap that the MIG manager reads.
const ConfigKey = "config.yaml"

// ConfigMaps returns the ConfigMaps in the operator's namespace that the MIG manager tries, in order. If custom
// (migManager.config.name of the ClusterPolicy) is set, it is the only one. Otherwise it is the one generated from the
// node's GPUs, then the operator's static one. Source: the MIG page of NVIDIA's gpu-operator documentation, v26.3.
func ConfigMaps(node, custom string) []string {
	if custom != "" {
		return []string{custom}
	}
	return []string{node + "-mig-config", "default-mig-parted-config"}
}

// Config returns the config of the given name, and whether the file has it.
func (c Config) Config(name string) (NamedConfig, bool) {
	if i := slices.Index(c.Names(), name); i >= 0 {
		return c[i], true
	}
	return NamedConfig{}, false
}

// Names returns the names of the configs in file order.
func (c Config) Names() (names []string) {
	for _, n := range c {
		names = append(names, n.Name)
	}
	return names
}

// ParseConfig parses a mig-parted file. It accepts current profile names (1g.24gb-me, +gfx, +me.all). It reports what
// is unreadable, what the MIG manager rejects and what no board can hold. The config has everything that could be
// parsed. It is nil only if the file cannot be parsed as a YAML mapping. Findings have lines but no file.
func ParseConfig(data []byte) (Config, []check.Finding) {
	p := parser{fields.Reader{Unknown: "unknown key: the MIG manager rejects the file"}}
	root := p.Document(data)
	if root == nil {
		return nil, p.Findings
	}
	c := Config{}
	for _, f := range p.mapping(root, "", nil, "version", "mig-configs") {
		switch {
		case f.Name == "mig-configs":
			for _, named := range p.Mapping(f.Value, f.Name) {
				c = append(c, p.named(named))
			}
			if len(c) == 0 && f.Value.Kind == yaml.MappingNode {
				p.reject(configMissing, f.Value, f.Name, "", "at least one config is required")
			}
		case f.Value.Value != "v1":
			p.reject(configVersion, f.Value, f.Name, "write version: v1",
				"mig-parted does not support version %q", f.Value.Value)
		}
	}
	return c, p.Findings
}

type parser struct{ fields.Reader }

func (p *parser) reject(rule *check.Check, n *yaml.Node, path, fix, format string, args ...any) {
	p.Add(rule, check.Error, n, path, fmt.Sprintf(format, args...), fix)
}

// mapping returns the fields of a mapping. It reports required fields that are missing, and unknown fields.
func (p *parser) mapping(n *yaml.Node, path string, optional []string, required ...string) []fields.Field {
	found := p.Mapping(n, path, append(required, optional...)...)
	for _, name := range required {
		isName := func(f fields.Field) bool { return f.Name == name }
		if n.Kind == yaml.MappingNode && !slices.ContainsFunc(found, isName) {
			p.reject(configMissing, n, cmp.Or(path, name), "", "the field %s is required", name)
		}
	}
	return found
}

func (p *parser) named(f fields.Field) NamedConfig {
	n := NamedConfig{Name: f.Name, Line: f.Key.Line}
	path := "mig-configs." + f.Name
	if f.Name == "" || len(validation.IsValidLabelValue(f.Name)) > 0 {
		p.reject(configName, f.Key, path, "use at most 63 letters, digits, '.', '_' and '-', such as "+
			cmp.Or(strings.ReplaceAll(f.Name, "+", "."), "mine"),
			"the name cannot be the value of the nvidia.com/mig.config label, so no node can select it")
	}
	before := len(p.Findings)
	for i, e := range p.List(f.Value, path) {
		n.Entries = append(n.Entries, p.entry(e, fmt.Sprintf("%s[%d]", path, i)))
	}
	switch {
	case len(p.Findings) > before:
	case len(n.Entries) == 0:
		p.reject(configMissing, f.Key, path, "", "the config is empty; at least one entry is required")
	default:
		p.coverage(f.Key, path, n)
	}
	return n
}

func (p *parser) entry(node *yaml.Node, path string) Entry {
	entry := Entry{Line: node.Line}
	before, isBool := len(p.Findings), false
	var instances *yaml.Node
	for _, f := range p.mapping(node, path, []string{"device-filter", "mig-devices"}, "devices", "mig-enabled") {
		at := path + "." + f.Name
		switch f.Name {
		case "device-filter":
			entry.DeviceFilter = p.filter(f.Value, at)
		case "devices":
			entry.All, entry.Indices = p.devices(f.Value, at)
		case "mig-enabled":
			entry.Enabled, isBool = p.Bool(f.Value, at)
		case "mig-devices":
			instances = f.Value
			entry.Devices = p.instances(f.Value, at)
		}
	}
	if isBool && (entry.Enabled && instances == nil || !entry.Enabled && len(entry.Devices) > 0) {
		p.reject(modeDevices, cmp.Or(instances, node), path,
			"write mig-enabled: true with mig-devices ({} means no instance), or mig-enabled: false without",
			"mig-enabled is %t, but mig-devices is %s: mig-parted rejects the file",
			entry.Enabled, cmp.Or(entry.Devices.String(), "missing"))
	}
	if len(p.Findings) == before && len(entry.Devices) > 0 {
		p.fit(instances, path+".mig-devices", entry)
	}
	return entry
}

// pciID matches NVIDIA's PCI device IDs as mig-parted writes them: 0x<device><vendor>.
var pciID = regexp.MustCompile(`^(?i)0x[0-9a-f]{4}10DE$`)

func (p *parser) filter(n *yaml.Node, path string) (ids []string) {
	nodes := fields.Items(n)
	if n.Kind != yaml.SequenceNode {
		nodes = []*yaml.Node{n}
	}
	for _, e := range nodes {
		id, ok := p.Text(e, path)
		if ok && !pciID.MatchString(id) {
			p.reject(deviceFilter, e, path, `write it as 0x<device>10DE, for example "0x20B210DE"`,
				"%q matches no GPU: it is not an NVIDIA PCI device id in mig-parted's format", id)
		}
		ids = append(ids, id)
	}
	return ids
}

func (p *parser) devices(n *yaml.Node, path string) (all bool, indices []int) {
	if n.Kind == yaml.ScalarNode {
		if n.Value != "all" {
			p.reject(fields.WrongType, n, path, "", "found %q, expected all or a list of GPU indices", n.Value)
		}
		return n.Value == "all", nil
	}
	for _, e := range p.List(n, path) {
		if i, ok := p.Int(e, path); ok {
			indices = append(indices, i)
		}
	}
	return false, indices
}

// instances reads the number of instances of each profile. A profile in the form that the MIG manager accepts may be of
// a board that gpuop does not know.
func (p *parser) instances(n *yaml.Node, path string) Request {
	r := Request{}
	for _, f := range p.Mapping(n, path) {
		at := path + "." + f.Name
		severity := check.Error
		if _, ok := parseName(f.Name); ok {
			severity = check.Warning
		}
		canonical, _ := CanonicalProfile(f.Name)
		count, ok := p.Int(f.Value, at)
		switch {
		case ok && count < 0:
			p.reject(fields.WrongType, f.Value, at, "", "the count %d is negative", count)
			continue
		case !slices.Contains(Profiles(), f.Name):
			p.Add(unknownProfile, severity, f.Key, at, fmt.Sprintf("no known board has the profile %q", f.Name),
				check.Suggest(canonical, Profiles(), "write it as <compute>g.<memory>gb, for example 1g.10gb"))
		}
		if ok && severity == check.Warning {
			r[f.Name] += count
		}
	}
	return r
}

// candidates returns the boards that an entry may apply to: those in its filter or, without a filter, those that have
// all requested profiles.
func (e Entry) candidates() []Board {
	return slices.DeleteFunc(slices.Clone(Boards()), func(b Board) bool {
		isMissing := func(name string) bool { return !slices.Contains(b.names(), name) }
		return !e.matches(&b) || len(e.DeviceFilter) == 0 && slices.ContainsFunc(e.Devices.names(), isMissing)
	})
}

// fit reports an entry with a device-filter if it does not fit on one of the boards in the filter. It reports an entry
// without a filter if it fits on no board.
func (p *parser) fit(n *yaml.Node, path string, e Entry) {
	boards := e.candidates()
	var refusals []error
	for _, b := range boards {
		if _, err := Fit(b, e.Devices); err != nil {
			refusals = append(refusals, err)
		}
	}
	isFiltered := len(e.DeviceFilter) > 0
	switch {
	case len(boards) == 0 && !isFiltered:
		p.reject(DoesNotFit, n, path, "split the entry by device-filter", "no board supports all of %s", e.Devices)
	case len(refusals) > 0 && (isFiltered || len(refusals) == len(boards)):
		p.reject(DoesNotFit, n, path, "gpuop mig profiles MODEL lists what fits", "%v", refusals[0])
	}
}

// coverage warns if a config lists a GPU again in an entry without device-filter. It also warns about a gap in the
// indices, unless an entry has devices: all. With such a config, mig-parted never reports success.
func (p *parser) coverage(key *yaml.Node, path string, n NamedConfig) {
	named, all := map[int]bool{}, false
	for _, e := range n.Entries {
		all = all || e.All
		for _, i := range slices.Compact(slices.Sorted(slices.Values(e.Indices))) {
			if named[i] && len(e.DeviceFilter) == 0 {
				p.Add(Coverage, check.Warning, &yaml.Node{Line: e.Line, Column: 1}, path,
					fmt.Sprintf("GPU %d is in two entries and cannot match both, so the change never completes", i),
					"list each GPU in one entry only")
				return
			}
			named[i] = true
		}
	}
	for i := range len(named) {
		if !all && !named[i] {
			p.Add(Coverage, check.Warning, key, path,
				fmt.Sprintf("no entry covers GPU %d, so the change never completes", i),
				fmt.Sprintf("add an entry for it, for example devices: [%d] with mig-enabled: false", i))
			return
		}
	}
}
