package command_test

import (
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
)

func TestCounters(t *testing.T) {
	file := func(name string) string {
		content, _ := etc.File(name)
		return string(content)
	}
	for name, c := range map[string]struct {
		args     []string
		code     int
		out, err string
	}{
		"no name":    {nil, command.OK, file(etc.DefaultName), ""},
		"default":    {[]string{"default"}, command.OK, file(etc.DefaultName), ""},
		"health":     {[]string{"health"}, command.OK, file(etc.HealthName), ""},
		"fleet":      {[]string{"fleet"}, command.OK, file(etc.FleetName), ""},
		"misspelled": {[]string{"flet"}, command.Unable, "", `dcgm-exporter counters: unknown file "flet": did you mean "fleet"?` + "\n"},
		"two names":  {[]string{"fleet", "health"}, command.Unable, "", `dcgm-exporter counters: unknown file "fleet health": expected one of default, fleet, health` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var w world
			if code := command.Run(t.Context(), "counters", w.process(c.args...)); code != c.code {
				t.Errorf("exit code = %d, want %d", code, c.code)
			}
			if out, err := w.Out.String(), w.Err.String(); out != c.out || err != c.err {
				t.Errorf("stdout has %d bytes, want %d; stderr = %q, want %q", len(out), len(c.out), err, c.err)
			}
		})
	}
}
