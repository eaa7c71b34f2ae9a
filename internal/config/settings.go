package config

// Variables returns the names of the environment variables that set something.
func Variables() []string {
	var names []string
	for _, o := range table() {
		names = append(append(names, o.env), o.alsoEnv...)
	}
	return names
}

func (v wordValue[T]) choices() []string {
	words := make([]string, len(v.words))
	for i, w := range v.words {
		words[i] = string(w)
	}
	return words
}
