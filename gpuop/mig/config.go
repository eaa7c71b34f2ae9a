package mig

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// Config is a mig-parted configuration file: named configs, of which a node gets one by its
// nvidia.com/mig.config label.
type Config struct {
	// Named are the configs in file order.
	Named []Named
}

// Named is one config.
type Named struct {
	Name    string
	Line    int
	Entries []Entry
}

// Entry says how some GPUs of a node are to be partitioned.
type Entry struct {
	// DeviceFilter names the PCI device ids (0x<device>10DE) that the entry is for; empty means
	// all.
	DeviceFilter []string
	// All says that every GPU that passes the filter is meant; otherwise Indices names them.
	All     bool
	Indices []int
	// Enabled is the wanted MIG mode, Devices the wanted instances of each GPU.
	Enabled bool
	Devices Request
	Line    int
}

// ConfigKey is the key of a ConfigMap that the MIG manager reads, and the only one.
const ConfigKey = "config.yaml"

// ConfigMaps are the names of the ConfigMaps in the operator's namespace that may hold a node's
// configs, of which the MIG manager reads the first that exists. Custom is migManager.config.name of
// the ClusterPolicy: where it is not empty, the manager reads no other. Otherwise it is the one that
// the manager writes of the node's own GPUs, then the operator's static one (gpu-operator,
// documentation of v26.3, MIG).
func ConfigMaps(node, custom string) []string {
	if custom != "" {
		return []string{custom}
	}
	return []string{node + "-mig-config", "default-mig-parted-config"}
}

// Config returns the config of that name.
func (c *Config) Config(name string) (Named, bool) {
	i := slices.IndexFunc(c.Named, func(n Named) bool { return n.Name == name })
	if i < 0 {
		return Named{}, false
	}
	return c.Named[i], true
}

// The rules under which ParseConfig reports, beside those of package fields.
const (
	ruleVersion    = "mig-config-version"
	ruleName       = "mig-config-name"
	ruleEmpty      = "mig-config-empty"
	ruleMissing    = "mig-config-missing"
	ruleProfile    = "mig-profile"
	ruleFit        = "mig-does-not-fit"
	ruleFilter     = "mig-device-filter"
	ruleCoverage   = "mig-coverage"
	ruleModeDevice = "mig-mode"
)

const (
	sourceSpec      = "mig-parted api/spec/v1/spec.go"
	sourceGeometry  = "MIG User Guide, supported MIG profiles and placements"
	sourceUncovered = "mig-parted issue 157"
)

// sources are the sources of the rules that do not come from sourceSpec.
var sources = map[report.ID]string{
	ruleName: "Kubernetes: labels and selectors, syntax of label values", ruleFit: sourceGeometry, ruleProfile: sourceGeometry,
	ruleCoverage: sourceUncovered,
}

// ParseConfig reads a mig-parted file, today's spelling of profiles included (1g.24gb-me, +gfx,
// +me.all), and reports what is unreadable, what the MIG manager would refuse and what no board can
// hold. The config is what could be read, nil only when the file is not a mapping at all. Findings
// carry lines but no file name, which the caller knows.
func ParseConfig(data []byte) (*Config, []report.Row) {
	p := parser{fields.Reader{Unknown: "no such key, and the MIG manager refuses the file"}}
	root := p.Document(data)
	if root == nil {
		return nil, p.finish()
	}
	c := &Config{}
	version := false
	var configs *yaml.Node
	for _, f := range p.Mapping(root, "", "version", "mig-configs") {
		switch f.Name {
		case "version":
			version = true
			if f.Value.Value != "v1" {
				p.Add(ruleVersion, report.Failed, f.Value, "version", fmt.Sprintf("version %q is not known to mig-parted", f.Value.Value), "write version: v1")
			}
		case "mig-configs":
			configs = f.Value
		}
	}
	if !version {
		p.Add(ruleVersion, report.Failed, root, "version", "the file has no version and is refused", "write version: v1 first")
	}
	if configs == nil {
		p.Add(ruleMissing, report.Failed, root, "mig-configs", "the file holds no configs", "put the configs under mig-configs:")
		return c, p.finish()
	}
	named := p.Mapping(configs, "mig-configs")
	if len(named) == 0 && configs.Kind == yaml.MappingNode {
		p.Add(ruleEmpty, report.Failed, configs, "mig-configs", "at least one config is required", "")
	}
	for _, f := range named {
		c.Named = append(c.Named, p.named(f))
	}
	return c, p.finish()
}

