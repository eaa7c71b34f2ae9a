package counters

import (
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Vocabulary says under which names and units families are exported.
type Vocabulary uint8

// The vocabularies. Classic is the default.
const (
	Classic Vocabulary = iota // the names and units of dcgm-exporter 4.8
	Current                   // those of 4.9
	Both                      // both families, from the same sample
)

// String returns the word of the --vocabulary flag.
func (v Vocabulary) String() string {
	switch v {
	case Current:
		return "current"
	case Both:
		return "both"
	default:
		return "classic"
	}
}

// ParseVocabulary returns the vocabulary of a word, and whether there is one.
func ParseVocabulary(word string) (Vocabulary, bool) {
	for _, v := range []Vocabulary{Classic, Current, Both} {
		if v.String() == word {
			return v, true
		}
	}
	return Classic, false
}

// 4.9 collects the size of the frame buffer by default, 4.8 did not. It goes
// after the reserved frame buffer.
const (
	fieldCapacity gpu.FieldID = 250
	fieldReserved gpu.FieldID = 253
)

// Translate returns the requests to export in a vocabulary.
//
// A line of a user's file is a request for exactly that name: it is kept in
// every vocabulary, and Both adds the other vocabulary's name beside it.
// Shipped files mean a set of measurements, not names: Classic keeps their
// names, Current replaces them with the current ones and adds what 4.9
// collects beyond 4.8, and Both has all of them. Names of dcgm-exporter 1.x
// are in neither vocabulary; they are kept as they are.
//
// A name that is already asked for is not added again. Families that are
// added or replaced get the catalogue's help, which tells the new unit, and
// are gauges where their values are rates.
func Translate(requests []Request, v Vocabulary, shipped bool) []Request {
	if v == Classic || v == Current && !shipped {
		return slices.Clone(requests)
	}
	asked := make(map[string]bool, len(requests))
	for _, r := range requests {
		asked[r.Name] = true
	}
	out := make([]Request, 0, 2*len(requests))
	for _, r := range requests {
		other, ok := r.other()
		switch {
		case !ok || asked[other.Name]:
			out = append(out, r)
		case v == Current:
			asked[other.Name] = true
			out = append(out, other)
		default:
			asked[other.Name] = true
			out = append(out, r, other)
		}
		if shipped && r.Named.Entry.ID == fieldReserved {
			if e, ok := ByID(fieldCapacity); ok && !asked[e.Current] {
				if extra, err := NewRequest(e.Current, gpu.MetricGauge, ""); err == nil {
					asked[e.Current] = true
					out = append(out, extra)
				}
			}
		}
	}
	return out
}

// Rename returns what a name means and what the same measurement is called in
// v. The values under from are those under to times from.Scale / to.Scale. It
// reports false where v has the name already, or the name is in neither
// vocabulary, and for Both, which has every name.
func Rename(name string, v Vocabulary) (from, to Named, ok bool) {
	from, ok = Lookup(name)
	if !ok {
		return Named{}, Named{}, false
	}
	e := from.Entry
	var other string
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

// other returns the same request in the other vocabulary, if that has another
// name for it.
func (r Request) other() (Request, bool) {
	_, named, ok := Rename(r.Name, Current)
	if !ok {
		_, named, ok = Rename(r.Name, Classic)
	}
	if !ok {
		return Request{}, false
	}
	other := r
	other.Name, other.Named, other.Help = named.Name, named, helpFor(named)
	if other.Type == gpu.MetricCounter && isRate(named.Unit) {
		other.Type = gpu.MetricGauge
	}
	return other, true
}

// isRate reports whether a value in the unit is a rate, which no counter is.
func isRate(u gpu.Unit) bool {
	switch u {
	case BytesPerSecond, KilobytesPerSecond, MegabytesPerSecond, MilliwattsPerSecond:
		return true
	default:
		return false
	}
}
