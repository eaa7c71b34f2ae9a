// Package explain explains words that users of the GPU Operator meet: labels, states, keys, resources, events and
// components. The glossary is words.txt. Entries about GPU models, keys of the chart and gpuop's findings come from the
// packages that define them.
package explain

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
)

//go:embed words.txt
var words string

// Entry explains a word.
type Entry struct {
	Kind    string   `json:"kind"`             // such as label, annotation, state, resource, key, event or component
	Words   []string `json:"words"`            // the spellings; the one that was looked up comes first
	Meaning string   `json:"meaning"`          // a few sentences
	Writer  string   `json:"writer,omitempty"` // the component that sets the label, state or resource
	Reader  string   `json:"reader,omitempty"` // the component that acts on it
	Source  string   `json:"source,omitempty"` // where this is documented: a page, a source file or a tool
	// Since, Defaults and Instead are the releases that have a key of the chart, its defaults over time, and its
	// replacement.
	Since    string   `json:"since,omitempty"`
	Defaults []string `json:"defaults,omitempty"`
	Instead  string   `json:"instead,omitempty"`
}

// Lookup explains a word of the glossary, a check of gpuop, or a key of the chart with the optional prefix .Values. For
// a group of keys without an entry of its own, it explains every key in the group. Errors suggest similar words.
func Lookup(table *chart.Table, word string) ([]Entry, error) {
	entries := find(word)
	if c := check.Find(word); c != nil {
		entries = append(entries, Entry{Kind: "check of gpuop", Words: []string{word},
			Meaning: c.Title + " " + c.Help, Source: c.Source})
	}
	path := chart.ParsePath(strings.TrimPrefix(strings.TrimPrefix(word, ".Values"), "."))
	if below := keys(table, path); len(entries) == 0 || len(below) == 1 {
		entries = append(entries, below...)
	}
	if len(entries) > 0 {
		return entries, nil
	}
	near := nearest(word)
	if key := table.Lookup(table.Latest(), path).Nearest; key != nil && strings.Contains(word, ".") {
		near = []string{key.String()}
	}
	if len(near) == 0 {
		return nil, fmt.Errorf("unknown word %q", word)
	}
	return nil, fmt.Errorf("unknown word %q: did you mean %s?", word, strings.Join(near, ", "))
}

// keys explains the chart's key at the path, or all keys below it.
func keys(table *chart.Table, path chart.Path) []Entry {
	var out []Entry
	for _, k := range table.AllKeys() {
		if k.Group() || len(path) == 0 || len(k.Path) < len(path) || !slices.Equal(k.Path[:len(path)], path) {
			continue
		}
		about := table.About(k.Path)
		_, instead := chart.Successor(k.Path)
		e := Entry{Kind: "key of the chart", Words: []string{k.Path.String()}, Meaning: about.Text,
			Reader: about.Reader, Since: k.Since().String(), Instead: instead}
		if removed := k.Removed(); removed != (chart.Version{}) {
			e.Since += ", removed in " + removed.String()
		}
		for _, d := range k.Defaults() {
			value, _ := json.Marshal(d.Value) // cannot fail: defaults are decoded JSON
			e.Defaults = append(e.Defaults, fmt.Sprintf("%s from %s", value, d.From))
		}
		out = append(out, e)
	}
	return out
}

// glossary returns the entries of words.txt.
func glossary() (entries []Entry) {
	for line := range strings.Lines(words) {
		c := strings.Split(strings.TrimSpace(line), " | ")
		if len(c) != 6 { // a comment or a blank line; a test checks the format of all other lines
			continue
		}
		for i := range c {
			if c[i] == "-" {
				c[i] = ""
			}
		}
		entries = append(entries, Entry{Kind: c[0], Words: strings.Split(c[1], ", "), Meaning: c[2], Writer: c[3],
			Reader: c[4], Source: c[5]})
	}
	return entries
}