// WriteConfig returns a mig-parted file with one config, which divides every GPU of a node as the request says.
func WriteConfig(name string, r Request) []byte {
	b := &strings.Builder{}
	fmt.Fprintf(b, "version: v1\nmig-configs:\n  %q:\n    - devices: all\n      mig-enabled: true\n      mig-devices:\n", name)
	for _, profile := range slices.SortedFunc(maps.Keys(r), bySize) {
		fmt.Fprintf(b, "        %q: %d\n", profile, r[profile])
	}
	return []byte(b.String())
}

type parser struct{ fields.Reader }

// finish names the source of each finding that has none of its own.
func (p *parser) finish() []report.Row {
	for i := range p.Findings {
		f := &p.Findings[i]
		f.Source = cmp.Or(f.Source, sources[f.ID], sourceSpec)
	}
	return p.Findings
}

// labelValue is what Kubernetes accepts as the value of a label, in which the config's name is
// handed to the MIG manager.
var labelValue = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

func (p *parser) named(f fields.Field) Named {
	n := Named{Name: f.Name, Line: f.Key.Line}
	path := "mig-configs." + f.Name
	if !labelValue.MatchString(f.Name) {
		fix := strings.ReplaceAll(f.Name, "+", ".")
		if !labelValue.MatchString(fix) {
			fix = "letters, digits, '.', '_' and '-', at most 63"
		} else {
			fix = "write " + fix
		}
		p.Add(ruleName, report.Failed, f.Key, path, "the name cannot be the value of the nvidia.com/mig.config label, so no node can select it", fix)
	}
	entries := p.List(f.Value, path)
	if len(entries) == 0 && (f.Value.Kind == yaml.SequenceNode || f.Value.Tag == "!!null") {
		p.Add(ruleEmpty, report.Failed, f.Key, path, "the config is empty; at least one entry is required", "")
	}
	before := len(p.Findings)
	for i, e := range entries {
		if entry, ok := p.entry(e, path+"["+strconv.Itoa(i)+"]"); ok {
			n.Entries = append(n.Entries, entry)
		}
	}
	if len(p.Findings) == before {
		p.coverage(f.Key, path, n)
	}
	return n
}

func (p *parser) entry(node *yaml.Node, path string) (Entry, bool) {
	entry := Entry{Line: node.Line}
	if node.Kind != yaml.MappingNode {
		p.Mapping(node, path)
		return entry, false
	}
	before := len(p.Findings)
	seen, known := map[string]*yaml.Node{}, false
	for _, f := range p.Mapping(node, path, "device-filter", "devices", "mig-enabled", "mig-devices") {
		seen[f.Name] = f.Value
		at := path + "." + f.Name
		switch f.Name {
		case "device-filter":
			entry.DeviceFilter = p.filter(f.Value, at)
		case "devices":
			entry.All, entry.Indices = p.devices(f.Value, at)
		case "mig-enabled":
			entry.Enabled, known = p.Bool(f.Value, at)
		case "mig-devices":
			entry.Devices = p.instances(f.Value, at)
		}
	}
	for _, required := range []string{"devices", "mig-enabled"} {
		if seen[required] == nil {
			p.Add(ruleMissing, report.Failed, node, path, "the field "+required+" is required", "")
		}
	}
	switch {
	case !known:
	case entry.Enabled && seen["mig-devices"] == nil:
		p.Add(ruleModeDevice, report.Failed, node, path, "mig-enabled is true and mig-devices is missing, which is refused", "write mig-devices: {} for MIG mode without instances")
	case !entry.Enabled && len(entry.Devices) > 0:
		p.Add(ruleModeDevice, report.Failed, seen["mig-devices"], path+".mig-devices", "instances are requested while mig-enabled is false, which is rejected", "set mig-enabled: true or delete mig-devices")
	}
	if len(p.Findings) == before && len(entry.Devices) > 0 {
		p.fit(seen["mig-devices"], path+".mig-devices", entry)
	}
	return entry, true
}

func (p *parser) filter(n *yaml.Node, path string) []string {
	nodes := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		nodes = p.List(n, path)
	}
	var ids []string
	for _, e := range nodes {
		text, ok := p.Text(e, path)
		if !ok {
			continue
		}
		id, known := pciID(text)
		switch {
		case !known:
			p.Add(ruleFilter, report.Failed, e, path, fmt.Sprintf("%q is not a PCI device id of NVIDIA's and matches no GPU", text), `write it as 0x<device>10DE, for example "0x20B210DE"`)
			continue
		case !strings.EqualFold(id, text):
			p.Add(ruleFilter, report.Failed, e, path, fmt.Sprintf("%q matches no GPU: the filter is compared as 0x<device><vendor>", text), "write "+strconv.Quote(id))
		}
		ids = append(ids, id)
	}
	return ids
}

