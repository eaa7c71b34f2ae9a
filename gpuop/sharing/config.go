package sharing

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// Config is one device-plugin configuration file.
type Config struct {
	// Refused says that the device plugin does not start with the file.
	Refused bool
	// set holds the line of every flag that the file sets, by path ("flags.migStrategy").
	set map[string]int
	// migStrategy is flags.migStrategy; empty where the file leaves it open.
	migStrategy string
	// slicing and mps are the blocks of sharing; nil where the file has none.
	slicing, mps *replicated
}

// A replicated is a block of sharing.
type replicated struct {
	rename    bool
	resources []Resource
}

// shares reports whether the block makes more than one device of a device.
func (r *replicated) shares() bool {
	return r != nil && slices.ContainsFunc(r.resources, func(r Resource) bool { return r.Replicas > 1 })
}

// The rules under which this package reports, beside those of package fields.
const (
	ruleRefused   = "sharing-refused"
	ruleValue     = "sharing-value"
	ruleReplicas  = "sharing-replicas"
	ruleResource  = "sharing-resource"
	ruleBoth      = "sharing-both"
	ruleIgnored   = "sharing-ignored"
	ruleMPS       = "sharing-mps"
	ruleDead      = "sharing-dead"
	ruleChoice    = "sharing-choice"
	ruleClients   = "sharing-clients"
	ruleNoMemory  = "sharing-no-isolation"
	sourceConfig  = "k8s-device-plugin api/config/v1"
	sourceMPS     = "k8s-device-plugin cmd/mps-control-daemon/mps"
	sourcePlugin  = "k8s-device-plugin cmd/nvidia-device-plugin/main.go"
	sourceChoice  = "k8s-device-plugin cmd/config-manager/main.go"
	sourceEnviron = "gpu-operator assets/state-device-plugin/0500_daemonset.yaml and controllers/object_controls.go"
)

// MaxClients is the most MPS clients that one GPU serves at a time.
const MaxClients = 48

// Parse reads a device-plugin file and reports misspelled keys, values that the plugin refuses, and
// settings that are read but ignored. Findings carry lines but no file name, which the caller
// knows. The config is nil only when the file is not a mapping at all.
func Parse(data []byte) (*Config, []report.Row) {
	p := parser{
		Reader: fields.Reader{Unknown: "no such key; the device plugin ignores it without a word"},
		config: &Config{set: map[string]int{}},
	}
	root := p.Document(data)
	if root == nil {
		return nil, p.finish()
	}
	for _, f := range p.Mapping(root, "", "version", "flags", "sharing", "resources", "imex") {
		switch f.Name {
		case "version":
			if text, ok := p.Text(f.Value, "version"); ok && text != "v1" && text != "" {
				p.Add(ruleValue, report.Failed, f.Value, "version", fmt.Sprintf("version %q is not known to the device plugin, which refuses the file", text), "write version: v1")
			}
		case "flags":
			p.flags(f.Value, "flags")
		case "sharing":
			p.sharing(f.Value)
		case "resources":
			p.resources(f)
		case "imex":
			p.imex(f.Value)
		}
	}
	p.misplaced(root)
	p.config.Refused = slices.ContainsFunc(p.Findings, func(f report.Row) bool {
		return f.State == report.Failed && f.ID != fields.RuleUnknown && f.ID != fields.RuleDuplicate
	})
	return p.config, p.finish()
}

type parser struct {
	fields.Reader
	config *Config
}

func (p *parser) finish() []report.Row {
	sources := map[report.ID]string{ruleMPS: sourceMPS, ruleClients: sourceMPS}
	for i := range p.Findings {
		f := &p.Findings[i]
		f.Source = cmp.Or(sources[f.ID], f.Source, sourceConfig)
	}
	return p.Findings
}

