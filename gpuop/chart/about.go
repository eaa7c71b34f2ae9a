package chart

// About explains a key.
type About struct {
	// Reader reads the key: a DaemonSet of the operator, the chart's templates or Helm.
	Reader string
	// Text is one or two sentences on what it does.
	Text string
}

func (t *Table) addAbout(columns []string, _ []int) error {
	t.about[columns[0]] = About{Reader: columns[1], Text: columns[2]}
	return nil
}

// About explains the key at the path, or the nearest group around it.
func (t *Table) About(path Path) (About, bool) {
	for n := len(path); n > 0; n-- {
		if a, ok := t.about[path[:n].String()]; ok {
			return a, true
		}
	}
	return About{}, false
}
