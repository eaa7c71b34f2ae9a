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
	p := parser{fields.Reader{Unknown: "unknown key; the device plugin silently ignores it"}}
	root := p.Document(data)
	if root == nil {
		return nil, p.Findings
	}
	p.mapping(keys().Keys, root, root, "")
	c := &Config{}
	_ = root.Decode(c) // wrong types have been reported
	p.contradictions(root, c)
	c.Refused = slices.ContainsFunc(p.Findings, func(f check.Finding) bool {
		return f.Severity == check.Error && f.Check != fields.UnknownKey && f.Check != fields.Duplicate
	})
	return c, p.Findings
}

type parser struct{ fields.Reader }

func (p *parser) reject(rule *check.Check, n *yaml.Node, path, fix, format string, args ...any) {
	p.Add(rule, check.Error, n, path, fmt.Sprintf(format, args...), fix)
}

// mapping checks the keys of the mapping n. A missing required key is reported at the position of the node at.
func (p *parser) mapping(known map[string]key, n, at *yaml.Node, path string) {
	missing := maps.Clone(known)
	for _, f := range p.Mapping(n, path, slices.Sorted(maps.Keys(known))...) {
		k := known[f.Name]
		name := strings.TrimPrefix(path+"."+f.Name, ".")
		if k.List == nil || len(f.Value.Content) > 0 {
			delete(missing, f.Name)
		}
		switch {
		case k.Operator != "":
			state, fix := check.Warning, "set it through devicePlugin.env in the operator's values"
			if f.Name == "migStrategy" {
				fix = "set mig.strategy in the operator's values"
			}
			if f.Value.Value == k.Default { // probably copied from an example, and harmless
				state = check.Note
			}
			p.Add(Overridden, state, f.Key, name,
				"no effect with the GPU Operator, which overrides it with an environment variable: "+k.Operator, fix)
		case k.Ignored != "" && f.Value.Value != "all":
			p.Add(ignoredKey, check.Warning, f.Key, name, "the device plugin reads the key and ignores it", k.Ignored)
		}
		p.value(k, f, name)
	}
	rejectsNull := path == "sharing.timeSlicing" && fields.IsNull(n)
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if known[name].Needed && (n.Kind == yaml.MappingNode || rejectsNull) {
			p.reject(badReplicas, at, path, "add "+name+":", "%s is missing: the device plugin rejects the file", name)
		}
	}
}

func (p *parser) value(k key, f fields.Field, path string) {
	n := f.Value
	switch {
	case k.Keys != nil:
		p.mapping(k.Keys, n, f.Key, path)
	case k.List != nil:
		for i, e := range p.List(n, path) {
			p.mapping(k.List, e, e, fmt.Sprintf("%s[%d]", path, i))
		}
	case k.Several && n.Kind == yaml.SequenceNode:
		for _, e := range fields.Items(n) {
			p.value(key{Words: k.Words}, fields.Field{Value: e}, path)
		}
	case k.Words != nil:
		if text, ok := p.Text(n, path); ok && !slices.Contains(k.Words, text) {
			words := "expected " + strings.Join(k.Words, ", ")
			p.reject(badValue, n, path, check.Suggest(text, k.Words, words),
				"unknown value %q: the device plugin does not start", text)
		}
	case k.Type == "resource":
		p.resource(n, path)
	case k.Type == "replicas":
		p.replicas(n, path)
	default:
		p.scalar(k, f, path)
	}
}

// device matches a device in a list: the index of a GPU or MIG device, or a UUID.
var device = regexp.MustCompile(`^([0-9]+(:[0-9]+)?|(GPU|MIG)-` + uuid + `|MIG-GPU-` + uuid + `/[0-9]+/[0-9]+)$`)

const uuid = `[[:xdigit:]]{8}(-[[:xdigit:]]{4}){3}-[[:xdigit:]]{12}`

