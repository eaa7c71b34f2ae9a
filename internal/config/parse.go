package config

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// Parse reads the settings of a run: args without the program's name, env as os.LookupEnv, readFile
// as os.ReadFile. It reads the YAML file that a flag or variable names.
//
// The error names every wrong setting, a line each: its place, its value and the expected form.
// Command lines of dcgm-exporter are no error: of contradicting settings one wins, a value without
// sense gives way to the default, and a bad value of an unused setting does not matter.
// Config.Notices says so.
//
// An empty variable counts as not set: manifests often leave variables empty.
func Parse(args []string, env func(string) (string, bool), readFile func(string) ([]byte, error)) (*Config, error) {
	c, operands, err := ParseOperands(args, env, readFile)
	if err != nil || len(operands) == 0 {
		return c, err
	}
	return nil, fmt.Errorf("unexpected argument %q: every setting is a flag (see --help)", operands[0])
}

// ParseOperands is Parse for a subcommand that takes operands, such as file names, and returns them
// in the order given. A lone "-" is an operand, and so is everything behind "--".
func ParseOperands(args []string, env func(string) (string, bool), readFile func(string) ([]byte, error)) (*Config, []string, error) {
	p := &parser{options: table(), config: &Config{}, origins: map[string]origin{}, given: map[string][]string{}, readFile: readFile}
	operands, err := p.scan(args)
	switch {
	case p.config.Show != ShowNothing:
		return p.config, nil, nil
	case err != nil:
		return nil, nil, err
	}
	p.layer(env)
	p.judge()
	p.rules()
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
	given    map[string][]string // on the command line, by option.id
	origins  map[string]origin   // by option.id, without defaults
	readFile func(string) ([]byte, error)
	bad      []badSetting
	warnings []string
	errs     []error
}

// A badSetting is a refused value.
type badSetting struct {
	option *option
	origin origin
	value  string
	err    error // of value.set
	form   string
}

// An origin says where a setting was given.
type origin struct {
	layer layer
	label string // how messages name it: "--devices", "NODE_NAME", "a.yaml:3: metrics.file"
}

// A layer is a place where settings are given; the higher wins.
type layer uint8

const (
	layerDefault layer = iota
	layerFile
	layerEnv
	layerFlag
)

// id names the option in the maps of the parser.
func (o *option) id() string {
	if o.name != "" {
		return o.name
	}
	return o.env
}

func (o *option) isSwitch() bool { return o.bind(&Config{}).isBool }

// names are those of the flag, without dashes.
func (o *option) names() []string { return strings.Fields(o.name + " " + o.alias) }

// variables are the names of the option's variable.
func (o *option) variables() []string { return strings.Fields(o.env + " " + o.alsoEnv) }

// A collector is a flag that notes each value.
type collector struct {
	isSwitch bool
	note     func(string) error
}

func (c collector) String() string     { return "" }
func (c collector) Set(s string) error { return c.note(s) }
func (c collector) IsBoolFlag() bool   { return c.isSwitch }

// errShow ends the command line: a text is requested, and the rest does not matter.
var errShow = errors.New("nothing more is read")

