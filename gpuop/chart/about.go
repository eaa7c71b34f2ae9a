package chart

// About explains a key.
type About struct {
	// Reader names what reads the key: a DaemonSet of the operator, the chart's templates or Helm.
	Reader string
	// Text explains in one or two sentences what the key does.
	Text string
}

func (t *Table) addAbout(columns []string, _ []int) error {
	t.about[columns[0]] = About{Reader: columns[1], Text: columns[2]}
	return nil
}

// About returns the explanation of the key at path, or of the nearest group around it.
func (t *Table) About(path Path) (About, bool) {
	for n := len(path); n > 0; n-- {
		if a, ok := t.about[path[:n].String()]; ok {
			return a, true
		}
	}
	return About{}, false
}
