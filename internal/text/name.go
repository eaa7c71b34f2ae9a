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
	isValid := func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c >= '0' && c <= '9' || c == ':' && colons
	}
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = "_" + name
	}
	var fixed []byte // nil while the name is valid
	for i := range len(name) {
		if !isValid(name[i]) {
			if fixed == nil {
				fixed = []byte(name)
			}
			fixed[i] = '_'
		}
	}
	if fixed != nil {
		return string(fixed)
	}
	return name
}
