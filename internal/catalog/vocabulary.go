package catalog

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
