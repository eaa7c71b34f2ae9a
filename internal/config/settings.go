package config

import "strings"

// A Setting is a row of the table of settings, for manuals and completions.
type Setting struct {
	Section   string
	Flags     []string // with their dashes, the long one first; none where only the variable sets it
	Variables []string
	Key       string   // of the YAML file; "" where it cannot set it
	Default   string   // "" for none
	Help      string   // sentences: what it does, what it expects, whether it has an effect
	Switch    bool     // it takes no value of its own
	Words     []string // the values, where they are a few words
	Path      bool     // the value is the path of a file or folder
}

// Settings returns every setting, in the order of the help.
func Settings() []Setting {
	var all []Setting
	for _, o := range table() {
		s := Setting{
			Section: o.section, Flags: o.flags(), Variables: append([]string{o.env}, o.alsoEnv...), Key: o.key,
			Default: o.def, Help: o.help + " " + o.expects(), Switch: o.isSwitch(),
		}
		if state := o.state(); state != "" {
			s.Help += " " + state
		}
		v := o.bind(&Config{})
		if w, ok := v.(interface{ choices() []string }); ok {
			s.Words = w.choices()
		}
		s.Path = strings.Contains(v.Form(), "path")
		all = append(all, s)
	}
	return all
}

func (v wordValue[T]) choices() []string {
	words := make([]string, len(v.words))
	for i, w := range v.words {
		words[i] = string(w)
	}
	return words
}
