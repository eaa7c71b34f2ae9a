package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

var update = flag.Bool("update", false, "write the generated page")

// world is an environment and a file system.
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
		Metrics: Metrics{File: "/etc/dcgm-exporter/default-counters.csv", Vocabulary: VocabularyClassic},
		Collection: Collection{
			Interval: 30 * time.Second, HangLimit: 2 * time.Minute, ReleaseTimeout: 15 * time.Minute,
			XIDWindow: 5 * time.Minute, ClockEventWindow: 5 * time.Minute, BindingInterval: time.Second,
		},
		Devices:    Devices{GPUs: all, Switches: all, CPUs: all},
		Source:     Source{Kind: SourceAuto, DCGMLogLevel: "NONE", Sim: Sim{Seed: 1}},
		Labels:     Labels{Hostname: HostnameLower},
		Kubernetes: Kubernetes{GPUIDType: GPUIDTypeUID, Socket: "/var/lib/kubelet/pod-resources/kubelet.sock"},
		Web: Web{
			Address: ":9400", ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
			MaxRequests: 40, ExporterMetrics: true,
		},
		Log:  Log{Format: LogText},
		Dump: Dump{Directory: "/tmp/dcgm-exporter-debug", Retention: 24 * time.Hour, Compress: true},
	}
	if diff := cmp.Diff(want, mustParse(t, world{})); diff != "" {
		t.Errorf("defaults differ (-want +got):\n%s", diff)
	}
}

// examples holds a value other than the default for each option that is no
// switch, and what else it takes for the Config to be valid.
func examples() map[string]struct {
	value string
	with  []string
} {
	type example = struct {
		value string
		with  []string
	}
	sim := []string{"--source=sim"}
	return map[string]example{
		"collectors":                           {value: "/my.csv"},
		"config-file":                          {value: "/c.yaml"},
		"configmap-data":                       {value: "ns:name"},
		"vocabulary":                           {value: "both"},
		"collect-interval":                     {value: "1500"},
		"collect-hang-limit":                   {value: "90s"},
		"xid-kernel-log":                       {value: "/dev/kmsg"},
		"state-file":                           {value: "/var/lib/dcgm-exporter/state.json"},
		"release-timeout":                      {value: "90s"},
		"xid-count-window-size":                {value: "1m"},
		"clock-events-count-window-size":       {value: "0x10"},
		"source":                               {value: "nvml"},
		"remote-hostengine-info":               {value: "[::1]:5555"},
		"devices":                              {value: "g:0,2-4+i"},
		"switch-devices":                       {value: "i:7"},
		"cpu-devices":                          {value: "g"},
		"gpu-bind-unbind-poll-interval":        {value: "3s"},
		"dcgm-log-level":                       {value: "debug"},
		"sim-node":                             {value: "t4", with: sim},
		"sim-seed":                             {value: "18446744073709551615", with: sim},
		"sim-scenario":                         {value: "/faults.yaml", with: sim},
		"hostname-label":                       {value: "Hostname"},
		"NODE_NAME":                            {value: "node-1"},
		"kubernetes-gpu-id-type":               {value: "device-name"},
		"KUBECONFIG":                           {value: "/etc/kubeconfig"},
		"kubernetes-pod-label-allowlist-regex": {value: "^app$, team"},
		"nvidia-resource-names":                {value: "nvidia.com/a100,nvidia.com/a10"},
		"pod-resources-kubelet-socket":         {value: "/k.sock"},
		"hpc-job-mapping-dir":                  {value: "/jobs"},
		"container-runtime-socket":             {value: "/c.sock"},
		"container-label-allowlist-regex":      {value: "^com\\.docker, team"},
		"address":                              {value: "127.0.0.1:9401"},
		"web-config-file":                      {value: "/web.yaml"},
		"web-read-timeout":                     {value: "0"},
		"web-write-timeout":                    {value: "1m"},
		"web-max-requests":                     {value: "7"},
		"log-format":                           {value: "json"},
		"dump-directory":                       {value: "/dumps"},
		"dump-retention":                       {value: "36h"},
		// The switches that need something else.
		"web-enable-lifecycle": {with: []string{"--address=127.0.0.1:9400"}},
		"enable-pprof":         {with: []string{"--web-config-file=/web.yaml"}},
	}
}

