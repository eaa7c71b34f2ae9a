package sharing

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
)

// Config is a config file of the device plugin.
type Config struct {
	// Refused means that the device plugin does not start with the file.
	Refused bool `yaml:"-"`
	Flags   struct {
		MIGStrategy string `yaml:"migStrategy"`
	}
	// Sharing has a block for each kind of sharing. Missing blocks are nil.
	Sharing struct {
		TimeSlicing *Replicated `yaml:"timeSlicing"`
		MPS         *Replicated
	}
}

// Replicated lists the resources to replicate.
type Replicated struct {
	RenameByDefault bool `yaml:"renameByDefault"`
	Resources       []struct {
		Name     string
		Replicas int
	}
}

// shares reports whether the block replicates any device.
func (r *Replicated) shares() bool {
	if r != nil {
		for _, resource := range r.Resources {
			if resource.Replicas > 1 {
				return true
			}
		}
	}
	return false
}

// MaxClients is the maximum number of MPS clients of a GPU with compute capability 7.5 or later.
const MaxClients = 48

//go:embed keys.yaml
var keysText []byte

// key describes a key of the file and its valid values. keys.yaml documents the fields.
type key struct {
	Keys, List              map[string]key
	Type, Operator, Ignored string
	Default                 string
	Words                   []string
	Several, Needed         bool
}

var keys = sync.OnceValue(func() (k key) {
	_ = yaml.Unmarshal(keysText, &k) // cannot fail: a test parses the file
	return k
})

// Parse parses a device-plugin config. It reports misspelled keys, values that the plugin rejects, and settings without
// effect under the GPU Operator. Findings have lines but no file. The config is nil only if the file is not a mapping.
func Parse(data []byte) (*Config, []check.Finding) {
	p := parser{Reader: fields.Reader{Unknown: "unknown key; the device plugin silently ignores it"}}
	var c *Config
	if root := p.Document(data); root != nil {
		c = &Config{}
		p.mapping(keys().Keys, root, root, "")
		_ = root.Decode(c) // wrong types have been reported
		p.contradictions(root, c)
		c.Refused = slices.ContainsFunc(p.Findings, func(f check.Finding) bool {
			return f.Severity == check.Error && f.Check != fields.UnknownKey && f.Check != fields.Duplicate
		})
	}
	return c, p.Findings
}

type parser struct {
	fields.Reader
}

// mapping checks the keys of the mapping n. A missing required key is reported at the position of the node at.
func (p *parser) mapping(known map[string]key, n, at *yaml.Node, path string) {
	missing := maps.Clone(known)
	for _, f := range p.Mapping(n, path, slices.Sorted(maps.Keys(known))...) {
		k := known[f.Name]
		name := strings.TrimPrefix(path+"."+f.Name, ".")
		if k.List == nil || !fields.IsNull(f.Value) && len(f.Value.Content) > 0 {
			delete(missing, f.Name)
		}
		switch {
		case k.Operator != "":
			fix := "set it through devicePlugin.env in the operator's values"
			if f.Name == "migStrategy" {
				fix = "set mig.strategy in the operator's values"
			}
			state := check.Warning
			if f.Value.Value == k.Default { // probably copied from an example, and harmless
				state = check.Note
			}
			const reason = "no effect with the GPU Operator, which overrides it with an environment variable: "
			p.Add(Overridden, state, f.Key, name, reason+k.Operator, fix)
		case k.Ignored != "" && f.Value.Value != "all":
			p.Add(ignoredKey, check.Warning, f.Key, name, "the device plugin reads the key and ignores it", k.Ignored)
		}
		p.value(k, f, name)
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if known[name].Needed && n.Kind == yaml.MappingNode {
			p.error(badReplicas, at, path, name+" is missing: the device plugin rejects the file", "add "+name+":")
		}
	}
}

func (p *parser) error(id *check.Check, n *yaml.Node, path, reason, fix string) {
	p.Add(id, check.Error, n, path, reason, fix)
}

