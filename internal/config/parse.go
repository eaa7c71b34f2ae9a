package config

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// IsProgramName reports whether an argument repeats the name of the program, as containers often do.
func IsProgramName(arg string) bool { return path.Base(arg) == "dcgm-exporter" }

// Parse parses the settings of a run. args are the arguments without the program name. env and readFile have the
// contracts of os.LookupEnv and os.ReadFile; readFile reads the YAML file that a flag or variable names.
//
// The error has one line for each invalid setting: where it was set, its value and the expected form. Parse accepts
// every command line that NVIDIA's dcgm-exporter accepts: if settings contradict each other, one wins; out-of-range
// numbers are replaced by the default; and invalid values of settings without effect are ignored. Config.Notices
// reports each of these.
//
// An empty variable counts as unset, since manifests often leave variables empty.
func Parse(args []string, env func(string) (string, bool), readFile func(string) ([]byte, error)) (*Config, error) {
	c, operands, err := ParseOperands(args, env, readFile)
	if err == nil && len(operands) > 0 && IsProgramName(operands[0]) {
		notice := fmt.Sprintf("The argument %q has no effect: it repeats the name of the program.", operands[0])
		c.Notices = append(c.Notices, notice)
		operands = operands[1:]
	}
	if err != nil || len(operands) == 0 {
		return c, err
	}
	return nil, fmt.Errorf("unexpected argument %q: all settings are flags (see --help)", operands[0])
}

// ParseOperands is like Parse for a subcommand with operands, such as file names. It also returns the operands. A
// single "-" is an operand, and so is every argument after "--".
func ParseOperands(
	args []string, env func(string) (string, bool), readFile func(string) ([]byte, error),
) (*Config, []string, error) {
	c := &Config{}
	p := &parser{Config: c, settings: table(c)}
	for i := range p.settings {
		s := &p.settings[i]
		_ = s.set(s.Default) // tests ensure that every default is valid
		for _, name := range s.Variables() {
			if value, ok := env(name); ok && value != "" && s.layer == layerDefault {
				s.give(value, layerEnv, name)
			}
		}
	}
	operands, err := p.scan(args)
	switch {
	case c.Help || c.Version:
		return &Config{Help: c.Help, Version: c.Version}, nil, nil
	case err != nil:
		return nil, nil, err
	}
	if c.Path != "" {
		p.readFile(readFile)
	}
	p.reportInvalid()
	p.resolveConflicts()
	if err := errors.Join(p.errs...); err != nil {
		return nil, nil, err
	}
	p.noticeWithoutEffect()
	return c, operands, nil
}

// A parser is the state of one Parse.
type parser struct {
	*Config
	settings []Setting
	root     *yaml.Node // root of the YAML file; nil without a file
	errs     []error
}

// A layer is a place where settings are given. Higher layers override lower ones.
type layer uint8

const (
	layerDefault layer = iota
	layerFile
	layerEnv
	layerFlag
)

// give sets the setting to a value that was given.
func (s *Setting) give(value string, where layer, label string) {
	s.given, s.layer, s.label = value, where, label
	s.err = s.set(value)
}

