package chart

// A Setting is one value that a file, a flag or a plan gives to the chart.
type Setting struct {
	Path Path `json:"path"`
	// Value is nil, a bool, a number, a string, a list, or a map, which is empty where a file is
	// read.
	Value any `json:"value"`
	// Origin is why a plan has the value; "" for what the user gives.
	Origin string `json:"why"`
}

// Set makes a Setting of a dotted path.
func Set(path string, value any, origin string) Setting {
	return Setting{ParsePath(path), value, origin}
}
