package config

import (
	"fmt"
	"strings"
)

const helpWidth = 100

// A Setting describes a setting for the help and the documentation.
type Setting struct {
	ID        string // name of the flag, or of the variable if there is no flag
	Section   string
	Flags     []string // with dashes, the long name first; empty if only a variable sets it
	Variables []string
	Default   string
	Help      string // one sentence
	Expects   string // a sentence about the values
	Key       string // in the YAML file, or ""
	Needs     string // name of the flag without which the setting has no effect, or ""
	NoEffect  string // a sentence if the setting never has an effect, or ""
	IsSwitch  bool
}

// Settings returns all settings, section by section.
func Settings() []Setting {
	var all []Setting
	for _, o := range table(&Config{}) {
		s := Setting{
			ID: o.id(), Section: o.section, Variables: o.variables(), Default: o.def, Help: o.help,
			Expects: o.expects(), Key: o.key, Needs: o.needs, IsSwitch: o.isBool,
		}
		if o.name != "" {
			s.Flags = o.flags()
		}
		if o.unused != "" {
			s.NoEffect = "No effect: " + o.unused + "."
		}
		all = append(all, s)
	}
	return all
}

// Help returns the flags and variables of --help, one section after the other.
func Help() string {
	var b strings.Builder
	b.WriteString(`Every flag has an environment variable. Flags override variables, and variables override
--config-file. Separate the elements of a list with commas.
`)
	section := ""
	for _, s := range Settings() {
		if s.Section != section {
			section = s.Section
			fmt.Fprintf(&b, "\n%s:\n", section)
		}
		env := strings.Join(s.Variables, ", $")
		heading := env
		if s.Flags != nil {
			heading = strings.Join(s.Flags, ", ")
			if !s.IsSwitch {
				heading += " VALUE"
			}
			heading += "  [$" + env + "]"
		}
		fmt.Fprintf(&b, "  %s\n", heading)
		text := s.Help + " " + s.Expects
		if s.Default != "" && !s.IsSwitch {
			text += " Default: " + s.Default + "."
		}
		wrap(&b, "      ", text+" "+s.NoEffect)
	}
	b.WriteString("\nInformation:\n  --help, -h\n      Show this help.\n  --version, -v\n      Show the version.\n")
	return b.String()
}

// flags returns the names of the flag with dashes, the long name first.
func (o *option) flags() []string {
	names := o.names()
	for i, name := range names {
		dashes := "-"
		if i == 0 || strings.Contains(name, "-") { // a long name
			dashes = "--"
		}
		names[i] = dashes + name
	}
	return names
}

// expects describes the values of the option.
func (o *option) expects() string {
	if o.isBool {
		if o.def == "true" {
			return "On unless set to false."
		}
		return "Off unless set."
	}
	return "Expects " + o.form + "."
}

// wrap writes text in indented lines of at most helpWidth bytes.
func wrap(b *strings.Builder, indent, text string) {
	line := indent
	for word := range strings.FieldsSeq(text) {
		if len(line) > len(indent) && len(line)+1+len(word) > helpWidth {
			b.WriteString(line + "\n")
			line = indent
		}
		if len(line) > len(indent) {
			line += " "
		}
		line += word
	}
	b.WriteString(line + "\n")
}
