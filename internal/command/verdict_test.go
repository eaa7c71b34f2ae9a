package command_test

import (
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
)

const (
	fit   = "dcgm_exporter_gpu_verdict{gpu=\"0\",UUID=\"GPU-0\",verdict=\"ok\"} 1\n"
	watch = "dcgm_exporter_gpu_verdict{gpu=\"1\",UUID=\"GPU-1\",verdict=\"watch\",reason=\"slowed\"} 1\n"
	blind = "dcgm_exporter_gpu_verdict{gpu=\"3\",UUID=\"GPU-3\",verdict=\"unknown\",reason=\"timeout\"} 1\n"
	drain = "dcgm_exporter_gpu_verdict{gpu=\"2\",UUID=\"GPU-2\",verdict=\"drain\",reason=\"lost\"} 1\n"
)

// The exit codes are those that node-problem-detector reads as ok, not ok and unknown.
func TestVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		status     int
		page, args string
		code       int
		says       string
	}{
		"fit":                    {200, fit, "", command.OK, "1 GPU: none has the verdict watch or worse\n"},
		"most severe":            {200, fit + watch + drain, "", command.Faulty, "GPU 2: drain, lost (GPU-2)\nGPU 1: watch, slowed (GPU-1)\n"},
		"watch":                  {200, fit + watch, "", command.Faulty, "GPU 1: watch, slowed (GPU-1)\n"},
		"from drain, only watch": {200, fit + watch, "--from=drain", command.OK, "2 GPUs: none has the verdict drain or worse\n"},
		"unknown":                {200, fit + blind, "--from=replace", command.Unable, "GPU 3: unknown, timeout (GPU-3)\n"},
		"unknown and drain":      {200, blind + drain, "", command.Faulty, "GPU 2: drain, lost (GPU-2)\nGPU 3: unknown, timeout (GPU-3)\n"},
		"unknown and watch":      {200, blind + watch, "--from=drain", command.Unable, "GPU 3: unknown, timeout (GPU-3)\n"},
		"value 0":                {200, fit + strings.ReplaceAll(drain, "} 1", "} 0"), "", command.OK, "1 GPU: none has the verdict watch or worse\n"},
		"only value 0":           {200, strings.ReplaceAll(drain, "} 1", "} 0"), "", command.Unable, "add its line to the counters file"},
		"escape sequence": {200, strings.ReplaceAll(drain, "lost", "\x1b]0;a\x07\u202e"), "", command.Faulty,
			"GPU 2: drain, ?]0;a?? (GPU-2)\n"},
		"an unknown verdict":                {200, strings.ReplaceAll(watch, "watch", "burn"), "--from=replace", command.Faulty, "GPU 1: burn, slowed (GPU-1)\n"},
		"no verdict":                        {200, success + gpus, "", command.Unable, "add its line to the counters file"},
		"no data":                           {200, "dcgm_exporter_collect_success 0\n", "", command.Unable, "add its line to the counters file"},
		"HTTP error":                        {503, fit, "", command.Unable, "unknown: http://"},
		"not the text format":               {200, "{}", "", command.Unable, "text format"},
		"a web page":                        {200, "<!DOCTYPE html><html>", "", command.Unable, "is an HTML page, not metrics; check the host, port and path"},
		"not a verdict":                     {200, fit, "--from=burn", command.Unable, "expected watch, drain or replace"},
		"a verdict that is not a threshold": {200, fit, "--from=ok", command.Unable, "expected watch, drain or replace"},
		"an unknown flag":                   {200, fit, "--act", command.Unable, "-act"},
	} {
		t.Run(name, func(t *testing.T) {
			var w world
			args := append(strings.Fields(c.args), serve(t, c.status, c.page).URL+"/metrics")
			code := command.Run(t.Context(), "verdict", w.process(args...))
			said := w.Out.String() + w.Err.String()
			if code != c.code || !strings.Contains(said, c.says) || c.code != command.Unable && said != c.says {
				t.Errorf("exit code = %d, output = %q; want %d and %q", code, said, c.code, c.says)
			}
		})
	}
}
