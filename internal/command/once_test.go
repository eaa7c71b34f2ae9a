package command_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
)

func TestOnce(t *testing.T) {
	for _, tt := range []struct {
		name     string
		args     []string
		err      error
		code     int
		out, log string
	}{
		{"a page", []string{"--source=sim"}, nil, command.OK, "sim 1\n", ""},
		{"a page without data", []string{"--source=nvml"}, errors.New("open session: unavailable"), command.Faulty, "nvml 1\n", "dcgm-exporter once: open session: unavailable\n"},
		{"a notice", []string{"--disable-startup-validate"}, nil, command.OK, "auto 1\n", "--disable-startup-validate has no effect: the exporter starts without a driver and reports what is missing.\n"},
		{"a bad setting", []string{"--source=x"}, nil, command.Unable, "", "dcgm-exporter once: --source \"x\": expected auto, dcgm, nvml or sim\n"},
		{"an operand", []string{"now"}, nil, command.Unable, "", "dcgm-exporter once: unexpected argument \"now\"\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &world{}
			page := func(_ context.Context, cfg *config.Config) ([]byte, error) {
				return []byte(string(cfg.Source.Kind) + " 1\n"), tt.err
			}
			p := w.process(tt.args...)
			p.Page = page
			code := command.Run(t.Context(), "once", p)
			if code != tt.code || w.Out.String() != tt.out || w.Err.String() != tt.log {
				t.Errorf("exit code = %d, stdout = %q, stderr = %q; want %d, %q, %q", code, &w.Out, &w.Err, tt.code, tt.out, tt.log)
			}
		})
	}
}

func TestOutputThatFails(t *testing.T) {
	w := &world{}
	p := w.process()
	p.Out = full{}
	p.Page = func(context.Context, *config.Config) ([]byte, error) { return []byte("x 1\n"), nil }
	if code := command.Run(t.Context(), "once", p); code != command.Unable {
		t.Errorf("exit code = %d, want %d", code, command.Unable)
	}
}