func (p *parser) value(k key, f fields.Field, path string) {
	n := f.Value
	switch {
	case k.Keys != nil && path == "sharing.timeSlicing" && fields.IsNull(n):
		p.error(badReplicas, f.Key, path, "resources is missing: the device plugin rejects the file",
			"add resources: with a name and replicas")
	case k.Type == "resources":
		for _, name := range []string{"gpus", "mig"} {
			list := fields.Get(n, name)
			p.value(key{List: k.Keys}, fields.Field{Key: list, Value: list}, path+"."+name)
		}
	case k.Keys != nil:
		p.mapping(k.Keys, n, f.Key, path)
	case k.List != nil:
		for i, e := range p.List(n, path) {
			p.mapping(k.List, e, e, path+"["+strconv.Itoa(i)+"]")
		}
	case k.Several && n.Kind == yaml.SequenceNode:
		for _, e := range p.List(n, path) {
			p.word(e, path, k.Words)
		}
	case k.Words != nil:
		p.word(n, path, k.Words)
	case k.Type == "bool":
		value, ok := p.Bool(n, path)
		if ok && !value && path == "sharing.mps.failRequestsGreaterThanOne" {
			const reason = "with MPS, device plugin versions before v0.20.0 ignore false: " +
				"requests for more than one replica always fail"
			p.Add(ignoredKey, check.Warning, f.Key, path, reason, "")
		}
	case k.Type == "text":
		p.Text(n, path)
	case k.Type == "name":
		if text, ok := p.Text(n, path); ok && fullName(text) == "" {
			p.refused(n, path, "the name of an nvidia.com resource")
		}
	case k.Type == "duration":
		if _, err := time.ParseDuration(n.Value); err != nil && n.Tag != "!!int" && n.Tag != "!!float" {
			p.refused(n, path, "a duration such as 60s")
		}
	case k.Type == "devices":
		p.devices(n, path)
	case k.Type == "channels":
		if list := p.List(n, path); len(list) > 1 || len(list) == 1 && list[0].Value != "0" {
			p.refused(n, path, "[0] or an empty list")
		}
	case k.Type == "resource":
		p.resource(n, path)
	case k.Type == "replicas":
		p.replicas(n, path)
	}
}

// refused reports a value that keeps the device plugin from starting.
func (p *parser) refused(n *yaml.Node, path, want string) {
	found := fields.Describe(n)
	if n.Tag == "!!str" {
		found = strconv.Quote(n.Value) // no value in this file is secret
	}
	p.error(badValue, n, path, "found "+found+", expected "+want+": the device plugin does not start", "")
}

// device matches a device in a list: the index of a GPU or MIG device, or a UUID.
var device = regexp.MustCompile(`^([0-9]+(:[0-9]+)?|(GPU|MIG)-` + uuid + `|MIG-GPU-` + uuid + `/[0-9]+/[0-9]+)$`)

const uuid = `[[:xdigit:]]{8}(-[[:xdigit:]]{4}){3}-[[:xdigit:]]{12}`

// devices checks a value that selects the devices to share: all, a number of devices, or a list.
func (p *parser) devices(n *yaml.Node, path string) {
	count, err := strconv.Atoi(n.Value)
	isAll, isCount := n.Tag == "!!str" && n.Value == "all", n.Tag == "!!int" && err == nil && count > 0
	if n.Kind != yaml.SequenceNode && !isAll && !isCount {
		p.refused(n, path, "all, a number above 0, or a list")
	}
	for _, e := range fields.Items(n) {
		if !device.MatchString(e.Value) {
			p.refused(e, path, "the index or UUID of a device")
		}
	}
}

// word checks that a value is one of words.
func (p *parser) word(n *yaml.Node, path string, words []string) {
	text, ok := p.Text(n, path)
	if !ok || slices.Contains(words, text) {
		return
	}
	p.error(badValue, n, path, fmt.Sprintf("unknown value %q: the device plugin does not start", text),
		check.Suggest(text, words, "expected "+strings.Join(words, ", ")))
}

func isMPS(path string) bool { return strings.HasPrefix(path, "sharing.mps.") }

