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

func TestParseSelector(t *testing.T) {
	tests := []struct {
		in   string
		want gpu.Selector
		out  string
	}{
		{"f", gpu.Selector{Flex: true}, "f"}, {"g", gpu.Selector{Major: true}, "g"},
		{"i", gpu.Selector{Minor: true}, "i"}, {"i+g", gpu.Selector{Major: true, Minor: true}, "g+i"},
		{"g:0,1", gpu.Selector{Major: true, MajorIDs: []uint32{0, 1}}, "g:0,1"},
		{"i:0,2-4", gpu.Selector{Minor: true, MinorIDs: []uint32{0, 2, 3, 4}}, "i:0,2,3,4"},
		{"g:3-5,1,4 + i:7", gpu.Selector{
			Major: true, MajorIDs: []uint32{1, 3, 4, 5}, Minor: true, MinorIDs: []uint32{7},
		}, "g:1,3,4,5+i:7"},
		{"g:4294967295", gpu.Selector{Major: true, MajorIDs: []uint32{4294967295}}, "g:4294967295"},
	}
	for _, tt := range tests {
		got, err := parseSelector(tt.in)
		if err != nil {
			t.Errorf("%q: %v", tt.in, err)
			continue
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%q differs (-want +got):\n%s", tt.in, diff)
		}
		if out := formatSelector(got); out != tt.out {
			t.Errorf("%q is written as %q, want %q", tt.in, out, tt.out)
		}
	}
}

func TestParseSelectorErrors(t *testing.T) {
	for _, in := range []string{
		"", "x:1", "g+", "g+g:1", "i:1+i:2", "g+f", "f:0", "f+c", "i+c", "f+f", "g:", "g:0,", "g:-1", "g:+1", "g:0x1",
		"g:1-2-3", "g:1:2", "g:5-4", "g:4294967296",
	} {
		if _, err := parseSelector(in); !errors.Is(err, errForm) {
			t.Errorf("%q: error = %v, want errForm", in, err)
		}
	}
	for _, in := range []string{"g:0-4294967295", "g:0-1024", "g:0-1023,0"} {
		if _, err := parseSelector(in); err == nil || err.Error() != "more than 1024 IDs" {
			t.Errorf("%q: error = %v, want more than 1024 IDs", in, err)
		}
	}
	if _, err := parseSelector("g:0-1023"); err != nil {
		t.Errorf("selector with 1024 IDs: error = %v, want nil", err)
	}
}

// FuzzSelector checks that a parsed selector can be written and parsed again without a change.
func FuzzSelector(f *testing.F) {
	for _, s := range []string{
		"f", "g", "i", "g+i", "g:0,2-4+i:7,9", " g : 1", "g:1023-1024,4294967295", "i:3,2,1", "f+c",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		first, err := parseSelector(s)
		if err != nil {
			return
		}
		text := formatSelector(first)
		second, err := parseSelector(text)
		if err != nil {
			t.Fatalf("%q is written as %q, which cannot be parsed: %v", s, text, err)
		}
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("%q changes when written as %q (-first +second):\n%s", s, text, diff)
		}
		if again := formatSelector(second); again != text {
			t.Errorf("%q is written as %q, and parsed again as %q, want the same", s, text, again)
		}
	})
}

// A setting without effect leads to a notice, and no other setting does.
func TestSettingsWithoutEffectHaveNotice(t *testing.T) {
	files := map[string]string{"/c.yaml": "version: 1"}
	for _, o := range table(&Config{}) {
		value, with := example(&o)
		c := mustParse(t, world{env: map[string]string{o.Variables()[0]: value}, files: files}, with...)
		spoken := false
		for _, n := range c.Notices {
			spoken = spoken || strings.HasPrefix(n, o.Variables()[0]+" ") || strings.HasPrefix(n, "--"+o.Name+" ")
		}
		if want := o.unused != ""; spoken != want {
			t.Errorf("%s: notice = %t, want %t: %q", o.ID(), spoken, want, c.Notices)
		}
	}
}

