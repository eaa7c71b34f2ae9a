package mig

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
)

// Config is a mig-parted file. It holds named configs; the node label nvidia.com/mig.config selects one of them.
type Config struct {
	// Configs are the configs in file order.
	Configs []NamedConfig
}

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
func (c *Config) Config(name string) (NamedConfig, bool) {
	i := slices.IndexFunc(c.Configs, func(n NamedConfig) bool { return n.Name == name })
	if i < 0 {
		return NamedConfig{}, false
	}
	return c.Configs[i], true
}

// Names returns the names of the configs in file order.
func (c *Config) Names() []string {
	var names []string
	for _, n := range c.Configs {
		names = append(names, n.Name)
	}
	return names
}

// ParseConfig parses a mig-parted file. It accepts current profile names (1g.24gb-me, +gfx, +me.all). It reports what
// is unreadable, what the MIG manager rejects and what no board can hold. The config has everything that could be
// parsed. It is nil only if the file cannot be parsed as a YAML mapping. Findings have lines but no file.
func ParseConfig(data []byte) (*Config, []check.Finding) {
	p := parser{fields.Reader{Unknown: "unknown key: the MIG manager rejects the file"}}
	var c *Config
	if root := p.Document(data); root != nil {
		c = &Config{}
		for _, f := range p.mapping(root, "", nil, "version", "mig-configs") {
			switch {
			case f.Name == "mig-configs":
				for _, named := range p.Mapping(f.Value, f.Name) {
					c.Configs = append(c.Configs, p.named(named))
				}
				if len(c.Configs) == 0 && f.Value.Kind == yaml.MappingNode {
					p.Add(configMissing, check.Error, f.Value, f.Name, "at least one config is required", "")
				}
			case f.Value.Value != "v1":
				p.Add(configVersion, check.Error, f.Value, f.Name,
					fmt.Sprintf("mig-parted does not support version %q", f.Value.Value), "write version: v1")
			}
		}
	}
	return c, p.Findings
}

type parser struct{ fields.Reader }

// mapping returns the fields of a mapping. It reports required fields that are missing, and unknown fields.
func (p *parser) mapping(n *yaml.Node, path string, optional []string, required ...string) []fields.Field {
	found := p.Mapping(n, path, append(required, optional...)...)
	for _, name := range required {
		missing := !slices.ContainsFunc(found, func(f fields.Field) bool { return f.Name == name })
		if missing && n.Kind == yaml.MappingNode {
			p.Add(configMissing, check.Error, n, cmp.Or(path, name), "the field "+name+" is required", "")
		}
	}
	return found
}

func (p *parser) named(f fields.Field) NamedConfig {
	isLabelValue := func(s string) bool { return s != "" && len(validation.IsValidLabelValue(s)) == 0 }
	n := NamedConfig{Name: f.Name, Line: f.Key.Line}
	path := "mig-configs." + f.Name
	if !isLabelValue(f.Name) {
		fix := "use only letters, digits, '.', '_' and '-', at most 63 characters"
		if plain := strings.ReplaceAll(f.Name, "+", "."); isLabelValue(plain) {
			fix = "write " + plain
		}
		p.Add(configName, check.Error, f.Key, path,
			"the name cannot be the value of the nvidia.com/mig.config label, so no node can select it", fix)
	}
	before := len(p.Findings)
	for i, e := range p.List(f.Value, path) {
		n.Entries = append(n.Entries, p.entry(e, path+"["+strconv.Itoa(i)+"]"))
	}
	switch {
	case len(p.Findings) > before:
	case len(n.Entries) == 0:
		p.Add(configMissing, check.Error, f.Key, path, "the config is empty; at least one entry is required", "")
	default:
		p.coverage(f.Key, path, n)
	}
	return n
}

func (p *parser) entry(node *yaml.Node, path string) Entry {
	entry := Entry{Line: node.Line}
	before := len(p.Findings)
	var enabled, instances *yaml.Node
	for _, f := range p.mapping(node, path, []string{"device-filter", "mig-devices"}, "devices", "mig-enabled") {
		at := path + "." + f.Name
		switch f.Name {
		case "device-filter":
			entry.DeviceFilter = p.filter(f.Value, at)
		case "devices":
			entry.All, entry.Indices = p.devices(f.Value, at)
		case "mig-enabled":
			enabled = f.Value
			entry.Enabled, _ = p.Bool(f.Value, at)
		case "mig-devices":
			instances = f.Value
			entry.Devices = p.instances(f.Value, at)
		}
	}
	switch {
	case enabled == nil || enabled.Tag != "!!bool":
	case entry.Enabled && instances == nil:
		p.Add(modeDevices, check.Error, node, path,
			"mig-enabled is true but mig-devices is missing: mig-parted rejects the file",
			"write mig-devices: {} for MIG mode without instances")
	case !entry.Enabled && len(entry.Devices) > 0:
		p.Add(modeDevices, check.Error, instances, path+".mig-devices",
			"instances are requested but mig-enabled is false: mig-parted rejects the file",
			"set mig-enabled: true or delete mig-devices")
	}
	if len(p.Findings) == before && len(entry.Devices) > 0 {
		p.fit(instances, path+".mig-devices", entry)
	}
	return entry
}

