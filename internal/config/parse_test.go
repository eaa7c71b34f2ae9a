package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// world is the environment and the files of a test.
type world struct {
	env   map[string]string
	files map[string]string
}

func (w world) parse(args ...string) (*Config, error) {
	return Parse(args, w.lookup, w.read)
}

func (w world) lookup(name string) (string, bool) {
	v, ok := w.env[name]
	return v, ok
}

func (w world) read(name string) ([]byte, error) {
	if s, ok := w.files[name]; ok {
		return []byte(s), nil
	}
	return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
}

func mustParse(t *testing.T, w world, args ...string) *Config {
	t.Helper()
	c, err := w.parse(args...)
	if err != nil {
		t.Fatalf("Parse(%q): %v", args, err)
	}
	return c
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %q", want)
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("error differs (-want +got):\n%s", diff)
	}
}

func TestDefaults(t *testing.T) {
	all := gpu.Selector{Flex: true}
	want := &Config{
		Metrics: Metrics{
			File: "/etc/dcgm-exporter/default-counters.csv", Vocabulary: catalog.Classic,
			Compatibility: CompatibilityOff, Health: true, Accounting: true, MaxSeries: 100000,
		},
		Collection: Collection{
			Interval: 30 * time.Second, HangLimit: 2 * time.Minute,
			XIDWindow: 5 * time.Minute, ClockEventWindow: 5 * time.Minute,
		},
		Devices: Devices{GPUs: all, Switches: all, CPUs: all},
		Source:  Source{Kind: SourceAuto, Fallback: FallbackAuto, DCGMLogLevel: "NONE", Sim: Sim{Seed: 1}},
		Labels:  Labels{Hostname: HostLabelLower, Owners: OwnersOnSeries},
		Kubernetes: Kubernetes{
			Socket: "/var/lib/kubelet/pod-resources/kubelet.sock", MaxPodLabels: 16, PodLogs: "/var/log/pods",
		},
		Web: Web{
			Address: ":9400", ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
			MaxRequests: 40, LandingPage: true, ExporterMetrics: true,
		},
		Log:  Log{Format: LogText},
		Dump: Dump{Directory: "/tmp/dcgm-exporter-debug", Retention: 24 * time.Hour, Compress: true},
	}
	want.Ignored.BindingInterval, want.Ignored.KeepAge, want.Ignored.GPUIDType = time.Second, 10*time.Minute, "uid"
	if diff := cmp.Diff(want, mustParse(t, world{})); diff != "" {
		t.Errorf("defaults differ (-want +got):\n%s", diff)
	}
}

// examples holds a value other than the default for each option that is not a switch.
var examples = map[string]string{
	"collectors": "/my.csv", "config-file": "/c.yaml", "configmap-data": "ns:name", "vocabulary": "both",
	"compatibility": "strict", "collect-interval": "1500",
	"health-ignore": "DCGM_FR_PCI_REPLAY_RATE,DCGM_FR_CORRUPT_INFOROM", "collect-hang-limit": "90s",
	"xid-kernel-log": "/dev/kmsg", "xid-count-window-size": "1m", "clock-events-count-window-size": "0x10",
	"source": "nvml", "remote-hostengine-info": "[::1]:5555", "fallback": "none", "devices": "g:0,2-4+i",
	"switch-devices": "i:7", "cpu-devices": "g", "gpu-bind-unbind-poll-interval": "3s", "watch-max-keep-age": "1m",
	"watch-max-keep-samples": "5", "dcgm-log-level": "debug", "sim-node": "t4", "sim-seed": "18446744073709551615",
	"sim-scenario": "/faults.yaml", "hostname-label": "Hostname", "owner-labels": "info", "NODE_NAME": "node-1",
	"kubernetes-gpu-id-type": "device-name", "KUBECONFIG": "/etc/kubeconfig",
	"kubernetes-pod-label-allowlist-regex": "^app$, team", "kubernetes-pod-label-limit": "8", "max-series": "2000",
	"kubernetes-pod-log-directory": "/logs", "nvidia-resource-names": "nvidia.com/a100,nvidia.com/a10",
	"pod-resources-kubelet-socket": "/k.sock", "hpc-job-mapping-dir": "/jobs", "container-runtime-socket": "/c.sock",
	"container-label-allowlist-regex": "^com\\.docker, team", "address": "127.0.0.1:9401",
	"web-config-file": "/web.yaml", "web-read-timeout": "0", "web-write-timeout": "1m", "web-max-requests": "7",
	"log-format": "json", "dump-directory": "/dumps", "dump-retention": "36h",
}

