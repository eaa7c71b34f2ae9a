package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Parse reads the settings of a run: args without the program's name, env as os.LookupEnv, readFile
// as os.ReadFile. It reads the YAML file that a flag or variable names, and the web configuration
// where a setting depends on it.
//
// The error names every setting that is wrong, a line each: where it was given, its value and what
// was expected. What dcgm-exporter takes is no error: of settings that contradict each other one
// wins, a value without sense gives way to the default, and a bad value of a setting that is not in
// use does not matter. Config.Notices says so.
//
// An empty variable counts as one that is not set, since manifests often leave them so.
func Parse(args []string, env func(string) (string, bool), readFile func(string) ([]byte, error)) (*Config, error) {
	c, operands, err := ParseOperands(args, env, readFile)
	if err != nil || len(operands) == 0 {
		return c, err
	}
	return nil, fmt.Errorf("unexpected argument %q: every setting is a flag (see --help)", operands[0])
}

// ParseOperands is Parse for a subcommand that takes operands, such as file names: what is no flag
// is returned in the order given. A lone "-" is an operand, and so is everything behind "--". The
// subcommand's own flags stand among the others.
func ParseOperands(args []string, env func(string) (string, bool), readFile func(string) ([]byte, error), own ...Flag) (*Config, []string, error) {
	p := &parser{options: table(), config: &Config{}, origins: map[string]origin{}, readFile: readFile}
	given := map[string][]string{}
	operands, warnings, err := Scan(args, append(p.flags(given), own...))
	switch {
	case p.config.Show != ShowNothing:
		return p.config, nil, nil
	case err != nil:
		return nil, nil, err
	}
	p.warnings = warnings
	p.layer(given, env)
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
	origins  map[string]origin // by option.id, for what is not a default
	readFile func(string) ([]byte, error)
	bad      []badSetting
	warnings []string
	errs     []error
}

// A badSetting is a value that could not be taken as it was given.
type badSetting struct {
	option *option
	origin origin
	value  string
	err    error // of value.Set
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

// isSwitch reports whether the flag stands without a value.
func (o *option) isSwitch() bool {
	_, ok := o.bind(&Config{}).(boolValue)
	return ok
}

// flags returns the flags of the command line, which add what is given to a map by option.id, and
// those that show something instead of running.
func (p *parser) flags(given map[string][]string) []Flag {
	show := func(s Show) func(string) error {
		return func(string) error { p.config.Show = s; return errStop }
	}
	flags := []Flag{
		{Names: []string{"help", "h"}, Switch: true, Set: show(ShowHelp)},
		{Names: []string{"version", "v"}, Switch: true, Set: show(ShowVersion)},
	}
	for i := range p.options {
		o := &p.options[i]
		if o.name == "" {
			continue
		}
		flags = append(flags, Flag{
			Names: append([]string{o.name}, o.aliases...), Form: o.bind(p.config).Form(), Switch: o.isSwitch(),
			Set: func(value string) error { given[o.name] = append(given[o.name], value); return nil },
		})
	}
	return flags
}

func (p *parser) warn(format string, args ...any) {
	p.warnings = append(p.warnings, fmt.Sprintf(format, args...))
}

// lookup returns the option of a flag's name or alias.
func (p *parser) lookup(name string) *option {
	for i := range p.options {
		if o := &p.options[i]; o.name == name || slices.Contains(o.aliases, name) {
			return o
		}
	}
	return nil
}

// layer sets every option from the highest layer that gives it.
func (p *parser) layer(given map[string][]string, env func(string) (string, bool)) {
	var doc *document
	for i := range p.options {
		o := &p.options[i]
		values, where := given[o.id()], origin{layerFlag, "--" + o.name}
		for _, name := range append([]string{o.env}, o.alsoEnv...) {
			if values != nil {
				break
			}
			if v, ok := env(name); ok && v != "" {
				values, where = []string{v}, origin{layerEnv, name}
			}
		}
		if values != nil {
			p.set(o, values, where)
		} else if o.def != "" {
			// A test holds that every default is valid.
			p.set(o, []string{o.def}, origin{layerDefault, "the default of --" + o.name})
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

// set gives the option its value. A flag that is repeated adds to a list; else its last occurrence
// counts.
func (p *parser) set(o *option, values []string, where origin) {
	v := o.bind(p.config)
	s := values[len(values)-1]
	if _, isList := v.(listValue); isList {
		s = strings.Join(values, ",")
	}
	p.setValue(o, v, s, where)
}

func (p *parser) setValue(o *option, v value, s string, where origin) {
	if where.layer > layerDefault {
		p.origins[o.id()] = where
	}
	if err := v.Set(s); err != nil {
		p.bad = append(p.bad, badSetting{o, where, s, err, v.Form()})
	}
}

// judge says of the values that could not be taken as they are what counts in their place. It comes
// when every setting is known, since a setting that is not in use may say anything. A file is
// written with care, and dcgm-exporter takes no nonsense in one.
func (p *parser) judge() {
	for _, b := range p.bad {
		var why usable
		off := p.missing(b.option)
		switch {
		case errors.As(b.err, &why):
			p.warn("%s %q: %s.", b.origin.label, b.value, string(why))
		case b.option.status.state == accepted:
			p.fallBack(b, "it has no effect: "+b.option.status.why)
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
	_ = b.option.bind(p.config).Set(b.option.def) // a test holds that every default is valid
	p.warn("%s %q: expected %s; %s.", b.origin.label, b.value, b.form, instead)
	delete(p.origins, b.option.id())
}

func badValue(label, s string, err error, form string) error {
	if errors.Is(err, errForm) || errors.Is(err, errRange) {
		return fmt.Errorf("%s %q: expected %s", label, s, form)
	}
	return fmt.Errorf("%s %q: %w; expected %s", label, s, err, form)
}