func (p *parser) replicas(n *yaml.Node, path string) {
	switch count, ok := p.Int(n, path); {
	case !ok:
	case count < 2:
		p.error(badReplicas, n, path, fmt.Sprintf("replicas is %d: the device plugin requires at least 2", count),
			"use 2 or more, or remove the resource from sharing")
	case isMPS(path) && count > MaxClients:
		const reason = "replicas is %d: MPS allows at most %d clients on one GPU, so the control daemon does not start"
		fix := fmt.Sprintf("write at most %d", MaxClients)
		p.error(tooManyClients, n, path, fmt.Sprintf(reason, count, MaxClients), fix)
	}
}

// fullName returns a resource's name with the prefix nvidia.com/. It returns "" if the device plugin rejects the name.
func fullName(name string) string {
	plain := strings.TrimPrefix(name, "nvidia.com/")
	full := "nvidia.com/" + plain
	if len(full) > 63 || len(validation.NameIsDNSSubdomain(plain, false)) > 0 {
		return ""
	}
	return full
}

func (p *parser) resource(n *yaml.Node, path string) {
	text, ok := p.Text(n, path)
	full := fullName(text)
	known := []string{mig.WholeGPU}
	for _, profile := range mig.Profiles() {
		known = append(known, mig.ResourceName(profile))
	}
	const names = "nvidia.com/gpu or nvidia.com/mig-<profile>"
	switch {
	case !ok:
	case full == "":
		reason := fmt.Sprintf("the device plugin does not support the resource %q and rejects the file", text)
		p.error(badResource, n, path, reason, "write "+names)
	case isMPS(path) && strings.HasPrefix(full, "nvidia.com/mig-"):
		p.error(mpsOnMIG, n, path, "MPS does not support MIG devices", "use timeSlicing for them")
	case !slices.Contains(known, full):
		reason := fmt.Sprintf("no device is advertised as %s, so the entry has no effect", full)
		p.Add(badResource, check.Warning, n, path, reason, check.Suggest(full, known, "expected "+names))
	}
}

// contradictions reports settings that cannot be combined with MPS.
func (p *parser) contradictions(root *yaml.Node, c *Config) {
	blocks := map[string]*yaml.Node{}
	for _, f := range fields.Of(fields.Get(root, "sharing")) {
		blocks[f.Name] = f.Key
	}
	slicing, mps := blocks["timeSlicing"], blocks["mps"]
	if slicing != nil && mps != nil {
		p.Add(bothStrategies, check.Warning, slicing, "sharing.timeSlicing",
			"timeSlicing and mps are both configured: MPS wins silently, and this block has no effect",
			"keep one of the two")
	}
	if mps != nil && c.Flags.MIGStrategy == mig.StrategyMixed {
		p.error(mpsOnMIG, mps, "sharing.mps", "MPS with flags.migStrategy mixed: the device plugin does not start",
			"use timeSlicing or another MIG strategy")
	}
}

// Strategy returns "time-slicing", "mps" or "none".
func (c *Config) Strategy() string {
	switch {
	case c == nil:
	case c.Sharing.MPS.shares():
		return "mps"
	case c.Sharing.TimeSlicing.shares():
		return "time-slicing"
	}
	return "none"
}

// Replication returns the effect of the config on resources, for package mig.
func (c *Config) Replication() mig.Replication {
	r := mig.Replication{ByResource: map[string]mig.Replica{}}
	if c.Strategy() == "none" {
		return r
	}
	r.Strategy = c.Strategy()
	shared := cmp.Or(c.Sharing.MPS, c.Sharing.TimeSlicing)
	for _, resource := range shared.Resources {
		name := fullName(resource.Name)
		replica := mig.Replica{Factor: resource.Replicas}
		if shared.RenameByDefault {
			replica.Rename = name + ".shared"
		}
		// If a resource is listed twice, both entries produce the same device IDs (GPU and replica number). The larger
		// factor determines the number of devices.
		if replica.Factor > r.ByResource[name].Factor {
			r.ByResource[name] = replica
		}
	}
	return r
}
