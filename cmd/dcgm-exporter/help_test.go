package main

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
)

func TestEachSubcommandIsListed(t *testing.T) {
	var listed []string
	for _, s := range command.List() {
		listed = append(listed, s.Name)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(commands())), listed); diff != "" {
		t.Errorf("-runs +listed:\n%s", diff)
	}
}

func TestHelp(t *testing.T) {
	all := map[string]func(context.Context, []string) int{"once": func(_ context.Context, args []string) int {
		if !slices.Equal(args, []string{"--help"}) {
			t.Errorf("once gets %q", args)
		}
		return 0
	}}
	for _, tt := range []struct {
		args     []string
		code     int
		out, err string // parts
	}{
		{nil, 0, "doctor", ""},
		{[]string{"--help"}, 0, "Subcommands", ""},
		{[]string{"once"}, 0, "", ""},
		{[]string{"onse"}, 2, "", `"onse" is no subcommand, did you mean "once"?`},
		{[]string{"metrics"}, 2, "", `"metrics" is no subcommand; "dcgm-exporter help" lists them`},
		{[]string{"help"}, 2, "", "no subcommand"},
	} {
		var out, err bytes.Buffer
		if code := help(t.Context(), tt.args, all, &out, &err); code != tt.code {
			t.Errorf("help %q: code %d, want %d", tt.args, code, tt.code)
		}
		if !strings.Contains(out.String(), tt.out) || !strings.Contains(err.String(), tt.err) || (tt.err == "") != (err.Len() == 0) {
			t.Errorf("help %q: %q and %q", tt.args, out.String(), err.String())
		}
	}
}