// pciID matches NVIDIA's PCI device IDs as mig-parted writes them: 0x<device><vendor>.
var pciID = regexp.MustCompile(`^(?i)0x[0-9a-f]{4}10DE$`)

func (p *parser) filter(n *yaml.Node, path string) (ids []string) {
	nodes := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		nodes = p.List(n, path)
	}
	for _, e := range nodes {
		id, ok := p.Text(e, path)
		if ok && !pciID.MatchString(id) {
			p.Add(deviceFilter, check.Error, e, path,
				fmt.Sprintf("%q matches no GPU: it is not an NVIDIA PCI device id in mig-parted's format", id),
				`write it as 0x<device>10DE, for example "0x20B210DE"`)
		}
		ids = append(ids, id)
	}
	return ids
}

func (p *parser) devices(n *yaml.Node, path string) (all bool, indices []int) {
	if n.Kind == yaml.ScalarNode {
		if n.Value != "all" {
			p.Add(fields.WrongType, check.Error, n, path,
				fmt.Sprintf("found %q, expected all or a list of GPU indices", n.Value), "")
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

func (p *parser) instances(n *yaml.Node, path string) Request {
	r := Request{}
	for _, f := range p.Mapping(n, path) {
		at := path + "." + f.Name
		count, ok := p.Int(f.Value, at)
		if ok && count < 0 {
			p.Add(fields.WrongType, check.Error, f.Value, at, fmt.Sprintf("the count %d is negative", count), "")
			continue
		}
		if p.profile(f.Key, at) && ok {
			r[f.Name] += count
		}
	}
	return r
}

// profile reports whether a profile name has the form that the MIG manager accepts. It adds a finding if the form is
// wrong or no known board has the profile.
func (p *parser) profile(n *yaml.Node, path string) bool {
	known := Profiles()
	fix := check.Suggest(n.Value, known, "")
	if _, ok := parseName(n.Value); ok {
		if !slices.Contains(known, n.Value) {
			p.Add(unknownProfile, check.Warning, n, path, "no known board has the profile "+n.Value, fix)
		}
		return true
	}
	if canonical, ok := CanonicalProfile(n.Value); ok {
		fix = "write " + strconv.Quote(canonical)
	}
	p.Add(unknownProfile, check.Error, n, path, fmt.Sprintf("%q is not a GPU instance profile", n.Value),
		cmp.Or(fix, "write it as <compute>g.<memory>gb, for example 1g.10gb"))
	return false
}

// candidates returns the boards that an entry may apply to: those in its filter or, without a filter, those that have
// all requested profiles.
func (e Entry) candidates() []Board {
	return slices.DeleteFunc(slices.Clone(Boards()), func(b Board) bool {
		if len(e.DeviceFilter) > 0 {
			return !e.matches(&b)
		}
		for name := range e.Devices {
			if _, has := b.Profile(name); !has {
				return true
			}
		}
		return false
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
	filtered := len(e.DeviceFilter) > 0
	switch {
	case len(boards) == 0 && !filtered:
		p.Add(DoesNotFit, check.Error, n, path,
			fmt.Sprintf("no board supports all of %s, so no GPU can be partitioned like this", e.Devices),
			"split the entry by device-filter")
	case len(refusals) > 0 && (filtered || len(refusals) == len(boards)):
		p.Add(DoesNotFit, check.Error, n, path, refusals[0].Error(), "gpuop mig profiles MODEL lists what fits")
	}
}

// coverage warns if a config lists a GPU again in an entry without device-filter. It also warns about a gap in the
// indices, unless an entry has devices: all. With such a config, mig-parted never reports success.
func (p *parser) coverage(key *yaml.Node, path string, n NamedConfig) {
	named := map[int]bool{}
	for _, e := range n.Entries {
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
		if all := slices.ContainsFunc(n.Entries, func(e Entry) bool { return e.All }); !all && !named[i] {
			p.Add(Coverage, check.Warning, key, path,
				fmt.Sprintf("the config has no entry for GPU %d; "+
					"the change never completes unless every GPU is covered", i),
				fmt.Sprintf("add an entry for it, for example devices: [%d] with mig-enabled: false", i))
			return
		}
	}
}