// example returns a value of an option other than its default, and the flags of the settings that it needs.
func example(o *Setting) (value string, with []string) {
	if strings.HasPrefix(o.Name, "sim-") && !o.isBool {
		with = []string{"--source=sim"}
	}
	if o.Needs != "" {
		other := (&parser{settings: table(&Config{})}).setting(o.Needs)
		value, with = example(other)
		with = append(with, "--"+other.Name+"="+value)
	}
	if o.isBool {
		return strconv.FormatBool(o.Default != "true"), with
	}
	return examples[o.ID()], with
}

// TestSpellings checks that every option can be set by its flag, by each alias and by its variable. Flags have one
// dash or two, and the value is attached or separate. All spellings give the same Config, which differs from the
// default.
func TestSpellings(t *testing.T) {
	files := map[string]string{"/c.yaml": "version: 1"}
	ignore := cmpopts.IgnoreFields(Config{}, "Notices") // notices contain the spelling
	for _, o := range table(&Config{}) {
		t.Run(o.ID(), func(t *testing.T) {
			value, with := example(&o)
			env := o.Variables()[0]
			byEnv := mustParse(t, world{env: map[string]string{env: value}, files: files}, with...)
			if cmp.Equal(mustParse(t, world{files: files}, with...), byEnv, ignore) {
				t.Fatalf("%s=%s leaves the Config unchanged, want a change", env, value)
			}
			if o.Name == "" {
				return
			}
			var spellings [][]string
			for _, name := range o.names() {
				for _, dashes := range []string{"-", "--"} {
					spellings = append(spellings, []string{dashes + name + "=" + value})
					if !o.isBool {
						spellings = append(spellings, []string{dashes + name, value})
					} else if value == "true" {
						spellings = append(spellings, []string{dashes + name})
					}
				}
			}
			for _, env := range o.Variables()[1:] {
				got := mustParse(t, world{env: map[string]string{env: value}, files: files}, with...)
				if diff := cmp.Diff(byEnv, got, ignore); diff != "" {
					t.Errorf("%s differs from %s=%s (-want +got):\n%s", env, o.env, value, diff)
				}
			}
			for _, args := range spellings {
				got := mustParse(t, world{files: files}, append(args, with...)...)
				if diff := cmp.Diff(byEnv, got, ignore); diff != "" {
					t.Errorf("%q differs from %s=%s (-want +got):\n%s", args, o.env, value, diff)
				}
			}
		})
	}
}

// A textCase is a case of a file in testdata: the name after ==, the input, and the result after >>.
type textCase struct{ name, input, want string }

func readCases(t *testing.T, file string) (cases []textCase) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(string(content), "== "), "\n== ") {
		name, part, _ := strings.Cut(part, "\n")
		input, want, _ := strings.Cut(part, ">>\n")
		cases = append(cases, textCase{name, input, strings.TrimSuffix(want, "\n")})
	}
	return cases
}

