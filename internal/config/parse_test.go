package config

import (
	"errors"
	"os"
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
		Metrics: Metrics{File: "/etc/dcgm-exporter/default-counters.csv", Vocabulary: catalog.Classic, Compatibility: CompatibilityOff, Health: true, Accounting: true, MaxSeries: 100000},
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
	"collectors":                           "/my.csv",
	"config-file":                          "/c.yaml",
	"configmap-data":                       "ns:name",
	"vocabulary":                           "both",
	"compatibility":                        "strict",
	"collect-interval":                     "1500",
	"health-ignore":                        "DCGM_FR_PCI_REPLAY_RATE,DCGM_FR_CORRUPT_INFOROM",
	"collect-hang-limit":                   "90s",
	"xid-kernel-log":                       "/dev/kmsg",
	"xid-count-window-size":                "1m",
	"clock-events-count-window-size":       "0x10",
	"source":                               "nvml",
	"remote-hostengine-info":               "[::1]:5555",
	"fallback":                             "none",
	"devices":                              "g:0,2-4+i",
	"switch-devices":                       "i:7",
	"cpu-devices":                          "g",
	"gpu-bind-unbind-poll-interval":        "3s",
	"watch-max-keep-age":                   "1m",
	"watch-max-keep-samples":               "5",
	"dcgm-log-level":                       "debug",
	"sim-node":                             "t4",
	"sim-seed":                             "18446744073709551615",
	"sim-scenario":                         "/faults.yaml",
	"hostname-label":                       "Hostname",
	"owner-labels":                         "info",
	"NODE_NAME":                            "node-1",
	"kubernetes-gpu-id-type":               "device-name",
	"KUBECONFIG":                           "/etc/kubeconfig",
	"kubernetes-pod-label-allowlist-regex": "^app$, team",
	"kubernetes-pod-label-limit":           "8",
	"max-series":                           "2000",
	"kubernetes-pod-log-directory":         "/logs",
	"nvidia-resource-names":                "nvidia.com/a100,nvidia.com/a10",
	"pod-resources-kubelet-socket":         "/k.sock",
	"hpc-job-mapping-dir":                  "/jobs",
	"container-runtime-socket":             "/c.sock",
	"container-label-allowlist-regex":      "^com\\.docker, team",
	"address":                              "127.0.0.1:9401",
	"web-config-file":                      "/web.yaml",
	"web-read-timeout":                     "0",
	"web-write-timeout":                    "1m",
	"web-max-requests":                     "7",
	"log-format":                           "json",
	"dump-directory":                       "/dumps",
	"dump-retention":                       "36h",
}

// example returns a value of an option other than its default, and the flags of the settings that it needs.
func example(o *option) (value string, with []string) {
	if strings.HasPrefix(o.name, "sim-") && !o.isBool {
		with = []string{"--source=sim"}
	}
	if o.needs != "" {
		other := (&parser{options: table(&Config{})}).lookup(o.needs)
		value, with = example(other)
		with = append(with, "--"+other.name+"="+value)
	}
	if o.isBool {
		return strconv.FormatBool(o.def != "true"), with
	}
	return examples[o.id()], with
}