// misplaced gives the right place for words that articles print at the root.
func (p *parser) misplaced(root *yaml.Node) {
	places := map[string]string{
		"shared": "sharing", "timeSlicing": "sharing.timeSlicing", "mps": "sharing.mps", "renameByDefault": "sharing.timeSlicing.renameByDefault",
		"failRequestsGreaterThanOne": "sharing.timeSlicing.failRequestsGreaterThanOne", "migStrategy": "flags.migStrategy", "plugin": "flags.plugin", "gfd": "flags.gfd",
	}
	for i := range p.Findings {
		f := &p.Findings[i]
		if place, ok := places[f.Subject]; ok && f.ID == fields.RuleUnknown {
			f.Fix = "write it as " + place
		}
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == "data" || root.Content[i].Value == "kind" {
			p.Add(ruleValue, report.Failed, root.Content[i], "kind", "this is a Kubernetes object, not a device-plugin config", "check the value of one key under data:")
			return
		}
	}
}

// refuse reports what the device plugin's decoder refuses, and no other rule.
func (p *parser) refuse(n *yaml.Node, path, reason string) {
	p.Add(ruleRefused, report.Failed, n, path, "the device plugin refuses the file: "+reason, "")
}

// flagKinds are what the device plugin takes as the value of each flag: a mapping, a text, true or false, a duration, a
// list of words, or one of the words.
var flagKinds = map[string]string{
	"flags.migStrategy": "none single mixed", "flags.deviceDiscoveryStrategy": "auto nvml tegra",
	"flags.failOnInitError": "bool", "flags.gdrcopyEnabled": "bool", "flags.gdsEnabled": "bool", "flags.mofedEnabled": "bool", "flags.useNodeFeatureAPI": "bool",
	"flags.mpsRoot": "text", "flags.nvidiaDriverRoot": "text", "flags.nvidiaDevRoot": "text", "flags.plugin": "mapping", "flags.gfd": "mapping",

	"flags.plugin.passDeviceSpecs": "bool", "flags.plugin.deviceListStrategy": "list envvar volume-mounts cdi-annotations cdi-cri",
	"flags.plugin.deviceIDStrategy": "uuid index", "flags.plugin.sharedDevicesAllocationPolicy": "distributed packed",
	"flags.plugin.cdiAnnotationPrefix": "text", "flags.plugin.nvidiaCTKPath": "text", "flags.plugin.containerDriverRoot": "text",

	"flags.gfd.oneshot": "bool", "flags.gfd.noTimestamp": "bool", "flags.gfd.sleepInterval": "duration",
	"flags.gfd.outputFile": "text", "flags.gfd.machineTypeFile": "text",
}

// flags checks the flags below a path.
func (p *parser) flags(n *yaml.Node, below string) {
	var known []string
	for _, path := range slices.Sorted(maps.Keys(flagKinds)) {
		if name, found := strings.CutPrefix(path, below+"."); found && !strings.Contains(name, ".") {
			known = append(known, name)
		}
	}
	for _, f := range p.Mapping(n, below, known...) {
		path := below + "." + f.Name
		p.config.set[path] = f.Key.Line
		switch kind := strings.Fields(flagKinds[path]); kind[0] {
		case "mapping":
			p.flags(f.Value, path)
		case "bool":
			p.Bool(f.Value, path)
		case "text":
			p.Text(f.Value, path)
		case "duration":
			p.duration(f.Value, path)
		case "list":
			nodes := []*yaml.Node{f.Value}
			if f.Value.Kind == yaml.SequenceNode {
				nodes = p.List(f.Value, path)
			}
			for _, e := range nodes {
				p.word(e, path, kind[1:]...)
			}
		default:
			word := p.word(f.Value, path, kind...)
			switch {
			case f.Name == "migStrategy":
				p.config.migStrategy = word
			case f.Name == "sharedDevicesAllocationPolicy" && word != "":
				p.Add(ruleIgnored, report.Note, f.Key, path, "device plugin versions before v0.20.0 do not know the key and ignore it", "")
			}
		}
	}
}

// duration checks a Go duration. A bare number is accepted by the plugin, as nanoseconds.
func (p *parser) duration(n *yaml.Node, path string) {
	if n.Kind == yaml.ScalarNode && (n.Tag == "!!int" || n.Tag == "!!float") {
		p.Add(ruleValue, report.Warning, n, path, n.Value+" without a unit is taken for nanoseconds", "write "+n.Value+"s")
		return
	}
	text, ok := p.Text(n, path)
	if !ok {
		return
	}
	if _, err := time.ParseDuration(text); err != nil {
		p.Add(ruleValue, report.Failed, n, path, fmt.Sprintf("%q is not a duration", text), "write it as 60s or 1m30s")
	}
}

