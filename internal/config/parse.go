package config

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

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
	p := &parser{
		options:  table(c),
		config:   c,
		origins:  map[string]origin{},
		given:    map[string][]string{},
		readFile: readFile,
	}
	operands, err := p.scan(args)
	switch {
	case p.config.Show != ShowNothing:
		return p.config, nil, nil
	case err != nil:
		return nil, nil, err
	}
	p.apply(env)
	p.reportInvalid()
	p.resolveConflicts()
	if err := errors.Join(p.errs...); err != nil {
		return nil, nil, err
	}
	p.notices()
	return p.config, operands, nil
}

// A parser is the state of one Parse.
type parser struct {
	options  []option
	config   *Config
	given    map[string][]string // values on the command line by option.id
	origins  map[string]origin   // origins by option.id; settings at their default have none
	readFile func(string) ([]byte, error)
	bad      []badSetting
	warnings []string
	errs     []error
}

// A badSetting is a value that value.set rejected.
type badSetting struct {
	option *option
	origin origin
	value  string
	err    error // error of value.set
	form   string
}

// An origin says where a setting was given.
type origin struct {
	layer layer
	label string // name in messages: "--devices", "NODE_NAME", "a.yaml:3: metrics.file"
}

// A layer is a place where settings are given. Higher layers override lower ones.
type layer uint8

const (
	layerDefault layer = iota
	layerFile
	layerEnv
	layerFlag
)

// id returns the key of the option in the parser's maps.
func (o *option) id() string {
	if o.name != "" {
		return o.name
	}
	return o.env
}

// names returns the names of the flag without dashes.
func (o *option) names() []string { return strings.Fields(o.name + " " + o.alias) }

// variables returns the names of the environment variable.
func (o *option) variables() []string { return strings.Fields(o.env + " " + o.alsoEnv) }

// A recorder is a flag.Value that passes each value to a function.
type recorder struct {
	isSwitch bool
	record   func(string) error
}

func (r recorder) String() string     { return "" }
func (r recorder) Set(s string) error { return r.record(s) }
func (r recorder) IsBoolFlag() bool   { return r.isSwitch }

// errShow stops parsing at --help or --version.
var errShow = errors.New("help or version requested")

// scan records the flags of the command line and returns the operands.
func (p *parser) scan(args []string) (operands []string, err error) {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	for names, show := range map[[2]string]Show{{"help", "h"}: ShowHelp, {"version", "v"}: ShowVersion} {
		for _, name := range names {
			flags.Var(recorder{true, func(string) error {
				p.config.Show = show
				return errShow
			}}, name, "")
		}
	}
	for i := range p.options {
		o := &p.options[i]
		for _, name := range o.names() {
			flags.Var(recorder{o.isBool, func(value string) error {
				p.given[o.name] = append(p.given[o.name], value)
				return nil
			}}, name, "")
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
		// is not joined to it by "=". More flags may follow.
		if o := p.switchNamed(before); o != nil && isBoolWord(rest[0]) {
			p.given[o.name] = append(p.given[o.name], rest[0])
			p.warn("Reading %s %s as --%s=%[2]s: write the value of a switch after an equals sign.",
				before, rest[0], o.name)
		} else {
			operands = append(operands, rest[0])
		}
		args = rest[1:]
	}
}

// switchNamed returns the option if arg is a switch with dashes, else nil.
func (p *parser) switchNamed(arg string) *option {
	if !strings.HasPrefix(arg, "-") {
		return nil
	}
	if o := p.lookup(strings.TrimLeft(arg, "-")); o != nil && o.isBool {
		return o
	}
	return nil
}

// isBoolWord reports whether the argument after a switch is its value. It does not accept digits and single letters as
// strconv.ParseBool does, since these may be operands.
func isBoolWord(s string) bool { return strings.EqualFold(s, "true") || strings.EqualFold(s, "false") }

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
	if o := p.lookup(name); o != nil && !strings.HasPrefix(spelled, "---") {
		return fmt.Errorf("%s needs a value: expected %s", spelled, o.form)
	}
	var known []string
	for i := range p.options {
		known = append(known, p.options[i].name)
	}
	if near := text.Nearest(name, known); near != "" {
		return fmt.Errorf("unknown flag %s: did you mean --%s? (see --help)", spelled, near)
	}
	return fmt.Errorf("unknown flag %s (see --help)", spelled)
}

func (p *parser) warn(format string, args ...any) {
	p.warnings = append(p.warnings, fmt.Sprintf(format, args...))
}

// lookup returns the option with the given flag name or alias, or nil.
func (p *parser) lookup(name string) *option {
	i := slices.IndexFunc(p.options, func(o option) bool { return name != "" && slices.Contains(o.names(), name) })
	if i < 0 {
		return nil
	}
	return &p.options[i]
}

// apply sets every option from the highest layer that gives it.
func (p *parser) apply(env func(string) (string, bool)) {
	for i := range p.options {
		o := &p.options[i]
		values, where := p.given[o.id()], origin{layerFlag, "--" + o.name}
		for _, name := range o.variables() {
			if s, ok := env(name); ok && s != "" && values == nil {
				values, where = []string{s}, origin{layerEnv, name}
			}
		}
		switch {
		case o.isList && values != nil: // repeating the flag appends to the list
			p.set(o, o.value, strings.Join(values, ","), where)
		case values != nil: // the last one wins
			p.set(o, o.value, values[len(values)-1], where)
		case o.def != "": // tests ensure that every default is valid
			p.set(o, o.value, o.def, origin{layerDefault, "the default of --" + o.name})
		}
	}
	if p.config.Path == "" {
		return
	}
	doc, err := p.readDocument(p.config.Path)
	if err != nil {
		p.errs = append(p.errs, err)
		return
	}
	p.applyDocument(doc)
}

func (p *parser) set(o *option, v value, s string, where origin) {
	if where.layer > layerDefault {
		p.origins[o.id()] = where
	}
	if err := v.set(s); err != nil {
		p.bad = append(p.bad, badSetting{o, where, s, err, v.form})
	}
}

// reportInvalid turns each rejected value into an error or a warning. It runs after all settings are known, since a
// setting without effect may have any value. An out-of-range number in the YAML file is an error, as in NVIDIA's
// dcgm-exporter.
func (p *parser) reportInvalid() {
	for _, b := range p.bad {
		var why warning
		off := p.missing(b.option)
		switch {
		case errors.As(b.err, &why):
			p.warn("%s %q: %s.", b.origin.label, b.value, string(why))
		case b.option.unused != "":
			p.useDefault(b, "the setting has no effect: "+b.option.unused)
		case off != "":
			p.useDefault(b, "the setting has no effect without --"+off)
		case b.origin.layer > layerFile && (b.value == "" || errors.Is(b.err, errRange)):
			p.useDefault(b, fmt.Sprintf("using the default %q", b.option.def))
		default:
			p.errs = append(p.errs, badValue(b.origin.label, b.value, b.err, b.form))
		}
	}
}

// useDefault sets the option to its default and warns.
func (p *parser) useDefault(b badSetting, note string) {
	_ = b.option.set(b.option.def) // tests ensure that every default is valid
	p.warn("%s %q: expected %s; %s.", b.origin.label, b.value, b.form, note)
	delete(p.origins, b.option.id())
}

func badValue(label, s string, err error, form string) error {
	if errors.Is(err, errForm) || errors.Is(err, errRange) {
		return fmt.Errorf("%s %q: expected %s", label, s, form)
	}
	return fmt.Errorf("%s %q: %w; expected %s", label, s, err, form)
}