var separators = regexp.MustCompile(`[ _-]+`)

// fold normalizes case, spaces, hyphens and underscores for comparison.
func fold(s string) string {
	return strings.Trim(separators.ReplaceAllString(strings.ToLower(s), "-"), "-")
}

// lookup finds a word in any spelling, which is then listed first. The prefix nvidia.com/ is optional.
func lookup(word string) (entries []Entry) {
	word = fold(word)
	for _, e := range glossary() {
		at := slices.IndexFunc(e.Words, func(w string) bool { return fold(w) == word || fold(w) == "nvidia.com/"+word })
		if at >= 0 {
			e.Words = slices.Concat(e.Words[at:at+1], e.Words[:at], e.Words[at+1:])
			entries = append(entries, e)
		}
	}
	return entries
}

// patterns maps words such as xid=79, Init:1/3, 1c.3g.20gb and all-1g.5gb+me to those of the glossary.
var patterns = [][2]string{
	{`(?i)^xid[ :=_-]*([0-9]{1,3})$`, "XID $1"},
	{`(?i)^init:[0-9]+/[0-9]+$`, "Init:0/1"},
	{`(?i)^[0-9]+c\.[0-9]+g\.[0-9]+gb.*`, "1c.<profile>"},
	{`(?i)[0-9]+g\.[0-9]+gb((\+|\.|-)(me\.all|me|gfx)\b)?`, "<profile>"},
}

// find returns the entries for a word, a label with a value or a GPU model, most specific first.
func find(word string) []Entry {
	if entries := lookup(word); len(entries) > 0 {
		return entries
	}
	for _, p := range patterns {
		if entries := lookup(regexp.MustCompile(p[0]).ReplaceAllString(word, p[1])); len(entries) > 0 {
			entries[0].Words = []string{word}
			return entries
		}
	}
	if key, value, labeled := strings.Cut(word, "="); labeled {
		if entries := find(key); len(entries) > 0 {
			return append(entries, find(value)...)
		}
		return nil
	}
	return model(word)
}

// model explains a GPU by its name or product label. The label may end with -SHARED or -MIG-INVALID.
func model(word string) []Entry {
	g, err := mig.FindGPU(strings.TrimSuffix(word, "-SHARED"))
	if err != nil {
		return nil
	}
	e := Entry{Kind: "board", Words: []string{word, g.Product}, Writer: "GFD, as nvidia.com/gpu.product",
		Source: "nvidia-smi output of this board; NVIDIA's CUDA GPUs page"}
	const without = "A GPU without MIG support: %d MiB of memory on a typical board, family %s, compute capability %s."
	e.Meaning = fmt.Sprintf(without, g.MemoryMiB, g.Family, g.ComputeCapability)
	if b := g.Board; b != nil {
		const with = "A GPU with %d compute and %d memory slices for MIG; gpuop mig profiles %s lists its profiles."
		e.Words[1], e.Source = b.Name, b.Source
		e.Meaning = fmt.Sprintf(with, b.ComputeSlices, b.MemorySlices, b.Typical)
	}
	entries := []Entry{e}
	for _, ending := range []string{"-SHARED", "-MIG-INVALID"} {
		if strings.HasSuffix(word, ending) {
			entries = append(entries, lookup(ending)[0])
		}
	}
	return entries
}

// nearest returns up to three known words that are similar, best first.
func nearest(word string) []string {
	var near, known []string
	for _, e := range glossary() {
		known = append(known, e.Words...)
	}
	known = append(known, mig.Profiles()...)
	if s := cmp.Or(check.Nearest(word, known), check.Nearest("nvidia.com/"+word, known)); s != "" {
		near = append(near, s)
	}
	for _, s := range known {
		if len(word) >= 3 && len(near) < 3 && strings.Contains(fold(s), fold(word)) && !slices.Contains(near, s) {
			near = append(near, s)
		}
	}
	return near
}