// word reads one of a closed set of words and returns it, or "" if it is none.
func (p *parser) word(n *yaml.Node, path string, words ...string) string {
	text, ok := p.Text(n, path)
	if !ok || slices.Contains(words, text) {
		return text
	}
	fix := "want " + strings.Join(words, ", ")
	if near := report.Nearest(text, words); near != "" {
		fix = "write " + near
	}
	p.Add(ruleValue, report.Failed, n, path, fmt.Sprintf("%q is not known, and the device plugin refuses to start", text), fix)
	return ""
}

func (p *parser) sharing(n *yaml.Node) {
	var slicing, mps *fields.Field
	for _, f := range p.Mapping(n, "sharing", "timeSlicing", "mps") {
		if f.Name == "mps" {
			mps = &f
		} else {
			slicing = &f
		}
	}
	if slicing != nil {
		p.config.slicing = p.replicated(*slicing)
		if fields.IsNull(slicing.Value) {
			p.refuse(slicing.Key, "sharing.timeSlicing", "no resources specified")
		}
	}
	if mps != nil && !fields.IsNull(mps.Value) {
		p.config.mps = p.replicated(*mps)
	}
	if slicing != nil && mps != nil {
		p.Add(ruleBoth, report.Warning, slicing.Key, "sharing.timeSlicing", "timeSlicing and mps are both configured: MPS wins silently, and this block does nothing", "keep one of the two")
	}
	if mps != nil && p.config.migStrategy == mig.StrategyMixed {
		p.Add(ruleMPS, report.Failed, mps.Key, "sharing.mps", "MPS with flags.migStrategy mixed: the device plugin refuses to start", "use timeSlicing, or another MIG strategy")
	}
}

func (p *parser) replicated(f fields.Field) *replicated {
	path := "sharing." + f.Name
	block := &replicated{}
	var resources *yaml.Node
	for _, g := range p.Mapping(f.Value, path, "renameByDefault", "failRequestsGreaterThanOne", "resources") {
		switch g.Name {
		case "resources":
			resources = g.Value
		case "failRequestsGreaterThanOne":
			value, ok := p.Bool(g.Value, path+"."+g.Name)
			if ok && !value && f.Name == "mps" {
				p.Add(ruleIgnored, report.Warning, g.Key, path+"."+g.Name, "under MPS device plugin versions before v0.20.0 ignore false: a request for more than one always fails", "")
			}
		default:
			block.rename, _ = p.Bool(g.Value, path+"."+g.Name)
		}
	}
	elements := []*yaml.Node(nil)
	if resources != nil {
		elements = p.List(resources, path+".resources")
	}
	if len(elements) == 0 && f.Value.Kind == yaml.MappingNode && (resources == nil || resources.Kind == yaml.SequenceNode || resources.Tag == "!!null") {
		p.Add(ruleReplicas, report.Failed, f.Key, path, "no resources are named, and the device plugin refuses the file", "add resources: with a name and replicas")
	}
	names := map[string]int{}
	for i, e := range elements {
		at := path + ".resources[" + strconv.Itoa(i) + "]"
		r := p.resource(e, at, f.Name == "mps")
		if line, twice := names[r.Name]; twice && r.Name != "" {
			p.Add(ruleResource, report.Warning, e, at, fmt.Sprintf("%s is configured twice, first on line %d; the larger number of replicas counts", r.Name, line), "keep one")
		}
		names[r.Name] = e.Line
		block.resources = append(block.resources, r)
	}
	return block
}