// scan notes the flags of the command line and returns the operands.
func (p *parser) scan(args []string) (operands []string, err error) {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	for names, show := range map[[2]string]Show{{"help", "h"}: ShowHelp, {"version", "v"}: ShowVersion} {
		for _, name := range names {
			flags.Var(collector{true, func(string) error { p.config.Show = show; return errShow }}, name, "")
		}
	}
	for i := range p.options {
		o := &p.options[i]
		for _, name := range o.names() {
			flags.Var(collector{o.isSwitch(), func(value string) error { p.given[o.name] = append(p.given[o.name], value); return nil }}, name, "")
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
		// The library ends at the first operand. Flags may follow one, and the value of a switch may
		// stand apart.
		if o := p.lookup(strings.TrimLeft(before, "-")); before != "" && before[0] == '-' && o != nil && o.isSwitch() && isBoolWord(rest[0]) {
			p.given[o.name] = append(p.given[o.name], rest[0])
			p.warn("%s %s counts as --%s=%[2]s: a switch takes its value behind an equals sign.", before, rest[0], o.name)
		} else {
			operands = append(operands, rest[0])
		}
		args = rest[1:]
	}
}

// isBoolWord reports whether an argument behind a switch is its value. Digits and letters, which
// strconv.ParseBool takes too, may be operands.
func isBoolWord(s string) bool { return strings.EqualFold(s, "true") || strings.EqualFold(s, "false") }

// badFlag describes the flag at which the library ended: the last one taken off args or, where it has
// no name, the next one.
func (p *parser) badFlag(args []string, flags *flag.FlagSet) error {
	at := len(args) - flags.NArg() - 1
	if next := flags.Arg(0); strings.HasPrefix(next, "---") || strings.HasPrefix(next, "--=") || strings.HasPrefix(next, "-=") {
		at++
	}
	spelled, _, _ := strings.Cut(args[at], "=")
	name := strings.TrimLeft(spelled, "-")
	if o := p.lookup(name); o != nil && !strings.HasPrefix(spelled, "---") {
		return fmt.Errorf("%s needs a value: expected %s", spelled, o.bind(p.config).form)
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

// lookup returns the option of a flag's name or alias, nil where there is none.
func (p *parser) lookup(name string) *option {
	i := slices.IndexFunc(p.options, func(o option) bool { return name != "" && slices.Contains(o.names(), name) })
	if i < 0 {
		return nil
	}
	return &p.options[i]
}

// layer sets every option from the highest layer that gives it.
func (p *parser) layer(env func(string) (string, bool)) {
	for i := range p.options {
		o := &p.options[i]
		v := o.bind(p.config)
		values, where := p.given[o.id()], origin{layerFlag, "--" + o.name}
		for _, name := range o.variables() {
			if s, ok := env(name); ok && s != "" && values == nil {
				values, where = []string{s}, origin{layerEnv, name}
			}
		}
		switch {
		case v.isList && values != nil: // a repeated flag adds to a list
			p.set(o, v, strings.Join(values, ","), where)
		case values != nil: // of another the last one counts
			p.set(o, v, values[len(values)-1], where)
		case o.def != "": // a test holds that every default is valid
			p.set(o, v, o.def, origin{layerDefault, "the default of --" + o.name})
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

// judge makes an error or a warning of each refused value. It runs when every setting is known: an
// unused setting may have any value. Nonsense in a file is an error, as in dcgm-exporter.
func (p *parser) judge() {
	for _, b := range p.bad {
		var why usable
		off := p.missing(b.option)
		switch {
		case errors.As(b.err, &why):
			p.warn("%s %q: %s.", b.origin.label, b.value, string(why))
		case b.option.unused != "":
			p.fallBack(b, "it has no effect: "+b.option.unused)
		case off != "":
			p.fallBack(b, "it has no effect without --"+off)
		case b.origin.layer > layerFile && (b.value == "" || errors.Is(b.err, errRange)):
			p.fallBack(b, fmt.Sprintf("the default %q counts", b.option.def))
		default:
			p.errs = append(p.errs, badValue(b.origin.label, b.value, b.err, b.form))
		}
	}
}

// fallBack gives the option its default.
func (p *parser) fallBack(b badSetting, instead string) {
	_ = b.option.bind(p.config).set(b.option.def) // a test holds that every default is valid
	p.warn("%s %q: expected %s; %s.", b.origin.label, b.value, b.form, instead)
	delete(p.origins, b.option.id())
}

func badValue(label, s string, err error, form string) error {
	if errors.Is(err, errForm) || errors.Is(err, errRange) {
		return fmt.Errorf("%s %q: expected %s", label, s, form)
	}
	return fmt.Errorf("%s %q: %w; expected %s", label, s, err, form)
}