// TestSpellings holds that every option can be given by flag, by each alias,
// with one dash and two, with the value attached or apart, and by variable,
// and that all of them give the same Config, other than the default one.
func TestSpellings(t *testing.T) {
	files := map[string]string{
		"/c.yaml":   "version: 1",
		"/web.yaml": "basic_auth_users: {me: $2y$10$x}",
	}
	ignore := cmpopts.IgnoreFields(Config{}, "Notices") // they name the spelling
	for _, o := range table() {
		t.Run(o.id(), func(t *testing.T) {
			example, ok := examples()[o.id()]
			if o.isSwitch() {
				example.value = "true"
				if o.def == "true" {
					example.value = "false"
				}
			} else if !ok {
				t.Fatal("the option has no example")
			}
			byEnv := mustParse(t, world{env: map[string]string{o.env: example.value}, files: files}, example.with...)
			if cmp.Equal(mustParse(t, world{files: files}, example.with...), byEnv, ignore) {
				t.Fatalf("%s=%s changes nothing", o.env, example.value)
			}
			if o.name == "" {
				return
			}
			var spellings [][]string
			for _, name := range append([]string{o.name}, o.aliases...) {
				for _, dashes := range []string{"-", "--"} {
					spellings = append(spellings, []string{dashes + name + "=" + example.value})
					if !o.isSwitch() {
						spellings = append(spellings, []string{dashes + name, example.value})
					} else if example.value == "true" {
						spellings = append(spellings, []string{dashes + name})
					}
				}
			}
			for _, args := range spellings {
				got := mustParse(t, world{files: files}, append(args, example.with...)...)
				if diff := cmp.Diff(byEnv, got, ignore); diff != "" {
					t.Errorf("%q differs from %s=%s (-want +got):\n%s", args, o.env, example.value, diff)
				}
			}
		})
	}
}