// scalar checks the values of simple types, and of lists of them.
func (p *parser) scalar(k key, f fields.Field, path string) {
	n := f.Value
	want := ""
	switch k.Type {
	case "bool":
		if value, ok := p.Bool(n, path); ok && !value && path == "sharing.mps.failRequestsGreaterThanOne" {
			p.Add(ignoredKey, check.Warning, f.Key, path, "with MPS, device plugins before v0.20.0 "+
				"ignore false: requests for more than one replica always fail", "")
		}
	case "text":
		p.Text(n, path)
	case "name":
		if text, ok := p.Text(n, path); ok && fullName(text) == "" {
			want = "the name of an nvidia.com resource"
		}
	case "duration":
		if _, err := time.ParseDuration(n.Value); err != nil && n.Tag != "!!int" && n.Tag != "!!float" {
			want = "a duration such as 60s"
		}
	case "devices":
		count, err := strconv.Atoi(n.Value)
		isAll, isCount := n.Tag == "!!str" && n.Value == "all", n.Tag == "!!int" && err == nil && count > 0
		items := fields.Items(n)
		if i := slices.IndexFunc(items, func(e *yaml.Node) bool { return !device.MatchString(e.Value) }); i >= 0 {
			n, want = items[i], "the index or UUID of a device"
		} else if n.Kind != yaml.SequenceNode && !isAll && !isCount {
			want = "all, a number above 0, or a list"
		}
	case "channels":
		if list := p.List(n, path); len(list) > 1 || len(list) == 1 && list[0].Value != "0" {
			want = "[0] or an empty list"
		}
	}
	if want != "" {
		found := fields.Describe(n)
		if n.Tag == "!!str" {
			found = strconv.Quote(n.Value) // no value in this file is secret
		}
		p.reject(badValue, n, path, "", "found %s, expected %s: the device plugin does not start", found, want)
	}
}

func isMPS(path string) bool { return strings.HasPrefix(path, "sharing.mps.") }

func (p *parser) replicas(n *yaml.Node, path string) {
	switch count, ok := p.Int(n, path); {
	case !ok:
	case count < 2:
		p.reject(badReplicas, n, path, "use 2 or more, or remove the resource from sharing",
			"replicas is %d: the device plugin requires at least 2", count)
	case isMPS(path) && count > MaxClients:
		p.reject(tooManyClients, n, path, fmt.Sprintf("write at most %d", MaxClients),
			"replicas is %d: MPS allows at most %d clients on one GPU, so the control daemon does not start",
			count, MaxClients)
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
	const fix = "write nvidia.com/gpu or nvidia.com/mig-<profile>"
	switch {
	case !ok:
	case full == "":
		p.reject(badResource, n, path, fix, "the device plugin rejects the file: unsupported resource %q", text)
	case isMPS(path) && strings.HasPrefix(full, "nvidia.com/mig-"):
		p.reject(mpsOnMIG, n, path, "use timeSlicing for them", "MPS does not support MIG devices")
	case !slices.Contains(known, full):
		p.Add(badResource, check.Warning, n, path, "no device is advertised as "+full+", so the entry has no effect",
			check.Suggest(full, known, fix))
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
		p.reject(mpsOnMIG, mps, "sharing.mps", "use timeSlicing or another MIG strategy",
			"MPS with flags.migStrategy mixed: the device plugin does not start")
	}
}

// Strategy returns "time-slicing", "mps" or "none".
func (c *Config) Strategy() string { return cmp.Or(c.Replication().Strategy, "none") }

// Replication returns the effect of the config on resources, for package mig.
func (c *Config) Replication() mig.Replication {
	r := mig.Replication{ByResource: map[string]mig.Replica{}}
	add := func(strategy string, block *Replicated) {
		if block == nil || r.Strategy != "" {
			return
		}
		for _, resource := range block.Resources {
			name, replica := fullName(resource.Name), mig.Replica{Factor: resource.Replicas}
			if block.RenameByDefault {
				replica.Rename = name + ".shared"
			}
			// If a resource is listed twice, both entries produce the same device IDs (GPU and replica number). The
			// larger factor determines the number of devices.
			if replica.Factor > max(1, r.ByResource[name].Factor) {
				r.Strategy, r.ByResource[name] = strategy, replica
			}
		}
	}
	if c != nil {
		add("mps", c.Sharing.MPS)
		add("time-slicing", c.Sharing.TimeSlicing)
	}
	return r
}