func TestHash(t *testing.T) {
	files := map[string]string{
		"/a.yaml": "version: 1\nmetrics: {fields: [{name: A, prometheusType: gauge}]}\n",
		"/b.yaml": "version: 1\nmetrics: {fields: [{name: A, prometheusType: counter}]}\n",
		"/c.yaml": "version: 1\ncollection: {watchGroups: [{name: g, interval: 1s, fields: [A]}]}\n",
		"/d.yaml": "version: 1\ncollection: {watchGroups: [{name: g, interval: 2s, fields: [A]}]}\n",
	}
	seen := map[uint64]string{}
	note := func(what string, h uint64) {
		if other, dup := seen[h]; dup {
			t.Errorf("%s and %s have the same hash, want different ones", what, other)
		}
		if float := float64(h); uint64(float) != h {
			t.Errorf("%s: hash = %d, want one that a float64 can represent", what, h)
		}
		seen[h] = what
	}
	w := world{files: files}
	plain := mustParse(t, w)
	note("the default", plain.Hash())
	note("a file", plain.Hash([]byte("x")))
	note("two files", plain.Hash([]byte("x"), []byte("y")))
	note("other files", plain.Hash([]byte("xy"), nil))
	note("an interval", mustParse(t, w, "-c=1000").Hash())
	for name := range files {
		c := mustParse(t, w, "--config-file="+name)
		c.Path = "" // the file's content matters, not its path
		note(name, c.Hash())
	}
	// Nodes with the same configuration may differ in these settings only.
	node := func(name string, more ...string) uint64 {
		w := world{files: files, env: map[string]string{"NODE_NAME": name}}
		return mustParse(t, w, more...).Hash([]byte("x"))
	}
	one := node("node-1", "--address=10.0.0.1:9400", "-r=10.0.0.1:5555")
	if two := node("node-2", "--address=10.0.0.2:9400", "-r=10.0.0.2:5555"); one != two {
		t.Errorf("hashes of two nodes with the same configuration = %d and %d, want equal ones", one, two)
	}
	if two := node("node-2", "--address=10.0.0.2:9400", "-r=10.0.0.2:5555", "-k=true"); one == two {
		t.Errorf("hash of a node with a different flag = %d, want a different one", two)
	}
	if a, b := plain.Hash([]byte("x")), mustParse(t, w, "-c=30000").Hash([]byte("x")); a != b {
		t.Errorf("hashes without and with a default flag = %d and %d, want equal ones", a, b)
	}
}

// reference lists the flags of NVIDIA's exporter up to 4.8.4, and NODE_NAME.
const reference = `
collectors f config-file address a web-read-timeout web-write-timeout collect-interval c kubernetes k
kubernetes-enable-pod-labels kubernetes-enable-pod-uid kubernetes-gpu-id-type kubernetes-pod-label-allowlist-regex
kubernetes-virtual-gpus kubernetes-enable-dra nvidia-resource-names pod-resources-kubelet-socket use-old-namespace o
devices d switch-devices s cpu-devices p configmap-data m remote-hostengine-info r no-hostname n fake-gpus
web-config-file web-systemd-socket xid-count-window-size x clock-events-count-window-size replace-blanks-in-model-name
rbmn debug log-format enable-dcgm-log dcgm-log-level hpc-job-mapping-dir container-labels container-runtime-socket
dump-enabled dump-directory dump-retention dump-compression disable-startup-validate enable-gpu-bind-unbind-watch
gpu-bind-unbind-poll-interval enable-pprof enable-exporter-metrics max-concurrent-scrapes watch-max-keep-age
watch-max-keep-samples health-require-gpus NODE_NAME
`

// mostOwn limits the number of settings that NVIDIA's exporter does not have.
const mostOwn = 22

func TestSettingsOfNVIDIA(t *testing.T) {
	taken := map[string]bool{}
	for _, name := range strings.Fields(reference) {
		taken[name] = false
	}
	var own []string
	for _, o := range table(&Config{}) {
		known := false
		for _, name := range append(o.names(), o.Variables()...) {
			if _, ok := taken[name]; ok {
				taken[name], known = true, true
			}
		}
		if !known {
			own = append(own, o.ID())
		}
	}
	for name, ok := range taken {
		if !ok {
			t.Errorf("setting %s of NVIDIA's exporter is missing, want every one", name)
		}
	}
	if len(own) > mostOwn {
		t.Errorf("settings that NVIDIA's exporter does not have = %d, want at most %d: %q", len(own), mostOwn, own)
	}
	t.Logf("own settings = %d: %q", len(own), own)
}