func TestLayers(t *testing.T) {
	files := map[string]string{"/c.yaml": "version: 1\nmetrics: {file: /yaml.csv}\ncollection: {interval: 7s}\n"}
	interval := func(c *Config) any { return c.Collection.Interval }
	names := func(c *Config) any { return strings.Join(c.Kubernetes.ResourceNames, " ") }
	tests := []struct {
		name string
		env  map[string]string
		args []string
		get  func(*Config) any
		want any
	}{
		{"file over default", nil, []string{"--config-file=/c.yaml"}, interval, 7 * time.Second},
		{"variable over file", map[string]string{"DCGM_EXPORTER_INTERVAL": "8000"}, []string{"--config-file=/c.yaml"}, interval, 8 * time.Second},
		{"flag over variable and file", map[string]string{"DCGM_EXPORTER_INTERVAL": "8000"}, []string{"--config-file=/c.yaml", "-c", "9000"}, interval, 9 * time.Second},
		{"the default value is a value", nil, []string{"--config-file=/c.yaml", "-c=30000"}, interval, 30 * time.Second},
		{"empty variable", map[string]string{"DCGM_EXPORTER_INTERVAL": ""}, nil, interval, 30 * time.Second},
		{"bad variable below a flag", map[string]string{"DCGM_EXPORTER_INTERVAL": "soon"}, []string{"-c=1000"}, interval, time.Second},
		{"last flag", nil, []string{"-c=1000", "--collect-interval=2000"}, interval, 2 * time.Second},
		{"repeated list", nil, []string{"--nvidia-resource-names=a, b", "--nvidia-resource-names", "c,"}, names, "a b c"},
		{"list over variable", map[string]string{"NVIDIA_RESOURCE_NAMES": "x,y"}, []string{"--nvidia-resource-names=a"}, names, "a"},
		{"named file", nil, []string{"-f=/etc/dcgm-exporter/default-counters.csv"}, func(c *Config) any { return c.Metrics.FileNamed }, true},
		{"file named by the YAML file", nil, []string{"--config-file=/c.yaml"}, func(c *Config) any { return c.Metrics.FileNamed }, true},
		{"empty address of the engine", map[string]string{"DCGM_REMOTE_HOSTENGINE_INFO": "host"}, []string{"-r", ""}, func(c *Config) any { return c.Source.Remote }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := mustParse(t, world{env: tt.env, files: files}, tt.args...)
			if diff := cmp.Diff(tt.want, tt.get(c)); diff != "" {
				t.Errorf("differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBadCommandLine(t *testing.T) {
	const selectors = "f, g[:ids], i[:ids] or g[:ids]+i[:ids], where ids are numbers and ranges such as 0,2-4"
	const devices = selectors + ", and f or i with +c"
	const remotes = "HOST[:PORT], [IPV6]:PORT, tcp://HOST:PORT, unix:///PATH or vsock://CID:PORT"
	const millis = "a number of milliseconds or a duration such as 30s, above zero"
	tests := []struct {
		args []string
		want string
	}{
		{[]string{"--colectors=x"}, `unknown flag --colectors: did you mean --collectors? (see --help)`},
		{[]string{"--kubernets"}, `unknown flag --kubernets: did you mean --kubernetes? (see --help)`},
		{[]string{"-zzz", "x"}, `unknown flag -zzz (see --help)`},
		{[]string{"---debug"}, `unknown flag ---debug: did you mean --debug? (see --help)`},
		{[]string{"--=x"}, `unknown flag -- (see --help)`},
		{[]string{"-f"}, `-f needs a value: expected a path`},
		{[]string{"-f", "--kubernetes=false"}, `-f needs a value, found the flag --kubernetes=false: expected a path`},
		{[]string{"-f="}, `--collectors "": expected a path`},
		{[]string{"--kubernetes", "true"}, `unexpected argument "true": a switch takes its value behind an equals sign, as in --kubernetes=true`},
		{[]string{"serve"}, `unexpected argument "serve": every setting is a flag (see --help)`},
		{[]string{"--kubernetes=maybe"}, `--kubernetes "maybe": expected true or false`},
		{[]string{"--source=cuda"}, `--source "cuda": expected auto, dcgm, nvml or sim`},
		{[]string{"--vocabulary=Classic"}, `--vocabulary "Classic": expected classic, current or both`},
		{[]string{"-c=0"}, `--collect-interval "0": expected ` + millis},
		{[]string{"-c=-30000"}, `--collect-interval "-30000": expected ` + millis},
		{[]string{"-c=soon"}, `--collect-interval "soon": expected ` + millis},
		{[]string{"-c=9223372036854775807"}, `--collect-interval "9223372036854775807": too long; expected ` + millis},
		{[]string{"-x=-9223372036854775808"}, `--xid-count-window-size "-9223372036854775808": expected ` + millis},
		{[]string{"--collect-hang-limit=30"}, `--collect-hang-limit "30": expected a duration such as 30s, above zero`},
		{[]string{"--web-write-timeout=-1s"}, `--web-write-timeout "-1s": expected a duration such as 30s (0: no limit)`},
		{[]string{"--web-max-requests=-1"}, `--web-max-requests "-1": expected a number, 0 or more`},
		{[]string{"--source=sim", "--sim-seed=x"}, `--sim-seed "x": expected a number, 0 or more`},
		{[]string{"--dcgm-log-level=loud"}, `--dcgm-log-level "loud": expected NONE, FATAL, ERROR, WARN, INFO, DEBUG or VERB`},
		{[]string{"-m=name"}, `--configmap-data "name": expected NAMESPACE:NAME or none`},
		{[]string{"-m=a:b:c"}, `--configmap-data "a:b:c": expected NAMESPACE:NAME or none`},
		{[]string{"-a=9400"}, `--address "9400": expected [HOST]:PORT, an IPv6 host in brackets, such as :9400 or [::1]:9400`},
		{[]string{"-a=:99999"}, `--address ":99999": "99999" is no port; expected [HOST]:PORT, an IPv6 host in brackets, such as :9400 or [::1]:9400`},
		{[]string{"-d=f+g"}, `--devices "f+g": "f" combines with nothing but "c"; expected ` + devices},
		{[]string{"-d=g+c"}, `--devices "g+c": "c" goes with f or i: it adds the compute instances of their GPU instances; expected ` + devices},
		{[]string{"-s=f+c"}, `--switch-devices "f+c": "c" is none of f, g and i; expected ` + selectors},
		{[]string{"-s=f:1"}, `--switch-devices "f:1": "f" takes no ids; expected ` + selectors},
		{[]string{"-p=g:4-2"}, `--cpu-devices "g:4-2": the range 4-2 runs backwards; expected ` + selectors},
		{[]string{"-r=::1"}, `--remote-hostengine-info "::1": write an IPv6 address in brackets, as in [::1]:5555; expected ` + remotes},
		{[]string{"-r=http://host"}, `--remote-hostengine-info "http://host": "http" is no scheme for a host engine; expected ` + remotes},
		{[]string{"-r=host:0"}, `--remote-hostengine-info "host:0": "0" is no port; expected ` + remotes},
		{[]string{"-r=host:"}, `--remote-hostengine-info "host:": the port is missing; expected ` + remotes},
		{[]string{"-r=unix://sock"}, `--remote-hostengine-info "unix://sock": a unix address needs the socket's absolute path, as in unix:///run/dcgm.sock; expected ` + remotes},
		{[]string{"-r=vsock://host:1"}, `--remote-hostengine-info "vsock://host:1": "host" is no context id; expected ` + remotes},
		{[]string{"--kubernetes-pod-label-allowlist-regex=("}, "--kubernetes-pod-label-allowlist-regex \"(\": error parsing regexp: missing closing ): `(`; expected regular expressions separated by commas"},
		{[]string{"--source=x", "--debug=y"}, "--source \"x\": expected auto, dcgm, nvml or sim\n--debug \"y\": expected true or false"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			_, err := world{}.parse(tt.args...)
			wantError(t, err, tt.want)
		})
	}
}

func TestBadVariable(t *testing.T) {
	_, err := world{env: map[string]string{"DCGM_EXPORTER_KUBERNETES": "yes"}}.parse()
	wantError(t, err, `DCGM_EXPORTER_KUBERNETES "yes": expected true or false`)
}

func TestEngineAddresses(t *testing.T) {
	for _, s := range []string{
		"nvidia-dcgm:5555", "nvidia-dcgm", "10.0.0.1", "10.0.0.1:5555", "[::1]:5555", "[fe80::1]",
		"tcp://host:5555", "tcp://[::1]:5555", "unix:///run/dcgm.sock", "vsock://2:5555", "vsock://2:4294967295",
	} {
		if got := mustParse(t, world{}, "-r", s).Source.Remote; got != s {
			t.Errorf("-r %s gives %q", s, got)
		}
	}
	for _, s := range []string{"tcp://", ":5555", "a b", "host/x", "[::1]:x", "[host]:5555", "host:http", "a:b:c", "unix://", "vsock://2", "vsock://2:0", "tcp://host:65536"} {
		if _, err := (world{}).parse("-r", s); err == nil {
			t.Errorf("-r %s is accepted", s)
		}
	}
}

func TestTexts(t *testing.T) {
	for arg, want := range map[string]Show{"--help": ShowHelp, "-h": ShowHelp, "--version": ShowVersion, "-v": ShowVersion} {
		// The rest of the line does not matter to somebody who asks for help.
		if got := mustParse(t, world{}, "--debug", arg, "--bogus").Show; got != want {
			t.Errorf("%s shows %d, want %d", arg, got, want)
		}
	}
	help := Help()
	for _, o := range table() {
		for _, word := range append(o.flags(), o.env) {
			if !strings.Contains(help, word) {
				t.Errorf("the help lacks %s", word)
			}
		}
	}
	for line := range strings.Lines(help) {
		if len(line) > helpWidth+1 && strings.HasPrefix(line, "      ") {
			t.Errorf("a text of the help is %d wide: %s", len(line), line)
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
		t.Errorf("source %s, debug %t", c.Source.Kind, c.Log.Debug)
	}
}

func TestFlagsPage(t *testing.T) {
	page := filepath.Join("..", "..", "docs", "flags.md")
	want := Markdown()
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/flags.md is not what the table says; run with -update (-want +got):\n%s", diff)
	}
}

func TestMissingConfigFile(t *testing.T) {
	_, err := world{}.parse("--config-file=/none.yaml")
	wantError(t, err, "--config-file: open /none.yaml: file does not exist")
	if !errors.Is(err, os.ErrNotExist) {
		t.Error("the cause is lost")
	}
}
