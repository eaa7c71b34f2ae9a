package text

// LabelName returns name as a label name that Prometheus accepts: letters, digits and underscores, not starting with a
// digit. Other bytes become underscores. Several leading underscores become one, because names such as __name__ are
// reserved. Valid names are unchanged.
func LabelName(name string) string {
	name = validName(name, false)
	for len(name) > 1 && name[0] == '_' && name[1] == '_' {
		name = name[1:]
	}
	return name
}

// MetricName returns name as a metric name that Prometheus accepts: letters, digits, underscores and colons, not
// starting with a digit. Other bytes become underscores.
func MetricName(name string) string { return validName(name, true) }

func validName(name string, colons bool) string {
	for i := 0; i < len(name); i++ {
		if !nameByte(name[i], i == 0, colons) {
			return repairName(name, colons)
		}
	}
	if name == "" {
		return "_"
	}
	return name
}

func repairName(name string, colons bool) string {
	fixed := make([]byte, 0, len(name)+1)
	if name[0] >= '0' && name[0] <= '9' {
		fixed = append(fixed, '_')
	}
	for i := 0; i < len(name); i++ {
		if nameByte(name[i], false, colons) {
			fixed = append(fixed, name[i])
		} else {
			fixed = append(fixed, '_')
		}
	}
	return string(fixed)
}

func nameByte(c byte, first, colons bool) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_':
		return true
	case c >= '0' && c <= '9':
		return !first
	default:
		return c == ':' && colons
	}
}
