package config

import (
	"cmp"
	"fmt"
	"strings"
)

const helpWidth = 100

// Settings returns all settings, section by section.
func Settings() []Setting { return table(&Config{}) }

// ID returns the name of the flag, or of the variable if there is no flag.
func (s *Setting) ID() string { return cmp.Or(s.Name, s.env) }

// Variables returns the names of the environment variable.
func (s *Setting) Variables() []string { return strings.Fields(s.env + " " + s.alsoEnv) }

// names returns the names of the flag without dashes.
func (s *Setting) names() []string { return strings.Fields(s.Name + " " + s.alias) }

// Flags returns the names of the flag with dashes, the long name first. It is empty if only a variable sets it.
func (s *Setting) Flags() []string {
	names := s.names()
	for i, name := range names {
		names[i] = "-" + name
		if i == 0 || strings.Contains(name, "-") { // a long name
			names[i] = "--" + name
		}
	}
	return names
}

// Expects describes the values in a sentence.
func (s *Setting) Expects() string {
	switch {
	case !s.isBool:
		return "Expects " + s.form + "."
	case s.Default == "true":
		return "On unless set to false."
	default:
		return "Off unless set."
	}
}

// NoEffect returns a sentence if the setting never has an effect, else "".
func (s *Setting) NoEffect() string {
	if s.unused == "" {
		return ""
	}
	return "No effect: " + s.unused + "."
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
		heading := strings.Join(s.Variables(), ", $")
		if s.Name != "" {
			operand := " VALUE"
			if s.isBool {
				operand = ""
			}
			heading = strings.Join(s.Flags(), ", ") + operand + "  [$" + heading + "]"
		}
		fmt.Fprintf(&b, "  %s\n", heading)
		text := s.Help + " " + s.Expects()
		if s.Default != "" && !s.isBool {
			text += " Default: " + s.Default + "."
		}
		wrap(&b, "      ", text+" "+s.NoEffect())
	}
	b.WriteString("\nInformation:\n  --help, -h\n      Show this help.\n  --version, -v\n      Show the version.\n")
	return b.String()
}

// wrap writes text in indented lines of at most helpWidth bytes.
func wrap(b *strings.Builder, indent, text string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(indent)+len(line)+len(word) > helpWidth {
			b.WriteString(indent + strings.TrimSpace(line) + "\n")
			line = ""
		}
		line += word + " "
	}
	b.WriteString(indent + strings.TrimSpace(line) + "\n")
}