func (p *parser) devices(n *yaml.Node, path string) (all bool, indices []int) {
	if n.Kind == yaml.ScalarNode {
		if n.Value != "all" {
			p.Add(fields.RuleType, report.Failed, n, path, fmt.Sprintf("found %q, want all or a list of GPU indices", n.Value), "")
		}
		return n.Value == "all", nil
	}
	for _, e := range p.List(n, path) {
		i, ok := p.Int(e, path)
		if ok && (i < 0 || slices.Contains(indices, i)) {
			p.Add(fields.RuleType, report.Failed, e, path, fmt.Sprintf("GPU index %d is negative or there twice", i), "")
			continue
		}
		if ok {
			indices = append(indices, i)
		}
	}
	return false, indices
}

func (p *parser) instances(n *yaml.Node, path string) Request {
	r := Request{}
	for _, f := range p.Mapping(n, path) {
		count, ok := p.Int(f.Value, path+"."+f.Name)
		if ok && count < 0 {
			p.Add(fields.RuleType, report.Failed, f.Value, path+"."+f.Name, fmt.Sprintf("the count %d is negative", count), "")
			ok = false
		}
		if !p.profile(f.Key, path+"."+f.Name) || !ok {
			continue
		}
		r[f.Name] += count
	}
	return r
}

// profile checks a name as the MIG manager will read it.
func (p *parser) profile(n *yaml.Node, path string) bool {
	if _, ok := parseName(n.Value); ok {
		if known := Profiles(); !slices.Contains(known, n.Value) {
			fix := ""
			if near := report.Nearest(n.Value, known); near != "" {
				fix = "did you mean " + near + "?"
			}
			p.Add(ruleProfile, report.Warning, n, path, "no known board has a profile "+n.Value, fix)
		}
		return true
	}
	if canonical, ok := CanonicalProfile(n.Value); ok {
		p.Add(ruleProfile, report.Failed, n, path, "mig-devices wants the driver's spelling of the profile", "write "+strconv.Quote(canonical))
		return false
	}
	fix := "write it as <compute>g.<memory>gb, for example 1g.10gb"
	if near := report.Nearest(n.Value, Profiles()); near != "" {
		fix = "write " + near
	}
	p.Add(ruleProfile, report.Failed, n, path, fmt.Sprintf("%q is not a GPU instance profile", n.Value), fix)
	return false
}

// candidates are the boards that an entry is meant for: those that its filter names, otherwise
// those that have every requested profile.
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

// fit reports an entry that a board it names cannot hold, or that no board can.
func (p *parser) fit(n *yaml.Node, path string, e Entry) {
	known := Profiles()
	for name := range e.Devices {
		if !slices.Contains(known, name) {
			return
		}
	}
	boards := e.candidates()
	if len(boards) == 0 {
		if len(e.DeviceFilter) == 0 {
			p.Add(ruleFit, report.Failed, n, path, fmt.Sprintf("no one board has all of %s, so no GPU can be partitioned like this", e.Devices), "split the entry by device-filter")
		}
		return
	}
	var refusals []*Refusal
	var names []string
	for _, b := range boards {
		if !fits(b, e.Devices) {
			refusals, names = append(refusals, refuse(b, e.Devices)), append(names, b.Name)
		}
	}
	switch {
	case len(refusals) == 0:
	case len(e.DeviceFilter) == 0 && len(refusals) < len(boards):
		p.Add(ruleFit, report.Note, n, path, fmt.Sprintf("fits on some boards, but not on %s: %s", strings.Join(names, ", "), refusals[0].Reason), "")
	default:
		fix := ""
		if near := refusals[0].NearestNames(); len(near) > 0 {
			fix = "nearest that fit: " + strings.Join(near, " | ")
		}
		p.Add(ruleFit, report.Failed, n, path, refusals[0].Error(), fix)
	}
}

// coverage reports a config that leaves GPUs of a node out: mig-parted then never reports success,
// because it compares what matched with all GPUs.
func (p *parser) coverage(key *yaml.Node, path string, n Named) {
	if len(n.Entries) == 0 {
		return
	}
	var named []int
	for _, e := range n.Entries {
		if e.All {
			return
		}
		named = append(named, e.Indices...)
	}
	slices.Sort(named)
	named = slices.Compact(named)
	for i, index := range named {
		if i < index {
			p.Add(ruleCoverage, report.Warning, key, path, fmt.Sprintf("the config says nothing about GPU %d; the change is never judged complete until every GPU of the node is covered", i),
				"add an entry for the others, for example devices: [0] with mig-enabled: false")
			return
		}
	}
	p.Add(ruleCoverage, report.Note, key, path, fmt.Sprintf("the config covers GPUs 0 to %d; on a node with more GPUs the change is never judged complete", len(named)-1), "")
}
