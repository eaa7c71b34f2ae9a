package once_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command/commandtest"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command/once"
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
		{"a notice", []string{"--disable-startup-validate"}, nil, command.OK, "auto 1\n", "--disable-startup-validate has no effect: the exporter starts without a driver, and says what is missing.\n"},
		{"a bad setting", []string{"--source=x"}, nil, command.Unable, "", "dcgm-exporter once: --source \"x\": expected auto, dcgm, nvml or sim\n"},
		{"an operand", []string{"now"}, nil, command.Unable, "", "dcgm-exporter once: unexpected argument \"now\"\n"},
		{"help", []string{"-h"}, nil, command.OK, once.Usage, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &commandtest.World{}
			page := func(_ context.Context, cfg *config.Config) ([]byte, error) {
				return []byte(string(cfg.Source.Kind) + " 1\n"), tt.err
			}
			code := once.Command{Process: w.Process(tt.args...), Page: page}.Run(t.Context())
			if code != tt.code || w.Out.String() != tt.out || w.Err.String() != tt.log {
				t.Errorf("code %d, output %q, log %q", code, &w.Out, &w.Err)
			}
		})
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestOutputThatFails(t *testing.T) {
	w := &commandtest.World{}
	p := w.Process()
	p.Out = full{}
	page := func(context.Context, *config.Config) ([]byte, error) { return []byte("x 1\n"), nil }
	if code := (once.Command{Process: p, Page: page}).Run(t.Context()); code != command.Unable {
		t.Errorf("code %d", code)
	}
}