// resource checks one element of a resources list, and returns it with its full name.
func (p *parser) resource(n *yaml.Node, path string, mps bool) Resource {
	var r Resource
	var name, replicas bool
	for _, f := range p.Mapping(n, path, "name", "rename", "devices", "replicas") {
		at := path + "." + f.Name
		switch f.Name {
		case "name":
			name = true
			r.Name = p.resourceName(f.Value, at, mps)
		case "replicas":
			replicas = true
			if count, ok := p.Int(f.Value, at); ok {
				p.replicas(f.Value, at, count, mps)
				r.Replicas = count
			}
		case "rename":
			if text, ok := p.Text(f.Value, at); ok && fullName(text) == "" {
				p.refuse(f.Value, at, strconv.Quote(text)+" is no resource name")
			}
			p.Add(ruleIgnored, report.Warning, f.Key, at, "rename is read and ignored by the device plugin", "use renameByDefault: true, which appends .shared")
		case "devices":
			if f.Value.Value != "all" {
				p.devices(f.Value, at)
				p.Add(ruleIgnored, report.Warning, f.Key, at, "devices is read and ignored by the device plugin: every device of the resource is shared", "delete it, or give the nodes different configs")
			}
		}
	}
	if n.Kind == yaml.MappingNode && !name {
		p.Add(ruleResource, report.Failed, n, path, "the resource has no name, and the device plugin refuses the file", "add name: nvidia.com/gpu")
	}
	if n.Kind == yaml.MappingNode && !replicas {
		p.Add(ruleReplicas, report.Failed, n, path, "the resource has no replicas, and the device plugin refuses the file", "add replicas: with a number of at least 2")
	}
	return r
}

// uuid is a GPU's or MIG device's name, as nvidia-smi -L prints it, or the older form of a MIG device's.
var uuid = regexp.MustCompile(`^(GPU|MIG)-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$|^MIG-GPU-[0-9a-fA-F-]{36}/[0-9]+/[0-9]+$|^[0-9]+(:[0-9]+)?$`)

// devices checks the devices of a resource: all, a number of them, or a list of their indices and UUIDs.
func (p *parser) devices(n *yaml.Node, path string) {
	n = fields.Resolve(n)
	if n.Kind != yaml.SequenceNode {
		if count, err := strconv.Atoi(n.Value); n.Kind != yaml.ScalarNode || n.Tag != "!!int" || err != nil || count <= 0 {
			p.refuse(n, path, "want all, a number of devices above 0, or a list of them")
		}
		return
	}
	for _, e := range p.List(n, path) {
		if e.Kind != yaml.ScalarNode || e.Tag != "!!int" && e.Tag != "!!str" || !uuid.MatchString(e.Value) {
			p.refuse(e, path, "want an index, such as 0 or 0:1, or a UUID")
		}
	}
}

// fullName is the resource's name with the prefix nvidia.com/; empty where the device plugin refuses it.
func fullName(name string) string {
	const prefix = "nvidia.com/"
	if !strings.HasPrefix(name, prefix) {
		name = prefix + name
	}
	if len(name) > 63 || len(validation.NameIsDNSSubdomain(strings.TrimPrefix(name, prefix), false)) > 0 {
		return ""
	}
	return name
}

func (p *parser) replicas(n *yaml.Node, path string, count int, mps bool) {
	switch {
	case count < 2:
		p.Add(ruleReplicas, report.Failed, n, path, fmt.Sprintf("replicas is %d: the device plugin refuses the file below 2", count), "write 2 or more, or drop the resource from sharing")
	case mps && count > MaxClients:
		p.Add(ruleClients, report.Failed, n, path, fmt.Sprintf("replicas is %d: MPS serves at most %d clients on one GPU, and the control daemon refuses to start", count, MaxClients), fmt.Sprintf("write at most %d", MaxClients))
	}
}