// scan sets the flags of the command line and returns the operands.
func (p *parser) scan(args []string) (operands []string, err error) {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	for name, asked := range map[string]*bool{"help": &p.Help, "h": &p.Help, "version": &p.Version, "v": &p.Version} {
		flags.BoolFunc(name, "", func(string) error {
			*asked = true
			return flag.ErrHelp // stops parsing
		})
	}
	for i := range p.settings {
		s := &p.settings[i]
		declare := flags.Func
		if s.isBool {
			declare = flags.BoolFunc
		}
		for _, name := range s.names() {
			declare(name, "", func(value string) error {
				if s.isList && s.layer == layerFlag { // repeating the flag appends to the list
					value = s.given + "," + value
				}
				s.give(value, layerFlag, "--"+s.Name)
				return nil
			})
		}
	}
	for {
		if flags.Parse(args) != nil {
			return nil, p.badFlag(args, flags)
		}
		rest := flags.Args()
		if len(rest) == 0 {
			return operands, nil
		}
		before := ""
		if n := len(args) - len(rest); n > 0 {
			before = args[n-1]
		}
		if before == "--" {
			return append(operands, rest...), nil
		}
		// The flag package stops at the first argument that is not a flag: an operand, or the value of a switch that
		// is not joined to it by "=". More flags may follow. Digits and single letters may be operands.
		isBoolWord := strings.EqualFold(rest[0], "true") || strings.EqualFold(rest[0], "false")
		s := p.setting(strings.TrimLeft(before, "-"))
		if isBoolWord && strings.HasPrefix(before, "-") && s != nil && s.isBool {
			s.give(rest[0], layerFlag, "--"+s.Name)
			p.warn("Reading %s %s as --%s=%[2]s: write the value of a switch after an equals sign.",
				before, rest[0], s.Name)
		} else {
			operands = append(operands, rest[0])
		}
		args = rest[1:]
	}
}

// badFlag describes the flag at which the flag package stopped. That is the last argument it consumed, or the next one
// if that has no name.
func (p *parser) badFlag(args []string, flags *flag.FlagSet) error {
	at := len(args) - flags.NArg() - 1
	next := flags.Arg(0)
	if strings.HasPrefix(next, "---") || strings.HasPrefix(next, "--=") || strings.HasPrefix(next, "-=") {
		at++
	}
	spelled, _, _ := strings.Cut(args[at], "=")
	name := strings.TrimLeft(spelled, "-")
	if s := p.setting(name); s != nil && !strings.HasPrefix(spelled, "---") {
		return fmt.Errorf("%s needs a value: expected %s", spelled, s.form)
	}
	var known []string
	for _, s := range p.settings {
		known = append(known, s.Name)
	}
	if near := text.Nearest(name, known); near != "" {
		return fmt.Errorf("unknown flag %s: did you mean --%s? (see --help)", spelled, near)
	}
	return fmt.Errorf("unknown flag %s (see --help)", spelled)
}

func (p *parser) warn(format string, args ...any) {
	p.Notices = append(p.Notices, fmt.Sprintf(format, args...))
}

// setting returns the setting with the given flag name or alias, or nil.
func (p *parser) setting(name string) *Setting {
	for i := range p.settings {
		if slices.Contains(p.settings[i].names(), name) {
			return &p.settings[i]
		}
	}
	return nil
}

// source returns where the setting was given, or its flag if it was not.
func (s *Setting) source() string { return cmp.Or(s.label, "--"+s.Name) }

// reportInvalid turns each rejected value into an error or a warning. It runs after all settings are known, since a
// setting without effect may have any value. An out-of-range number in the YAML file is an error, as in NVIDIA's
// dcgm-exporter.
func (p *parser) reportInvalid() {
	for i := range p.settings {
		s := &p.settings[i]
		var why warning
		note, off := "", p.missing(s)
		switch {
		case s.err == nil:
			continue
		case errors.As(s.err, &why):
			p.warn("%s %q: %s.", s.label, s.given, string(why))
			continue
		case s.unused != "":
			note = "the setting has no effect: " + s.unused
		case off != "":
			note = "the setting has no effect without --" + off
		case s.layer > layerFile && (s.given == "" || errors.Is(s.err, errRange)):
			note = fmt.Sprintf("using the default %q", s.Default)
		case errors.Is(s.err, errForm), errors.Is(s.err, errRange):
			p.errs = append(p.errs, fmt.Errorf("%s %q: expected %s", s.label, s.given, s.form))
			continue
		default:
			p.errs = append(p.errs, fmt.Errorf("%s %q: %w; expected %s", s.label, s.given, s.err, s.form))
			continue
		}
		_ = s.set(s.Default) // tests ensure that every default is valid
		p.warn("%s %q: expected %s; %s.", s.label, s.given, s.form, note)
		s.layer, s.label = layerDefault, ""
	}
}
