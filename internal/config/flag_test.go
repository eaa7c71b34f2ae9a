package config_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
)

func TestScan(t *testing.T) {
	for _, tt := range []struct {
		args string
		want string // the values, and what is left
		err  string
	}{
		{"", "false none [] [] []", ""},
		{"--on --word=a --list x f.csv", "true a [x] [f.csv] []", ""},
		{"-on=false -word b -l f", "false b [f] [] []", ""},
		{"--list x --list=y - -- --on", "false none [x y] [- --on] []", ""},
		{"on word", "false none [] [on word] []", ""},
		{"--on false", "false none [] [] [--on false counts as --on=false: a switch takes its value behind an equals sign.]", ""},
		{"--list --of", "false none [--of] [] []", ""},
		{"--list --on", "", "--list needs a value, found the flag --on: expected an item"},
		{"--wrod=c", "", "unknown flag --wrod: did you mean --word? (see --help)"},
		{"-d", "", "unknown flag -d (see --help)"},
		{"--word c", "", `--word "c": expected a or b`},
		{"--word=", "", `--word "": expected a or b`},
		{"--on=perhaps", "", `--on "perhaps": expected true or false`},
		{"-l", "", "-l needs a value: expected an item"},
		{"--list=", "", `--list "": expected an item`},
	} {
		t.Run(tt.args, func(t *testing.T) {
			on, word, list := false, "none", []string{}
			operands, notices, err := config.Scan(strings.Fields(tt.args), []config.Flag{
				config.Switch("on", &on), config.Word("word", &word, "a", "b"),
				{Names: []string{"list", "l"}, Form: "an item", Set: func(value string) error {
					if list = append(list, value); value == "" {
						return errors.New("empty")
					}
					return nil
				}},
			})
			text := ""
			if err != nil {
				text = err.Error()
			}
			if diff := cmp.Diff(tt.err, text); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if got := fmt.Sprint(on, " ", word, " ", list, " ", operands, notices); err == nil && got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}