func (p *parser) resourceName(n *yaml.Node, path string, mps bool) string {
	text, ok := p.Text(n, path)
	if !ok {
		return ""
	}
	full := fullName(text)
	if full == "" {
		p.Add(ruleResource, report.Failed, n, path, fmt.Sprintf("%q is not a resource of the device plugin, which refuses the file", text), "write nvidia.com/gpu or nvidia.com/mig-<profile>")
		return ""
	}
	if full == mig.WholeGPU {
		return full
	}
	profile, device := strings.CutPrefix(full, "nvidia.com/mig-")
	canonical, known := mig.CanonicalProfile(profile)
	switch {
	case device && mps:
		p.Add(ruleMPS, report.Failed, n, path, "MPS does not support MIG devices", "use timeSlicing for them")
	case device && known && full == mig.ResourceName(canonical):
	case device && known:
		p.Add(ruleResource, report.Failed, n, path, fmt.Sprintf("%q is not how the resource is spelt, and nothing will be shared", text), "write "+mig.ResourceName(canonical))
	default:
		known := []string{mig.WholeGPU}
		for _, profile := range mig.Profiles() {
			known = append(known, mig.ResourceName(profile))
		}
		fix := "want nvidia.com/gpu or nvidia.com/mig-<profile>"
		if near := report.Nearest(full, known); near != "" {
			fix = "write " + near
		}
		p.Add(ruleResource, report.Warning, n, path, fmt.Sprintf("no device is advertised as %s, so nothing will be shared by this", full), fix)
	}
	return full
}

func (p *parser) resources(f fields.Field) {
	kinds := p.Mapping(f.Value, "resources", "gpus", "mig")
	for _, g := range kinds {
		path := "resources." + g.Name
		for i, e := range p.List(g.Value, path) {
			at := path + "[" + strconv.Itoa(i) + "]"
			seen := map[string]bool{}
			for _, h := range p.Mapping(e, at, "pattern", "name") {
				seen[h.Name] = true
				if text, ok := p.Text(h.Value, at+"."+h.Name); ok && h.Name == "name" && fullName(text) == "" {
					p.refuse(h.Value, at+".name", strconv.Quote(text)+" is no resource name")
				}
			}
			if e.Kind == yaml.MappingNode && (!seen["pattern"] || !seen["name"]) {
				p.Add(ruleResource, report.Failed, e, at, "the entry needs pattern and name, and the device plugin refuses the file", "")
			}
		}
	}
	if len(kinds) > 0 {
		p.Add(ruleIgnored, report.Warning, f.Key, "resources", "own resource names are read and ignored by the device plugin", "delete the block")
	}
}

func (p *parser) imex(n *yaml.Node) {
	for _, f := range p.Mapping(n, "imex", "channelIDs", "required") {
		path := "imex." + f.Name
		if f.Name == "required" {
			p.Bool(f.Value, path)
			continue
		}
		var ids []int
		for _, e := range p.List(f.Value, path) {
			if id, ok := p.Int(e, path); ok {
				ids = append(ids, id)
			}
		}
		if len(ids) > 1 || len(ids) == 1 && ids[0] != 0 {
			p.Add(ruleValue, report.Failed, f.Value, path, "channelIDs may only be empty or [0], and the device plugin refuses to start", "write [0]")
		}
	}
}

// Strategy is "time-slicing", "mps" or "none".
func (c *Config) Strategy() string {
	switch {
	case c == nil:
	case c.mps.shares():
		return "mps"
	case c.slicing.shares():
		return "time-slicing"
	}
	return "none"
}

// Replication is what the config does to resources, in the form that package mig predicts from.
func (c *Config) Replication() mig.Replication {
	r := mig.Replication{Of: map[string]mig.Replica{}}
	if c.Strategy() == "none" {
		return r
	}
	r.Strategy = c.Strategy()
	shared := cmp.Or(c.mps, c.slicing)
	for _, resource := range shared.resources {
		replica := mig.Replica{Factor: resource.Replicas}
		if shared.rename {
			replica.Rename = resource.Name + ".shared"
		}
		// the plugin keeps a device of each replica's number, so that of two entries the larger one
		// counts
		if before, twice := r.Of[resource.Name]; !twice || replica.Factor > before.Factor {
			r.Of[resource.Name] = replica
		}
	}
	return r
}

// Write returns the file that shares whole GPUs by "timeSlicing" or "mps", as Parse reads it without a finding.
func Write(key string, replicas int) []byte {
	return fmt.Appendf(nil, "version: v1\nsharing:\n  %s:\n    resources:\n      - name: %s\n        replicas: %d\n", key, mig.WholeGPU, replicas)
}

// Resource is one shared resource and into how many it is made.
type Resource struct {
	Name     string
	Replicas int
}
