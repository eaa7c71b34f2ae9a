package explain

import (
	_ "embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
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
	// Details are further lines, for words that stand for a family: what holds for this one.
	Details []string `json:"details,omitempty"`
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

// index maps every folded spelling to the entries that have it, in file order.
var index = sync.OnceValue(func() map[string][]int {
	m := map[string][]int{}
	for i, e := range Glossary() {
		for _, w := range e.Words {
			for _, spelling := range []string{fold(w), strings.TrimPrefix(fold(w), "nvidia.com/")} {
				if !slices.Contains(m[spelling], i) {
					m[spelling] = append(m[spelling], i)
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
	if word == "" {
		return nil
	}
	if key, value, ok := strings.Cut(word, "="); ok && key != "" {
		entries := slices.Clone(lookup(key))
		if len(entries) == 0 {
			entries = family(key)
		}
		for _, e := range append(lookup(value), family(value)...) {
			if len(entries) > 0 && (e.Kind == "state" || e.Kind == "config") {
				entries = append(entries, e)
			}
		}
		if len(entries) > 0 {
			return entries
		}
	}
	return family(word)
}

func lookup(word string) []Entry {
	var entries []Entry
	for _, i := range index()[fold(word)] {
		entries = append(entries, Glossary()[i])
	}
	return entries
}

// family finds words that stand in the glossary as a pattern, and GPU models.
func family(word string) []Entry {
	if computeIn.MatchString(strings.ToLower(word)) {
		return lookup("1c.<profile>")
	}
	if at := profileIn.FindStringIndex(strings.ToLower(word)); at != nil {
		pattern := strings.ToLower(word[:at[0]]) + "<profile>" + strings.ToLower(word[at[1]:])
		profile, ok := mig.CanonicalProfile(word[at[0]:at[1]])
		entries := slices.Clone(lookup(pattern))
		if ok && len(entries) > 0 {
			entries[0].Words = []string{word}
			entries[0].Details = boardsWith(profile)
			return entries
		}
	}
	return model(word)
}

// model explains a GPU by what users call it or by its product label, with the ending that sharing
// or MIG gave it.
func model(word string) []Entry {
	product := strings.TrimSuffix(word, "-SHARED")
	var entries []Entry
	if b, err := mig.FindBoard(product); err == nil {
		entries = []Entry{{
			Kind: "board", Words: []string{word, b.Name},
			Meaning: fmt.Sprintf("A GPU with MIG: %d compute slices, %d memory slices, profiles %s.", b.ComputeSlices, b.MemorySlices, profileNames(b)),
			Writer:  "GFD, as nvidia.com/gpu.product", Source: b.Source,
			Details: []string{"gpuop mig profiles " + b.Typical},
		}}
	} else if g, err := sharing.FindGPU(product); err == nil {
		entries = []Entry{{
			Kind: "board", Words: []string{word, g.Product},
			Meaning: fmt.Sprintf("A GPU without MIG: %d MiB of memory on a typical board, family %s, compute capability %s.", g.MemoryMiB, g.Family, g.ComputeCapability),
			Writer:  "GFD, as nvidia.com/gpu.product", Source: "nvidia-smi on such a board; CUDA GPUs list",
		}}
	}
	for _, ending := range []string{"-SHARED", "-MIG-INVALID"} {
		for _, e := range lookup(ending) {
			if len(entries) > 0 && strings.HasSuffix(word, ending) && e.Kind == "state" {
				entries = append(entries, e)
			}
		}
	}
	return entries
}

func profileNames(b mig.Board) string {
	names := make([]string, len(b.Profiles))
	for i, p := range b.Profiles {
		names[i] = p.Name
	}
	return strings.Join(names, ", ")
}

// boardsWith says for a profile on which boards it is, and how many of it one GPU holds.
func boardsWith(profile string) []string {
	var lines []string
	for _, b := range mig.Boards() {
		if p, ok := b.Profile(profile); ok {
			lines = append(lines, fmt.Sprintf("%s: at most %d; compute slices %d, memory slices %d; config %s, resource %s", b.Name, p.Max, p.Compute, p.Memory, mig.ConfigName(profile), mig.ResourceName(profile)))
		}
	}
	if len(lines) == 0 {
		lines = []string{"no known board has " + profile}
	}
	return lines
}

// Nearest returns up to three known words that an unknown one was probably meant to be, best first.
func Nearest(word string) []string {
	folded := fold(strings.TrimSpace(word))
	if folded == "" {
		return nil
	}
	spellings := slices.Concat(slices.Sorted(maps.Keys(index())), mig.Profiles())
	meant := func(spelling string) string {
		if at := index()[spelling]; len(at) > 0 {
			for _, w := range Glossary()[at[0]].Words {
				if f := fold(w); f == spelling || strings.TrimPrefix(f, "nvidia.com/") == spelling {
					return w
				}
			}
		}
		return spelling
	}
	var found []string
	if near := finding.Nearest(folded, spellings); near != "" {
		found = append(found, meant(near))
	}
	for _, s := range spellings {
		if w := meant(s); len(folded) >= 3 && strings.Contains(s, folded) && !slices.Contains(found, w) && len(found) < 3 {
			found = append(found, w)
		}
	}
	return found
}
