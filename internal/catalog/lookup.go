package catalog

import (
	"iter"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Named is what a name means: which field to read for it, and what to make of the value.
type Named struct {
	// Name is the name as it was requested.
	Name string
	// Entry is the field to read.
	Entry Entry
	// Unit is the unit that the name promises: the Entry's own, unless the name says another.
	Unit gpu.Unit
	// Scale converts from the Entry's unit to Unit.
	Scale float64
}

// index maps every name to the position in entries of the field to read.
var index = sync.OnceValue(func() map[string]int {
	names := make(map[string]int, 2*len(entries))
	for i := range entries {
		for name := range entries[i].names() {
			names[name] = i
		}
	}
	// A base-unit id is read as the older id of the same measurement: its name must not lead to
	// itself.
	for i := range entries {
		if older := entries[i].BaseOf; older != 0 {
			if at, ok := position(older); ok {
				names[entries[i].Name] = at
			}
		}
	}
	return names
})

// names yields every name of the entry once or more.
func (e *Entry) names() iter.Seq[string] {
	return func(yield func(string) bool) {
		_ = yield(e.Name) && yield(e.Classic) && yield(e.Current) && !slices.ContainsFunc(e.Aliases, func(name string) bool { return !yield(name) })
	}
}

// position returns the position of an id in entries.
func position(id gpu.FieldID) (int, bool) {
	i := sort.Search(len(entries), func(i int) bool { return entries[i].ID >= id })
	return i, i < len(entries) && entries[i].ID == id
}

// ByID returns the entry of an id.
func ByID(id gpu.FieldID) (Entry, bool) {
	if i, ok := position(id); ok {
		return entries[i], true
	}
	return Entry{}, false
}

// All yields every entry in the order of the ids.
func All() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for i := range entries {
			if !yield(entries[i]) {
				return
			}
		}
	}
}

// Lookup returns what a name of either vocabulary, or an older one, means. Names are matched
// exactly.
func Lookup(name string) (Named, bool) {
	i, ok := index()[name]
	if !ok {
		return Named{}, false
	}
	unit, scale := promised(name, entries[i].Unit)
	return Named{Name: name, Entry: entries[i], Unit: unit, Scale: scale}, true
}

// Search returns the entries that have every word in a name, in the help, in the unit or as their
// id, in the order of the ids. Case does not matter. No words find everything.
func Search(words ...string) []Entry {
	var found []Entry
	for i := range entries {
		e := &entries[i]
		if e.Type == Marker || e.BaseOf != 0 {
			continue
		}
		text := []string{strings.ToLower(e.Help), strings.ToLower(string(e.Unit)), strconv.Itoa(int(e.ID))}
		for name := range e.names() {
			text = append(text, strings.ToLower(name))
		}
		hit := true
		for _, word := range words {
			word = strings.ToLower(word)
			hit = hit && slices.ContainsFunc(text, func(s string) bool { return strings.Contains(s, word) })
		}
		if hit {
			found = append(found, *e)
		}
	}
	return found
}
