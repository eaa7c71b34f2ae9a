package completion

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// Usage is the text of "completion --help".
const Usage = `Usage: dcgm-exporter completion bash|zsh|fish

Prints the script that completes subcommands, flags and their values in a shell.
The packages install it. Elsewhere:

  bash   source <(dcgm-exporter completion bash)
  zsh    dcgm-exporter completion zsh > "${fpath[1]}/_dcgm-exporter", in a new shell
  fish   dcgm-exporter completion fish | source

Exit code: 0; 2 for a shell that is not one of these.
`

// Shells returns those that Script writes for.
func Shells() []string { return []string{"bash", "zsh", "fish"} }

// A Command is the subcommand.
type Command struct{ command.Process }

// Run prints the script and returns the exit code.
func (c Command) Run() int {
	if len(c.Args) == 1 && slices.Contains([]string{"-h", "-help", "--help"}, c.Args[0]) {
		_, _ = io.WriteString(c.Out, Usage) // the reader may be gone
		return command.OK
	}
	switch {
	case len(c.Args) != 1:
		fmt.Fprintf(c.Err, "dcgm-exporter completion: expected one shell, found %d arguments; it is one of %s\n", len(c.Args), strings.Join(Shells(), ", "))
		return command.Unable
	case !slices.Contains(Shells(), c.Args[0]):
		hint := ""
		if near := text.Nearest(c.Args[0], Shells()); near != "" {
			hint = fmt.Sprintf(", did you mean %q?", near)
		}
		fmt.Fprintf(c.Err, "dcgm-exporter completion: %q is no shell that is known%s; expected %s\n", c.Args[0], hint, strings.Join(Shells(), ", "))
		return command.Unable
	}
	_, _ = io.WriteString(c.Out, Script(c.Args[0], config.Settings()))
	return command.OK
}

// Script returns the script that completes the exporter's subcommands, flags and values in one of
// Shells.
func Script(shell string, settings []config.Setting) string {
	settings = slices.DeleteFunc(slices.Clone(settings), func(s config.Setting) bool { return len(s.Flags) == 0 })
	switch shell {
	case "bash":
		return bash(settings)
	case "zsh":
		return zsh(settings)
	default:
		return fish(settings)
	}
}

func bash(settings []config.Setting) string {
	var b strings.Builder
	flags := []string{"--help", "--version"}
	var names []string
	for _, c := range command.List() {
		names = append(names, c.Name)
	}
	for _, s := range settings {
		flags = append(flags, s.Flags[0])
	}
	fmt.Fprintf(&b, `# Completion of dcgm-exporter in bash. Generated from the table of settings.
_dcgm_exporter() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
  COMPREPLY=()
  # bash takes --flag=value as three words.
  if [ "$current" = = ]; then current=; elif [ "$previous" = = ]; then previous=${COMP_WORDS[COMP_CWORD-2]}; fi
  case $previous in
`)
	fmt.Fprintf(&b, "    completion)\n      mapfile -t COMPREPLY < <(compgen -W '%s' -- \"$current\")\n      return ;;\n", strings.Join(Shells(), " "))
	for _, s := range settings {
		pattern := strings.Join(s.Flags, " | ")
		switch {
		case s.Words != nil:
			fmt.Fprintf(&b, "    %s)\n      mapfile -t COMPREPLY < <(compgen -W '%s' -- \"$current\")\n      return ;;\n", pattern, strings.Join(s.Words, " "))
		case s.Path:
			fmt.Fprintf(&b, "    %s)\n      mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n      return ;;\n", pattern)
		case !s.Switch:
			fmt.Fprintf(&b, "    %s) return ;;\n", pattern)
		}
	}
	fmt.Fprintf(&b, `  esac
  if [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W '%s' -- "$current")
  elif [ "$COMP_CWORD" = 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W '%s' -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}
complete -o filenames -F _dcgm_exporter dcgm-exporter
`, strings.Join(flags, " "), strings.Join(names, " "))
	return b.String()
}

func zsh(settings []config.Setting) string {
	var b strings.Builder
	b.WriteString("#compdef dcgm-exporter\n# Completion of dcgm-exporter in zsh. Generated from the table of settings.\nlocal -a commands\ncommands=(\n")
	for _, c := range command.List() {
		fmt.Fprintf(&b, "  '%s:%s'\n", c.Name, quoted(c.Summary))
	}
	b.WriteString(")\n_arguments \\\n  '(- *)'{-h,--help}'[print the settings]' \\\n  '(- *)'{-v,--version}'[print what the program was built from]' \\\n")
	for _, s := range settings {
		value := ""
		switch {
		case s.Switch:
		case s.Words != nil:
			value = ":value:(" + strings.Join(s.Words, " ") + ")"
		case s.Path:
			value = ":path:_files"
		default:
			value = ":value:"
		}
		flag := s.Flags[0]
		if !s.Switch {
			flag += "="
		}
		fmt.Fprintf(&b, "  '%s[%s]%s' \\\n", flag, strings.NewReplacer("[", `\[`, "]", `\]`, ":", `\:`).Replace(quoted(first(s.Help))), value)
	}
	b.WriteString("  '1:command:{_describe command commands}' \\\n  '*:file:_files'\n")
	return b.String()
}

func fish(settings []config.Setting) string {
	var b strings.Builder
	b.WriteString("# Completion of dcgm-exporter in fish. Generated from the table of settings.\n")
	for _, c := range command.List() {
		fmt.Fprintf(&b, "complete -c dcgm-exporter -n __fish_use_subcommand -f -a %s -d '%s'\n", c.Name, fishQuoted(c.Summary))
	}
	fmt.Fprintf(&b, "complete -c dcgm-exporter -n '__fish_seen_subcommand_from completion' -f -a '%s'\n", strings.Join(Shells(), " "))
	b.WriteString("complete -c dcgm-exporter -s h -l help -f -d 'Print the settings'\ncomplete -c dcgm-exporter -s v -l version -f -d 'Print what the program was built from'\n")
	for _, s := range settings {
		rest := ""
		switch {
		case s.Switch:
			rest = " -f"
		case s.Words != nil:
			rest = " -x -a '" + strings.Join(s.Words, " ") + "'"
		case s.Path:
			rest = " -r -F"
		default:
			rest = " -x"
		}
		fmt.Fprintf(&b, "complete -c dcgm-exporter -l %s%s -d '%s'\n", strings.TrimLeft(s.Flags[0], "-"), rest, fishQuoted(first(s.Help)))
	}
	return b.String()
}

// first returns the first sentence of a text.
func first(s string) string {
	if sentence, _, more := strings.Cut(s, ". "); more {
		return sentence
	}
	return strings.TrimSuffix(s, ".")
}

// quoted escapes a text for single quotes of a shell.
func quoted(s string) string { return strings.ReplaceAll(s, "'", `'\''`) }

// fishQuoted escapes a text for fish's single quotes.
func fishQuoted(s string) string { return strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) }