// TestSpellings checks that every option can be set by its flag, by each alias and by its variable. Flags have one
// dash or two, and the value is attached or separate. All spellings give the same Config, which differs from the
// default.
func TestSpellings(t *testing.T) {
	files := map[string]string{"/c.yaml": "version: 1"}
	ignore := cmpopts.IgnoreFields(Config{}, "Notices") // notices contain the spelling
	for _, o := range table(&Config{}) {
		t.Run(o.id(), func(t *testing.T) {
			value, with := example(&o)
			env := o.variables()[0]
			byEnv := mustParse(t, world{env: map[string]string{env: value}, files: files}, with...)
			if cmp.Equal(mustParse(t, world{files: files}, with...), byEnv, ignore) {
				t.Fatalf("%s=%s leaves the Config unchanged, want a change", env, value)
			}
			if o.name == "" {
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
			for _, env := range o.variables()[1:] {
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
		{"flag set to its default over file", nil, []string{"--config-file=/c.yaml", "-c=30000"}, interval, 30 * time.Second},
		{"empty variable", map[string]string{"DCGM_EXPORTER_INTERVAL": ""}, nil, interval, 30 * time.Second},
		{"bad variable below a flag", map[string]string{"DCGM_EXPORTER_INTERVAL": "soon"}, []string{"-c=1000"}, interval, time.Second},
		{"last flag", nil, []string{"-c=1000", "--collect-interval=2000"}, interval, 2 * time.Second},
		{"repeated list", nil, []string{"--nvidia-resource-names=a, b", "--nvidia-resource-names", "c,"}, names, "a b c"},
		{"list over variable", map[string]string{"NVIDIA_RESOURCE_NAMES": "x,y"}, []string{"--nvidia-resource-names=a"}, names, "a"},
		{"named file", nil, []string{"-f=/etc/dcgm-exporter/default-counters.csv"}, func(c *Config) any { return c.Metrics.FileNamed }, true},
		{"file named by the YAML file", nil, []string{"--config-file=/c.yaml"}, func(c *Config) any { return c.Metrics.FileNamed }, true},
		{"empty address of the engine", map[string]string{"DCGM_REMOTE_HOSTENGINE_INFO": "host"}, []string{"-r", ""}, func(c *Config) any { return c.Source.Remote.IsEmbedded() }, true},
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
		{[]string{"--kubernetes", "1"}, `unexpected argument "1": all settings are flags (see --help)`},
		{[]string{"--kubernetes", "true", "false"}, `unexpected argument "false": all settings are flags (see --help)`},
		{[]string{"serve"}, `unexpected argument "serve": all settings are flags (see --help)`},
		{[]string{"--kubernetes=maybe"}, `--kubernetes "maybe": expected true or false`},
		{[]string{"--source=cuda"}, `--source "cuda": expected auto, dcgm, nvml or sim`},
		{[]string{"--vocabulary=Classic"}, `--vocabulary "Classic": expected classic, current or both`},
		{[]string{"--owner-labels=info", "--compatibility=strict"}, `--owner-labels "info" cannot be combined with --compatibility=strict: expected series or copies`},
		{[]string{"-c=soon"}, `--collect-interval "soon": expected ` + millis},
		{[]string{"-c=9223372036854775807"}, `--collect-interval "9223372036854775807": too long; expected ` + millis},
		{[]string{"--collect-hang-limit=30"}, `--collect-hang-limit "30": expected a duration such as 30s, above zero`},
		{[]string{"--web-write-timeout=soon"}, `--web-write-timeout "soon": expected a duration such as 30s (0: no limit)`},
		{[]string{"--web-max-requests=many"}, `--web-max-requests "many": expected a number, 0 or more`},
		{[]string{"--source=sim", "--sim-seed=x"}, `--sim-seed "x": expected a number, 0 or more`},
		{[]string{"--enable-dcgm-log", "--dcgm-log-level=loud"}, `--dcgm-log-level "loud": expected NONE, FATAL, ERROR, WARN, INFO, DEBUG or VERB`},
		{[]string{"-m=name"}, `--configmap-data "name": expected NAMESPACE:NAME or none`},
		{[]string{"-m=a:b:c"}, `--configmap-data "a:b:c": expected NAMESPACE:NAME or none`},
		{[]string{"-a=9400"}, `--address "9400": expected [HOST]:PORT, an IPv6 host in brackets, such as :9400 or [::1]:9400`},
		{[]string{"-a=unix:///run/x.sock"}, `--address "unix:///run/x.sock": cannot listen on "unix://", only on TCP; systemd can pass other sockets (--web-systemd-socket); expected [HOST]:PORT, an IPv6 host in brackets, such as :9400 or [::1]:9400`},
		{[]string{"-a=:99999"}, `--address ":99999": "99999" is not a port; expected [HOST]:PORT, an IPv6 host in brackets, such as :9400 or [::1]:9400`},
		{[]string{"-d=f+g"}, `--devices "f+g": "f" cannot be combined with "g" or "i"; expected ` + selectors},
		{[]string{"-d=f+c"}, `--devices "f+c": "c" is not f, g or i; expected ` + selectors},
		{[]string{"-s=f:1"}, `--switch-devices "f:1": "f" takes no IDs; expected ` + selectors},
		{[]string{"-p=g:4-2"}, `--cpu-devices "g:4-2": the range 4-2 runs backwards; expected ` + selectors},
		{[]string{"-r=::1"}, `--remote-hostengine-info "::1": write an IPv6 address in brackets, as in [::1]:5555; expected ` + remotes},
		{[]string{"--source=x", "--debug=y"}, "--source \"x\": expected auto, dcgm, nvml or sim\n--debug \"y\": expected true or false"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			_, err := world{}.parse(tt.args...)
			wantError(t, err, tt.want)
		})
	}
}

// TestOdd checks that settings accepted by dcgm-exporter are accepted. Each case has the value that is used and the
// log lines. Settings that are not listed here are not rejected.
func TestOdd(t *testing.T) {
	const pods, millis = "--kubernetes-pod-label-allowlist-regex", "a number of milliseconds or a duration such as 30s"
	names := func(c *Config) any { return strings.Join(c.Kubernetes.PodLabelAllowed, " ") }
	interval := func(c *Config) any { return c.Collection.Interval }
	tests := []struct {
		name string
		env  map[string]string
		args []string
		get  func(*Config) any
		want any
		says []string
	}{
		{"counters file and ConfigMap", nil, []string{"-f=/x.csv", "-m", "a:b"},
			func(c *Config) any { return c.Metrics.ConfigMap }, ConfigMapName{"a", "b"}, []string{"--collectors has no effect together with --configmap-data."}},
		{"counters file and ConfigMap, from environment variables", map[string]string{"DCGM_EXPORTER_COLLECTORS": "/x.csv", "DCGM_EXPORTER_CONFIGMAP_DATA": "a:b"}, nil,
			func(c *Config) any { return c.Metrics.ConfigMap }, ConfigMapName{"a", "b"}, []string{"DCGM_EXPORTER_COLLECTORS has no effect together with DCGM_EXPORTER_CONFIGMAP_DATA."}},
		{"no ConfigMap", nil, []string{"-f=/x.csv", "-m", "none"},
			func(c *Config) any { return c.Metrics.ConfigMap == (ConfigMapName{}) && c.Metrics.File == "/x.csv" }, true, nil},
		{"systemd and an address", nil, []string{"--web-systemd-socket", "-a=:1"},
			func(c *Config) any { return c.Web.SystemdSocket }, true, []string{"--address has no effect together with --web-systemd-socket."}},
		{"strict has both spellings of the host label", nil, []string{"--compatibility=strict"},
			func(c *Config) any { return c.Labels.Hostname }, HostLabelBoth, nil},
		{"strict with a chosen spelling", nil, []string{"--compatibility=strict", "--hostname-label=Hostname"},
			func(c *Config) any { return c.Labels.Hostname }, HostLabelUpper, nil},
		{"a spelling for a host label that is left out", nil, []string{"-n", "--hostname-label=both"},
			func(c *Config) any { return c.Labels.NoHostname }, true, []string{"--hostname-label has no effect together with --no-hostname."}},
		{"copies with owner-labels=info", nil, []string{"--owner-labels=info", "--kubernetes-virtual-gpus"},
			func(c *Config) any { return c.Kubernetes.VirtualGPUs }, false, []string{"--kubernetes-virtual-gpus has no effect together with --owner-labels."}},
		{"owner-labels=info without accounting", map[string]string{"DCGM_EXPORTER_OWNER_LABELS": "info"}, []string{"--enable-accounting-metrics=false"},
			func(c *Config) any { return c.Labels.Owners }, OwnersOnSeries, []string{"DCGM_EXPORTER_OWNER_LABELS=info has no effect without --enable-accounting-metrics."}},
		{"--source=sim with a host engine", map[string]string{"DCGM_REMOTE_HOSTENGINE_INFO": "host"}, []string{"--source=sim"},
			func(c *Config) any { return c.Source.Remote.IsEmbedded() }, true, []string{"DCGM_REMOTE_HOSTENGINE_INFO has no effect with --source=sim, which needs no host engine."}},
		{"--source=nvml with a host engine", nil, []string{"--source=nvml", "-r=host"},
			func(c *Config) any { return c.Source.Remote.IsEmbedded() }, true, []string{"--remote-hostengine-info has no effect with --source=nvml, which needs no host engine."}},
		{"simulated node without --source=sim", nil, []string{"--sim-node=t4"},
			func(c *Config) any { return c.Source.Kind }, SourceAuto, []string{"--sim-node has no effect with --source=auto: it needs --source=sim."}},
		{"default seed without --source=sim", map[string]string{"DCGM_EXPORTER_SIM_SEED": "1"}, []string{"--source=nvml"},
			func(c *Config) any { return c.Source.Kind }, SourceNVML, []string{"DCGM_EXPORTER_SIM_SEED has no effect with --source=nvml: it needs --source=sim."}},
		{"windows of 0", nil, []string{"-x", "0", "--clock-events-count-window-size=0"},
			func(c *Config) any { return c.Collection.XIDWindow + c.Collection.ClockEventWindow }, time.Duration(0), nil},
		{"a window below zero", nil, []string{"-x=-9223372036854775808"},
			func(c *Config) any { return c.Collection.XIDWindow }, time.Duration(0),
			[]string{`--xid-count-window-size "-9223372036854775808": negative value; using 0, nothing is counted.`}},
		{"an interval of 0", nil, []string{"-c", "0"},
			func(c *Config) any { return c.Collection.Interval }, 30 * time.Second,
			[]string{`--collect-interval "0": expected ` + millis + `, above zero; using the default "30000".`}},
		{"an interval below zero", map[string]string{"DCGM_EXPORTER_INTERVAL": "-1"}, nil,
			func(c *Config) any { return c.Collection.Interval }, 30 * time.Second,
			[]string{`DCGM_EXPORTER_INTERVAL "-1": expected ` + millis + `, above zero; using the default "30000".`}},
		{"requests below zero", nil, []string{"--max-concurrent-scrapes=-1"},
			func(c *Config) any { return c.Web.MaxRequests }, 40,
			[]string{`--web-max-requests "-1": expected a number, 0 or more; using the default "40".`}},
		{"a time limit below zero", nil, []string{"--web-write-timeout=-1s"},
			func(c *Config) any { return c.Web.WriteTimeout }, time.Duration(0),
			[]string{`--web-write-timeout "-1s": negative value; using 0, no limit.`}},
		{"a value that looks like a flag", nil, []string{"-f", "--kubernetes", "-k"},
			func(c *Config) any { return c.Metrics.File == "--kubernetes" && c.Kubernetes.Enabled }, true, nil},
		{"an empty path", nil, []string{"-f", ""},
			func(c *Config) any { return c.Metrics.File == DefaultCountersFile && !c.Metrics.FileNamed }, true,
			[]string{`--collectors "": expected a path; using the default "/etc/dcgm-exporter/default-counters.csv".`}},
		{"an empty number", nil, []string{"-x", ""},
			func(c *Config) any { return c.Collection.XIDWindow }, 5 * time.Minute,
			[]string{`--xid-count-window-size "": expected ` + millis + ` (0: nothing is counted); using the default "300000".`}},
		{"an empty switch", nil, []string{"-k="},
			func(c *Config) any { return c.Kubernetes.Enabled }, false, []string{`--kubernetes "": expected true or false; using the default "false".`}},
		{"an empty bind poll interval", nil, []string{"--gpu-bind-unbind-poll-interval="},
			func(c *Config) any { return c.Ignored.BindingInterval }, time.Second,
			[]string{`--gpu-bind-unbind-poll-interval "": expected a duration such as 30s, above zero; the setting has no effect: GPUs that come and go are always followed.`}},
		{"an odd bind poll interval", map[string]string{"DCGM_EXPORTER_GPU_BIND_UNBIND_POLL_INTERVAL": "often"}, []string{"--enable-gpu-bind-unbind-watch"},
			func(c *Config) any { return c.Ignored.BindingInterval }, time.Second,
			[]string{`DCGM_EXPORTER_GPU_BIND_UNBIND_POLL_INTERVAL "often": expected a duration such as 30s, above zero; the setting has no effect: GPUs that come and go are always followed.`,
				"--enable-gpu-bind-unbind-watch has no effect: GPUs that come and go are always followed."}},
		{"an odd ID type", nil, []string{"-k", "--kubernetes-gpu-id-type=name"},
			func(c *Config) any { return c.Ignored.GPUIDType }, "uid",
			[]string{`--kubernetes-gpu-id-type "name": expected uid or device-name; the setting has no effect: every form of device ID is recognized.`}},
		{"the level of a disabled log", nil, []string{"--dcgm-log-level=loud"},
			func(c *Config) any { return c.Source.DCGMLogLevel }, "NONE",
			[]string{`--dcgm-log-level "loud": expected NONE, FATAL, ERROR, WARN, INFO, DEBUG or VERB; the setting has no effect without --enable-dcgm-log.`}},
		{"the retention of disabled dumps", nil, []string{"--dump-retention=long"},
			func(c *Config) any { return c.Dump.Retention }, 24 * time.Hour,
			[]string{`--dump-retention "long": expected a number of hours or a duration such as 30s (0: forever); the setting has no effect without --dump-enabled.`}},
		{"a retention below zero", nil, []string{"--dump-enabled", "--dump-retention=-1"},
			func(c *Config) any { return c.Dump.Retention }, time.Duration(0), []string{`--dump-retention "-1": negative value; using 0, forever.`}},
		{"a bad expression while labels are off", nil, []string{"-k", pods + "=("}, names, "",
			[]string{pods + ` "(": skipping "(": error parsing regexp: missing closing ): ` + "`(`."}},
		{"a bad expression among others", nil, []string{"-k", "--kubernetes-enable-pod-labels", pods + "=^a$,(,b"}, names, "^a$ b",
			[]string{pods + ` "^a$,(,b": skipping "(": error parsing regexp: missing closing ): ` + "`(`."}},
		{"an unknown health finding among others", nil, []string{"--health-ignore=corrupt_inforom,DCGM_FR_NVLNK_DOWN,CLOCKS_EVENT_POWER,4000"},
			func(c *Config) any { return strings.Join(c.Metrics.IgnoredHealth, " ") }, "DCGM_FR_CORRUPT_INFOROM DCGM_FR_CLOCK_THROTTLE_POWER 4000",
			[]string{`--health-ignore "corrupt_inforom,DCGM_FR_NVLNK_DOWN,CLOCKS_EVENT_POWER,4000": skipping "DCGM_FR_NVLNK_DOWN": ` +
				`unknown DCGM error code; the nearest is DCGM_FR_NVLINK_DOWN.`}},
		{"an unknown health finding without a similar one", nil, []string{"--health-ignore=quux"},
			func(c *Config) any { return len(c.Metrics.IgnoredHealth) }, 0,
			[]string{`--health-ignore "quux": skipping "quux": unknown DCGM error code; docs/verdict.md lists them.`}},
		{"a health finding in strict mode", nil, []string{"--health-ignore=XID_ERROR", "--compatibility=strict"},
			func(c *Config) any { return len(c.Metrics.IgnoredHealth) }, 1,
			[]string{`--health-ignore has no effect with --compatibility=strict.`}},
		{"a switch followed by its value", nil, []string{"-k", "true", "--debug", "False", "-f", "/x.csv"},
			func(c *Config) any { return c.Kubernetes.Enabled && !c.Log.Debug && c.Metrics.File == "/x.csv" }, true,
			[]string{"Reading -k true as --kubernetes=true: write the value of a switch after an equals sign.",
				"Reading --debug False as --debug=False: write the value of a switch after an equals sign."}},
		{"no settings", nil, nil, interval, 30 * time.Second, nil},
		{"a setting that works", nil, []string{"-c=1000", "-n"}, interval, time.Second, nil},
		{"a setting at its default", map[string]string{"KUBERNETES_VIRTUAL_GPUS": "false"}, nil, interval, 30 * time.Second, nil},
		{"seconds without a unit", nil, []string{"-c=30"}, interval, 30 * time.Millisecond, []string{
			"--collect-interval is 30ms, which costs CPU in the exporter and in the driver. A number without a unit is milliseconds: for 30 seconds, write 30s.",
		}},
		{"a short interval", nil, []string{"-c=50"}, interval, 50 * time.Millisecond, nil},
		{"a setting without its switch", nil, []string{"--dcgm-log-level=INFO"},
			func(c *Config) any { return c.Source.DCGMLogLevel }, "INFO", []string{"--dcgm-log-level has no effect without --enable-dcgm-log."}},
		{"a setting with its switch", nil, []string{"--dcgm-log-level=INFO", "--enable-dcgm-log"},
			func(c *Config) any { return c.Source.DCGMLogLevel }, "INFO", nil},
		{"a chain of switches", nil, []string{pods + "=x", "--kubernetes-enable-pod-labels"}, names, "x", []string{
			"--kubernetes-enable-pod-labels has no effect without --kubernetes.",
			pods + " has no effect without --kubernetes.",
		}},
		{"a fallback that is not used", nil, []string{"--sim-fallback", "--source=nvml"},
			func(c *Config) any { return c.Source.Kind }, SourceNVML, []string{"--sim-fallback has no effect with --source=nvml."}},
		{"settings of 4.8.4", nil, []string{"--watch-max-keep-age=0s", "--watch-max-keep-samples", "4", "--health-require-gpus"},
			func(c *Config) any { return c.Ignored.KeepSamples }, 4, []string{
				"--watch-max-keep-age has no effect: the exporter keeps every sample that it needs.",
				"--watch-max-keep-samples has no effect: the exporter keeps every sample that it needs.",
				"--health-require-gpus has no effect: GPUs that appear later are served without a restart.",
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := mustParse(t, world{env: tt.env}, tt.args...)
			if diff := cmp.Diff(tt.want, tt.get(c)); diff != "" {
				t.Errorf("differs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.says, c.Notices); diff != "" {
				t.Errorf("notices differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTexts(t *testing.T) {
	for arg, want := range map[string]Show{"--help": ShowHelp, "-h": ShowHelp, "--version": ShowVersion, "-v": ShowVersion} {
		// The rest of the command line is ignored if help is requested.
		if got := mustParse(t, world{}, "--debug", arg, "--bogus").Show; got != want {
			t.Errorf("%s: Show = %d, want %d", arg, got, want)
		}
	}
	help := Help()
	for _, o := range table(&Config{}) {
		if len(o.help) > 90 {
			t.Errorf("help of %s has %d characters, want at most 90", o.id(), len(o.help))
		}
		for _, word := range append(o.flags(), o.variables()...) {
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
		"  watchGroups:\n  - {name: g, interval: 5s, fields: [A], retention: 30s}\n  - {name: h, interval: 6s, fields: [B]}\n"
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
			t.Errorf("%s: file = %q, notices = %q; want x.csv and one notice about the argument", name, c.Metrics.File, c.Notices)
		}
	}
	if _, err := (world{}).parse("dcgm-exporter", "serve"); err == nil {
		t.Error("arguments dcgm-exporter serve: error = nil, want one")
	}
}
