package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// A Flag is a flag of a command line: one of the settings, or a subcommand's own.
type Flag struct {
	Names []string // without dashes; messages name the first
	// Form says what the value is, for messages: "true or false".
	Form string
	// Switch is set for a flag that stands without a value, which then is "true".
	Switch bool
	// Set takes the value, and refuses one of another Form.
	Set func(value string) error
}

// errStop ends the command line: what follows does not matter.
var errStop = errors.New("nothing more is read")

// Switch returns a flag that is on or off.
func Switch(name string, target *bool) Flag {
	return Flag{Names: []string{name}, Form: "true or false", Switch: true, Set: func(value string) (err error) {
		*target, err = strconv.ParseBool(value)
		return err
	}}
}

// Word returns a flag whose value is one of a few words.
func Word(name string, target *string, words ...string) Flag {
	return Flag{Names: []string{name}, Form: strings.Join(words, " or "), Set: func(value string) error {
		if *target = value; !slices.Contains(words, value) {
			return errForm
		}
		return nil
	}}
}

// Scan takes a command line apart, as Go's flag package would: it hands each flag its value, and
// returns the operands and what is to be noted. A lone "-" is an operand, and so is everything
// behind "--". It stops at the first error, since what follows an unknown flag may be its value.
func Scan(args []string, flags []Flag) (operands, notices []string, err error) {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if arg == "--" {
			return append(operands, args...), notices, nil
		}
		if len(arg) < 2 || arg[0] != '-' {
			operands = append(operands, arg)
			continue
		}
		flag, value, hasValue := find(arg, flags)
		switch {
		case flag == nil:
			return nil, nil, unknownFlag(arg, flags)
		case hasValue:
		case flag.Switch && len(args) > 0 && isBoolWord(args[0]):
			value, args = args[0], args[1:]
			notices = append(notices, fmt.Sprintf("%s %s counts as --%s=%[2]s: a switch takes its value behind an equals sign.", arg, value, flag.Names[0]))
		case flag.Switch:
			value = "true"
		case len(args) == 0:
			return nil, nil, fmt.Errorf("%s needs a value: expected %s", arg, flag.Form)
		case isFlag(args[0], flags):
			return nil, nil, fmt.Errorf("%s needs a value, found the flag %s: expected %s", arg, args[0], flag.Form)
		default:
			value, args = args[0], args[1:]
		}
		switch err := flag.Set(value); {
		case err == errStop:
			return nil, nil, err
		case err != nil:
			return nil, nil, fmt.Errorf("--%s %q: expected %s", flag.Names[0], value, flag.Form)
		}
	}
	return operands, notices, nil
}

// find returns the flag of an argument such as --name, -name or --name=value, nil for one that is
// unknown.
func find(arg string, flags []Flag) (flag *Flag, value string, hasValue bool) {
	name, value, hasValue := strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
	i := slices.IndexFunc(flags, func(f Flag) bool { return slices.Contains(f.Names, name) })
	if i < 0 {
		return nil, "", false
	}
	return &flags[i], value, hasValue
}

func isFlag(arg string, flags []Flag) bool {
	if !strings.HasPrefix(arg, "-") {
		return false
	}
	flag, _, _ := find(arg, flags)
	return flag != nil
}

// isBoolWord reports whether an argument behind a switch is its value. Digits and letters, which
// strconv.ParseBool takes too, may be operands.
func isBoolWord(s string) bool {
	s = strings.ToLower(s)
	return s == "true" || s == "false"
}

func unknownFlag(arg string, flags []Flag) error {
	names := make([]string, len(flags))
	for i := range flags {
		names[i] = flags[i].Names[0]
	}
	spelled, _, _ := strings.Cut(arg, "=")
	if near := text.Nearest(strings.TrimLeft(spelled, "-"), names); near != "" {
		return fmt.Errorf("unknown flag %s: did you mean --%s? (see --help)", spelled, near)
	}
	return fmt.Errorf("unknown flag %s (see --help)", spelled)
}
