package catalog

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// A Named is a resolved name.
type Named struct {
	Name  string   // as requested
	Entry Entry    // the field to read
	Unit  gpu.Unit // the unit that the name implies; by default the Entry's
	Scale float64  // factor from the Entry's unit to Unit
}

// index maps every name to the index of its entry in entries. For base-unit names, that is the entry whose
// field is read.
var index = sync.OnceValue(func() map[string]int {
	names := make(map[string]int, 2*len(entries))
	for i := range entries {
		at := i
		if older := entries[i].BaseOf; older != 0 { // read as the older ID of the same measurement
			at, _ = position(older) // always found; a test checks this
		}
		for _, name := range entries[i].names() {
			names[name] = at
		}
	}
	return names
})

// names returns all names of the entry. Some may be repeated.
func (e *Entry) names() []string { return append([]string{e.Name, e.Classic, e.Current}, e.Aliases...) }

// position returns the position of an ID in entries.
func position(id gpu.FieldID) (int, bool) {
	return slices.BinarySearchFunc(entries[:], id, func(e Entry, id gpu.FieldID) int { return cmp.Compare(e.ID, id) })
}

// ByID returns the entry of an ID.
func ByID(id gpu.FieldID) (Entry, bool) {
	if i, ok := position(id); ok {
		return entries[i], true
	}
	return Entry{}, false
}

// All yields all entries in order of their IDs.
func All() iter.Seq[Entry] { return slices.Values(entries[:]) }

// Lookup resolves a name of either vocabulary, or an older name. Matching is exact.
func Lookup(name string) (Named, bool) {
	i, ok := index()[name]
	if !ok {
		return Named{}, false
	}
	unit, scale := promised(name, entries[i].Unit)
	return Named{Name: name, Entry: entries[i], Unit: unit, Scale: scale}, true
}

// Search returns the entries that contain every word in a name, the help, the unit or the ID, in order of their IDs. It
// ignores case. Without words it returns all entries.
func Search(words ...string) []Entry {
	var found []Entry
	for i := range entries {
		e := &entries[i]
		if e.Type == Marker || e.BaseOf != 0 {
			continue
		}
		text := strings.Join(append(e.names(), e.Help, string(e.Unit), strconv.Itoa(int(e.ID))), "\n")
		text = strings.ToLower(text)
		lacks := func(word string) bool { return !strings.Contains(text, strings.ToLower(word)) }
		if !slices.ContainsFunc(words, lacks) {
			found = append(found, *e)
		}
	}
	return found
}

// Words returns the words of names and help texts, in lower case and sorted, for suggestions. Words of fewer than four
// letters are left out.
func Words() []string {
	seen := map[string]bool{}
	isNoLetter := func(r rune) bool { return !unicode.IsLetter(r) }
	for i := range entries {
		for _, text := range append(entries[i].names(), entries[i].Help) {
			for word := range strings.FieldsFuncSeq(strings.ToLower(text), isNoLetter) {
				if len(word) >= 4 {
					seen[word] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// A Vocabulary is a set of names and units of families: a word of the --vocabulary flag.
type Vocabulary string

// The vocabularies. Classic is the default.
const (
	Classic Vocabulary = "classic" // the names and units of dcgm-exporter 4.8
	Current Vocabulary = "current" // those of 4.9
	Both    Vocabulary = "both"    // both families, from the same sample
)

// Rename resolves name and the name of the same measurement in v. Values of the family to are those of from
// times from.Scale / to.Scale. It returns false if v already has the name, if the name is in neither
// vocabulary, and for Both.
func Rename(name string, v Vocabulary) (from, to Named, ok bool) {
	from, _ = Lookup(name)
	e, other := from.Entry, ""
	switch {
	case v == Current && name == e.Classic:
		other = e.Current
	case v == Classic && (name == e.Current || name == e.Name):
		other = e.Classic
	}
	if other == "" || other == name {
		return Named{}, Named{}, false
	}
	to, ok = Lookup(other)
	return from, to, ok
}

// Nearest returns the known name closest to the given one, or "" if none is similar. It ignores case. A truncated name
// is completed to the shortest known one, unless another name is only a typing error (two letters) away.
func Nearest(name string) string {
	written := strings.TrimSpace(name)
	name = strings.ToUpper(written)
	if name == "" || len(name) > text.Longest {
		return ""
	}
	// Allow a third of the letters to be wrong, but never so many that any short name would match.
	limit := min(len(name)/3, 12)
	best, longer := "", ""
	var candidates []string
	for _, f := range Families(Requested) {
		candidates = append(candidates, f.Name)
	}
	for _, known := range append(candidates, slices.Sorted(maps.Keys(index()))...) {
		upper := strings.ToUpper(known)
		if written == name && known != upper { // names of 1.x are in lower case
			continue
		}
		if strings.HasPrefix(upper, name+"_") && (longer == "" || len(known) < len(longer)) {
			longer = known
		}
		if d := text.Distance(name, upper, limit); d <= wrong(name, upper) && (d < limit || d == limit && best == "") {
			best, limit = known, d
		}
	}
	if longer != "" && (best == "" || limit > 2) {
		return longer
	}
	return best
}

// wrong returns how many letters of a name may be wrong: a third of those after the common prefix.
func wrong(a, b string) int {
	longer := max(len(a), len(b))
	for _, prefix := range []string{"DCGM_FI_DEV_", "DCGM_FI_PROF_", "DCGM_FI_", "DCGM_EXP_", "DCGM_"} {
		if strings.HasPrefix(a, prefix) && strings.HasPrefix(b, prefix) {
			return (longer - len(prefix)) / 3
		}
	}
	return longer / 3
}
