package config

import (
	"fmt"
	"strings"
)

const helpWidth = 100

// Help returns the flags and variables of --help, one section after the other.
func Help() string {
	var b strings.Builder
	b.WriteString(`Every flag has an environment variable. Flags override variables, and variables override
--config-file. Separate the elements of a list with commas.
`)
	section := ""
	for _, o := range table() {
		if o.section != section {
			section = o.section
			fmt.Fprintf(&b, "\n%s:\n", section)
		}
		env := strings.Join(o.variables(), ", $")
		heading := env
		if o.name != "" {
			heading = strings.Join(o.flags(), ", ")
			if !o.isSwitch() {
				heading += " VALUE"
			}
			heading += "  [$" + env + "]"
		}
		fmt.Fprintf(&b, "  %s\n", heading)
		text := o.help + " " + o.expects()
		if o.def != "" && !o.isSwitch() {
			text += " Default: " + o.def + "."
		}
		if s := o.state(); s != "" {
			text += " " + s
		}
		wrap(&b, "      ", text)
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
	if o.isSwitch() {
		if o.def == "true" {
			return "On unless set to false."
		}
		return "Off unless set."
	}
	return "Expects " + o.bind(&Config{}).form + "."
}

// state returns a sentence for a setting without effect, or "".
func (o *option) state() string {
	if o.unused == "" {
		return ""
	}
	return "No effect: " + o.unused + "."
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