// TestCommandLines checks command lines with errors, odd ones that must be accepted because NVIDIA's exporter accepts
// them, and which of several settings wins. The input has variables ($NAME=value) and arguments, one a line. The result
// is the error, or some settings and all notices.
func TestCommandLines(t *testing.T) {
	files := map[string]string{"/c.yaml": "version: 1\nmetrics: {file: /yaml.csv}\ncollection: {interval: 7s}\n"}
	for _, tt := range readCases(t, "testdata/command-lines.txt") {
		t.Run(tt.name, func(t *testing.T) {
			w := world{env: map[string]string{}, files: files}
			var args []string
			for line := range strings.Lines(tt.input) {
				line = strings.TrimSuffix(line, "\n")
				if name, value, _ := strings.Cut(line, "="); strings.HasPrefix(name, "$") {
					w.env[name[1:]] = value
				} else {
					args = append(args, line)
				}
			}
			c, err := w.parse(args...)
			if err != nil {
				wantError(t, err, tt.want)
				return
			}
			var got []string
			for line := range strings.SplitSeq(tt.want, "\n") {
				if path, _, ok := strings.Cut(line, " = "); ok {
					section, name, _ := strings.Cut(path, ".")
					value := reflect.ValueOf(*c).FieldByName(section).FieldByName(name)
					got = append(got, fmt.Sprintf("%s = %v", path, value))
				}
			}
			if diff := cmp.Diff(tt.want, strings.Join(append(got, c.Notices...), "\n")); diff != "" {
				t.Errorf("settings and notices (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTexts(t *testing.T) {
	for arg, want := range map[string]Config{
		"--help": {Help: true}, "-h": {Help: true}, "--version": {Version: true}, "-v": {Version: true},
	} {
		// The rest of the command line is ignored if help is requested.
		if diff := cmp.Diff(&want, mustParse(t, world{}, "--debug", arg, "--bogus")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", arg, diff)
		}
	}
	help := Help()
	for _, o := range table(&Config{}) {
		if len(o.Help) > 90 {
			t.Errorf("help of %s has %d characters, want at most 90", o.ID(), len(o.Help))
		}
		for _, word := range append(o.Flags(), o.Variables()...) {
			if !strings.Contains(help, word) {
				t.Errorf("help does not contain %s, want every flag and variable", word)
			}
		}
	}
	for line := range strings.Lines(help) {
		if len(line) > helpWidth+1 && strings.HasPrefix(line, "      ") {
			t.Errorf("help line has %d characters, want at most %d: %s", len(line)-1, helpWidth, line)
		}
	}
}

func TestOperands(t *testing.T) {
	args := []string{"a.csv", "--source=sim", "-", "b.csv", "--", "--debug"}
	c, operands, err := ParseOperands(args, world{}.lookup, world{}.read)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a.csv", "-", "b.csv", "--debug"}, operands); diff != "" {
		t.Errorf("operands differ (-want +got):\n%s", diff)
	}
	if c.Source.Kind != SourceSim || c.Log.Debug {
		t.Errorf("source = %s, debug = %t; want sim, false", c.Source.Kind, c.Log.Debug)
	}
}

func TestMissingConfigFile(t *testing.T) {
	_, err := world{}.parse("--config-file=/none.yaml")
	wantError(t, err, "--config-file: open /none.yaml: file does not exist")
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error = %v, want one that wraps os.ErrNotExist", err)
	}
}

// Newer releases of NVIDIA's exporter accept retention in version 1. Any form of it must be accepted, with one
// warning.
func TestRetentionHasNoEffect(t *testing.T) {
	const file = "version: 1\ncollection:\n  interval: 10s\n  retention: {maxAge: 5m, maxSamples: 3}\n" +
		"  watchGroups:\n  - {name: g, interval: 5s, fields: [A], retention: 30s}\n" +
		"  - {name: h, interval: 6s, fields: [B]}\n"
	c := mustParse(t, world{files: map[string]string{"c.yaml": file}}, "--config-file=c.yaml")
	want := []string{"c.yaml:4: retention has no effect: the exporter keeps every sample that it needs."}
	if diff := cmp.Diff(want, c.Notices); diff != "" {
		t.Errorf("notices (-want +got):\n%s", diff)
	}
	groups := c.Collection.Groups
	if c.Collection.Interval != 10*time.Second || len(groups) != 2 || groups[0].Interval != 5*time.Second {
		t.Errorf("collection = %+v, want an interval of 10s and 2 groups, the first with 5s", c.Collection)
	}
}

// A container's command often repeats the name of the program. The flags after it must still take effect.
func TestRepeatedProgramName(t *testing.T) {
	for _, name := range []string{"dcgm-exporter", "/usr/bin/dcgm-exporter"} {
		c := mustParse(t, world{}, name, "-f", "x.csv")
		if c.Metrics.File != "x.csv" || len(c.Notices) != 1 || !strings.Contains(c.Notices[0], name) {
			t.Errorf("%s: file = %q, notices = %q; want x.csv and one notice about the argument",
				name, c.Metrics.File, c.Notices)
		}
	}
	if _, err := (world{}).parse("dcgm-exporter", "serve"); err == nil {
		t.Error("arguments dcgm-exporter serve: error = nil, want one")
	}
}
