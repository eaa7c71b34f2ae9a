package explain

import (
	_ "embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

//go:embed words.txt
var words string

// Entry is what is known about one word.
type Entry struct {
	// Kind is label, annotation, state, resource, key, event, component and so on.
	Kind string `json:"kind"`
	// Words are the word and its other spellings, the usual one first.
	Words []string `json:"words"`
	// Meaning is one or a few sentences.
	Meaning string `json:"meaning"`
	// Writer and Reader say who sets it and who acts on it; "" where none does.
	Writer string `json:"writer,omitempty"`
	Reader string `json:"reader,omitempty"`
	// Source is where it is documented.
	Source string `json:"source,omitempty"`
	// Since, Defaults and Instead are of a key of the chart: its releases, its defaults with the release that each
	// came with, and what replaces it.
	Since    string   `json:"since,omitempty"`
	Defaults []string `json:"defaults,omitempty"`
	Instead  string   `json:"instead,omitempty"`
}

// Glossary returns every entry, in the order of the file. The result is shared: callers must not
// change it.
var Glossary = sync.OnceValue(func() []Entry {
	var entries []Entry
	for line := range strings.Lines(words) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		// the format is held by a test
		column := strings.SplitN(line, " | ", 6)
		for i, c := range column {
			if column[i] = strings.TrimSpace(c); column[i] == "-" {
				column[i] = ""
			}
		}
		column = append(column, make([]string, 6-len(column))...)
		entries = append(entries, Entry{
			Kind: column[0], Words: strings.Split(column[1], ", "), Meaning: column[2], Writer: column[3], Reader: column[4], Source: column[5],
		})
	}
	return entries
})

// A spelling is a word of an entry of the glossary.
type spelling struct {
	word  string
	entry int
}

// index maps every folded spelling to its words, in the order of the file.
var index = sync.OnceValue(func() map[string][]spelling {
	m := map[string][]spelling{}
	for i, e := range Glossary() {
		for _, w := range e.Words {
			for _, folded := range []string{fold(w), strings.TrimPrefix(fold(w), "nvidia.com/")} {
				if all := m[folded]; len(all) == 0 || all[len(all)-1].entry != i {
					m[folded] = append(all, spelling{w, i})
				}
			}
		}
	}
	return m
})

// fold brings spellings that differ in case and joining alone to one form.
func fold(s string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return r == ' ' || r == '_' || r == '-' }), "-")
}

var (
	profileIn = regexp.MustCompile(`[0-9]+g\.[0-9]+gb((\+|\.|-)(me\.all|me|gfx)\b)?`)
	computeIn = regexp.MustCompile(`^[0-9]+c\.[0-9]+g\.[0-9]+gb`)
)

// Find returns the entries for a word, most specific first, or none. It understands a label with
// its value (nvidia.com/gpu.deploy.driver=true), names with a MIG profile in them
// (nvidia.com/mig-3g.20gb.count, all-1g.10gb, 1g.5gb+me), and GPU models.
func Find(word string) []Entry {
	if entries := lookup(word); entries != nil {
		return entries
	}
	word = strings.Trim(strings.TrimSpace(word), `"'`+"`")
	key, value, _ := strings.Cut(word, "=")
	entries := family(key)
	for _, e := range family(value) {
		if len(entries) > 0 && (e.Kind == "state" || e.Kind == "config") {
			entries = append(entries, e)
		}
	}
	return entries
}

func lookup(word string) []Entry {
	var entries []Entry
	for _, s := range index()[fold(word)] {
		entries = append(entries, Glossary()[s.entry])
	}
	return entries
}

// family finds words, patterns of words with a MIG profile, and GPU models.
func family(word string) []Entry {
	if entries := lookup(word); entries != nil {
		return entries
	}
	lower := strings.ToLower(word)
	if computeIn.MatchString(lower) {
		return lookup("1c.<profile>")
	}
	if at := profileIn.FindStringIndex(lower); at != nil {
		if entries := lookup(lower[:at[0]] + "<profile>" + lower[at[1]:]); len(entries) > 0 {
			entries[0].Words = []string{word}
			return entries
		}
	}
	return model(word)
}

// model explains a GPU by its common name or by its product label, with the ending for sharing or MIG.
func model(word string) []Entry {
	product, shared := strings.CutSuffix(word, "-SHARED")
	g, err := mig.FindGPU(product)
	if err != nil {
		return nil
	}
	entry := Entry{Kind: "board", Writer: "GFD, as nvidia.com/gpu.product"}
	if b := g.Board; b != nil {
		entry.Words, entry.Source = []string{word, b.Name}, b.Source
		entry.Meaning = fmt.Sprintf("A GPU with MIG: %d compute slices, %d memory slices; gpuop mig profiles %s lists its profiles.",
			b.ComputeSlices, b.MemorySlices, b.Typical)
	} else {
		entry.Words, entry.Source = []string{word, g.Product}, "nvidia-smi on such a board; CUDA GPUs list"
		entry.Meaning = fmt.Sprintf("A GPU without MIG: %d MiB of memory on a typical board, family %s, compute capability %s.",
			g.MemoryMiB, g.Family, g.ComputeCapability)
	}
	entries := []Entry{entry}
	switch {
	case shared:
		entries = append(entries, lookup("-SHARED")[0])
	case strings.HasSuffix(word, "-MIG-INVALID"):
		entries = append(entries, lookup("-MIG-INVALID")[0])
	}
	return entries
}

// Nearest returns up to three known words that resemble an unknown one, best first.
func Nearest(word string) []string {
	folded := fold(strings.TrimSpace(word))
	if folded == "" {
		return nil
	}
	known := slices.Concat(slices.Sorted(maps.Keys(index())), mig.Profiles())
	var near []string
	if s := report.Nearest(folded, known); s != "" {
		near = append(near, s)
	}
	if len(folded) >= 3 {
		near = append(near, slices.DeleteFunc(known, func(s string) bool { return !strings.Contains(s, folded) })...)
	}
	var words []string
	for _, s := range near {
		if all := index()[s]; len(all) > 0 {
			s = all[0].word
		}
		if !slices.Contains(words, s) && len(words) < 3 {
			words = append(words, s)
		}
	}
	return words
}
