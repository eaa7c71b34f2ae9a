package sharing

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
)

// Named is a config with the name under which a ConfigMap, and so a node label, knows it. Config is
// nil where the text is not a mapping.
type Named struct {
	Name   string
	Config *Config
	// File is the file it came from, for reports about it; ParseAny leaves it empty.
	File string
}

// ParseAny reads a device-plugin file, or a ConfigMap that holds several, and names what it found:
// a bare file gets the name that is given. Lines in findings count from the top of the data.
func ParseAny(data []byte, name string) ([]Named, []finding.Finding) {
	var doc struct {
		Kind string               `yaml:"kind"`
		Data map[string]yaml.Node `yaml:"data"`
	}
	if err := yaml.Unmarshal(data, &doc); err != nil || doc.Kind != "ConfigMap" {
		c, findings := Parse(data)
		return []Named{{Name: name, Config: c}}, findings
	}
	var named []Named
	var findings []finding.Finding
	if len(doc.Data) == 0 {
		return nil, []finding.Finding{{ID: fields.RuleType, Severity: finding.Error, Subject: "data", Reason: "the ConfigMap holds no data", Source: sourceChoice}}
	}
	for key, n := range doc.Data {
		offset := n.Line
		if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 {
			offset = n.Line - 1
		}
		c, found := Parse([]byte(n.Value))
		if c != nil {
			for path := range c.set {
				c.set[path] += offset
			}
		}
		named = append(named, Named{Name: key, Config: c})
		for _, f := range found {
			f.Line += offset
			f.Subject = strings.TrimSuffix("data."+key+": "+f.Subject, ": ")
			findings = append(findings, f)
		}
	}
	slices.SortFunc(named, func(a, b Named) int { return strings.Compare(a.Name, b.Name) })
	return named, findings
}

// ErrWanted is returned for a word that does not describe a config.
var ErrWanted = errors.New("unreadable config")

// Wanted is one config to write.
type Wanted struct {
	Name string
	Sharing
}

var keyName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// ParseWanted reads NAME=STRATEGY[:REPLICAS][,OPTION…]: "default=none",
// "a100=time-slicing:5,rename", "infer=mps:4,resource=nvidia.com/gpu". Options are rename,
// fail-multi, mig-strategy=… and resource=NAME (more of them share the same number of replicas, or
// give their own as resource=NAME*N). The error wraps ErrWanted.
func ParseWanted(word string) (Wanted, error) {
	name, rest, ok := strings.Cut(word, "=")
	if !ok {
		return Wanted{}, fmt.Errorf("%w %q: want NAME=STRATEGY:REPLICAS, for example default=time-slicing:4", ErrWanted, word)
	}
	w := Wanted{Name: name}
	if !keyName.MatchString(name) {
		return w, fmt.Errorf("%w %q: the name must be fit for a node label: letters, digits, '.', '_' and '-', at most 63", ErrWanted, word)
	}
	parts := strings.Split(rest, ",")
	strategy, count, counted := strings.Cut(parts[0], ":")
	switch strategy {
	case "none":
		if counted {
			return w, fmt.Errorf("%w %q: the strategy none has no replicas", ErrWanted, word)
		}
	case "time-slicing", "mps":
		n, err := strconv.Atoi(count)
		if err != nil || n < 2 || n > 1000 || strategy == "mps" && n > MaxClients {
			return w, fmt.Errorf("%w %q: want %s:N with N from 2 (under mps to %d)", ErrWanted, word, strategy, MaxClients)
		}
		w.Resources = []Resource{{Name: "nvidia.com/gpu", Replicas: n}}
	default:
		fix := "want time-slicing, mps or none"
		if near := finding.Nearest(strategy, []string{"time-slicing", "mps", "none"}); near != "" {
			fix = "did you mean " + near + "?"
		}
		return w, fmt.Errorf("%w %q: no strategy %q, %s", ErrWanted, word, strategy, fix)
	}
	w.Strategy = strategy
	return w, w.options(word, parts[1:])
}

func (w *Wanted) options(word string, options []string) error {
	named := false
	for _, option := range options {
		key, value, _ := strings.Cut(option, "=")
		switch {
		case option == "rename" && w.Strategy != "none":
			w.Rename = true
		case option == "fail-multi" && w.Strategy == "time-slicing":
			w.FailMultiple = true
		case key == "mig-strategy" && slices.Contains([]string{"none", "single", "mixed"}, value):
			w.MIGStrategy = value
		case key == "resource" && w.Strategy != "none":
			replicas := w.Resources[0].Replicas
			resource, own, ok := strings.Cut(value, "*")
			if ok {
				n, err := strconv.Atoi(own)
				if err != nil || n < 2 || n > 1000 {
					return fmt.Errorf("%w %q: want resource=NAME*N with N from 2", ErrWanted, word)
				}
				replicas = n
			}
			if !named {
				w.Resources, named = w.Resources[:0:0], true
			}
			w.Resources = append(w.Resources, Resource{Name: resource, Replicas: replicas})
		default:
			return fmt.Errorf("%w %q: no option %q here, want rename, fail-multi, mig-strategy=none|single|mixed or resource=NAME", ErrWanted, word, option)
		}
	}
	return nil
}

// ConfigMap writes the configs as the object that the operator reads.
func ConfigMap(name, namespace string, configs []Wanted) []byte {
	b := &strings.Builder{}
	fmt.Fprintf(b, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n  namespace: %s\ndata:\n", name, namespace)
	for _, w := range configs {
		fmt.Fprintf(b, "  %s: |-\n", strconv.Quote(w.Name))
		for line := range strings.Lines(string(Write(w.Sharing))) {
			b.WriteString("    " + line)
		}
	}
	return []byte(b.String())
}

// ChartValues writes the configs as values of the plugin's own chart.
func ChartValues(deflt string, configs []Wanted) []byte {
	b := &strings.Builder{}
	b.WriteString("gfd:\n  enabled: true\nconfig:\n")
	if deflt != "" {
		fmt.Fprintf(b, "  default: %s\n", strconv.Quote(deflt))
	}
	b.WriteString("  map:\n")
	for _, w := range configs {
		fmt.Fprintf(b, "    %s: |-\n", strconv.Quote(w.Name))
		for line := range strings.Lines(string(Write(w.Sharing))) {
			b.WriteString("      " + line)
		}
	}
	return []byte(b.String())
}
