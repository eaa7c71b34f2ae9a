package config

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
)

// A Setting is one setting: a flag, its environment variable and its key in the YAML file.
type Setting struct {
	Section string // of the help
	Name    string // flag without dashes; empty if there is only a variable
	alias   string // second name of the flag
	env     string // environment variable; by default DCGM_EXPORTER_ and the name
	alsoEnv string // second environment variable
	Key     string // key in the YAML file, or ""
	Default string // as a user would write it; by default value.initial
	Help    string // one sentence of at most 90 characters; tools/metrics has further ones
	unused  string // why the setting has no effect; set for settings that are accepted for compatibility
	Needs   string // switch that must be on for the setting to have an effect, or ""
	perNode bool   // the value may differ between nodes with the same configuration
	value          // reads and writes the setting

	// What Parse finds.
	layer layer
	label string // where the setting was given: "--devices", "NODE_NAME", "a.yaml:3: metrics.file"
	given string // the value as it was given
	err   error  // error of value.set, if it rejected given
}

const (
	notCounted = "nothing is counted"
	findings   = "DCGM error codes separated by commas"
	regexps    = "regular expressions separated by commas"
	resources  = "resource names separated by commas"
)

// table returns all settings in the order of the help, with the values of c.
func table(c *Config) []Setting {
	return slices.Concat(metricsSettings(c), sourceSettings(c), labelSettings(c), kubernetesSettings(c), jobSettings(c),
		webSettings(c), logSettings(c))
}

// section completes the settings of a section of the help.
func section(name string, settings []Setting) []Setting {
	for i := range settings {
		s := &settings[i]
		s.Section = name
		if s.env == "" {
			s.env = "DCGM_EXPORTER_" + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
		}
		s.Default = cmp.Or(s.Default, s.initial)
	}
	return settings
}

func metricsSettings(c *Config) []Setting {
	return section("Metrics", []Setting{
		{Name: "collectors", alias: "f", Key: "metrics.file", Default: "/etc/dcgm-exporter/default-counters.csv",
			value: filePath(&c.Metrics.File), Help: "Path of the counters file."},
		{Name: "config-file", value: freeText(&c.Path, "a path"),
			Help: "Path of a YAML file. Flags and environment variables override it."},
		{Name: "configmap-data", alias: "m", Default: "none", value: configMap(&c.Metrics.ConfigMap),
			Help: "ConfigMap NAMESPACE:NAME with the counters under the key metrics."},
		{Name: "vocabulary", value: word(&c.Metrics.Vocabulary, catalog.Classic, catalog.Current, catalog.Both),
			Help: "Metric names and units: classic (as in 4.8), current (as in 4.9) or both."},
		{Name: "compatibility", value: word(&c.Metrics.Compatibility, CompatibilityOff, CompatibilityStrict),
			Help: "off, or strict for exactly the page that NVIDIA's exporter serves."},
		{Name: "enable-health-metrics", Default: "true", value: boolean(&c.Metrics.Health),
			Help: "Export which devices and fields can be read and, if not, why."},
		{Name: "enable-accounting-metrics", Default: "true", value: boolean(&c.Metrics.Accounting),
			Help: "Export how much of each GPU every pod and job uses."},
		{Name: "health-ignore", Key: "metrics.healthIgnore",
			value: list(&c.Metrics.IgnoredHealth, findings, parseFinding),
			Help:  "DCGM error codes that the health alerts and the verdict ignore."},
		{Name: "collect-interval", alias: "c", env: "DCGM_EXPORTER_INTERVAL", Key: "collection.interval",
			Default: "30000", value: duration(&c.Collection.Interval, time.Millisecond, ""),
			Help: "Time between two collections, in milliseconds or as a duration."},
		{Name: "collect-hang-limit", Default: "2m", value: duration(&c.Collection.HangLimit, 0, ""),
			Help: "How long a driver call may hang before the process exits to be restarted."},
		{Name: "xid-count-window-size", alias: "x", Default: "300000",
			value: duration(&c.Collection.XIDWindow, time.Millisecond, notCounted),
			Help:  "Window of DCGM_EXP_XID_ERRORS_COUNT, in milliseconds or as a duration."},
		{Name: "clock-events-count-window-size", Default: "300000",
			value: duration(&c.Collection.ClockEventWindow, time.Millisecond, notCounted),
			Help:  "Window of DCGM_EXP_CLOCK_EVENTS_COUNT, in milliseconds or as a duration."},
		{Name: "xid-kernel-log", value: freeText(&c.Collection.KernelLog, "a path"),
			Help: "Path of the kernel log (/dev/kmsg) to read XIDs from instead of the driver."},
	})
}

func sourceSettings(c *Config) []Setting {
	return section("Source", []Setting{
		{Name: "source", value: word(&c.Source.Kind, SourceAuto, SourceDCGM, SourceNVML, SourceSim),
			Help: "Where values come from: DCGM, NVML or a simulated node."},
		{Name: "remote-hostengine-info", alias: "r", env: "DCGM_REMOTE_HOSTENGINE_INFO", perNode: true,
			value: engine(&c.Source.Remote),
			Help:  "Address of a running host engine. By default the exporter embeds one."},
		{Name: "fallback", value: word(&c.Source.Fallback, FallbackAuto, FallbackNVML, FallbackNone),
			Help: "What --source=auto reads while DCGM is unavailable."},
		{Name: "devices", alias: "d", env: "DCGM_EXPORTER_DEVICES_STR", value: selector(&c.Devices.GPUs),
			Help: "GPUs (g) and GPU instances (i) to watch."},
		{Name: "switch-devices", alias: "s", env: "DCGM_EXPORTER_OTHER_DEVICES_STR",
			value: selector(&c.Devices.Switches), Help: "NVSwitches (g) and NVLinks (i) to watch."},
		{Name: "cpu-devices", alias: "p", env: "DCGM_EXPORTER_CPU_DEVICES_STR", value: selector(&c.Devices.CPUs),
			Help: "Grace CPUs (g) and CPU cores (i) to watch."},
		{Name: "fake-gpus", env: "DCGM_EXPORTER_USE_FAKE_GPUS",
			unused: "GPUs are used as the engine reports them; --source=sim simulates GPUs",
			value:  boolean(&c.Ignored.FakeGPUs), Help: "Accept GPUs that were injected into DCGM for tests."},
		{Name: "enable-gpu-bind-unbind-watch", Key: "sources.dcgm.detectBindUnbind.enabled",
			unused: "GPUs that come and go are always followed", value: boolean(&c.Ignored.WatchBinding),
			Help: "Follow GPUs that are bound and unbound."},
		{Name: "gpu-bind-unbind-poll-interval", Key: "sources.dcgm.detectBindUnbind.pollInterval", Default: "1s",
			unused: "GPUs that come and go are always followed", value: duration(&c.Ignored.BindingInterval, 0, ""),
			Help: "Time between two checks for GPUs that were bound or unbound."},
		{Name: "watch-max-keep-age", Key: "sources.dcgm.watch.maxKeepAge", Default: "10m",
			unused: "the exporter keeps every sample that it needs",
			value:  duration(&c.Ignored.KeepAge, 0, "no limit"),
			Help:   "How long DCGM keeps the samples of watched fields."},
		{Name: "watch-max-keep-samples", Key: "sources.dcgm.watch.maxKeepSamples", Default: "0",
			unused: "the exporter keeps every sample that it needs", value: number(&c.Ignored.KeepSamples, 0),
			Help: "How many samples of a watched field DCGM keeps."},
		{Name: "health-require-gpus", unused: "GPUs that appear later are served without a restart",
			value: boolean(&c.Ignored.RequireGPUs),
			Help:  "Fail /health while there is no GPU, so that the process is restarted."},
		{Name: "enable-dcgm-log", value: boolean(&c.Source.DCGMLog), Help: "Write DCGM's own log to standard output."},
		{Name: "dcgm-log-level", Needs: "enable-dcgm-log", value: logLevel(&c.Source.DCGMLogLevel),
			Help: "Level of DCGM's own log."},
		{Name: "sim-fallback", value: boolean(&c.Source.Sim.Fallback),
			Help: "Let --source=auto simulate a node if there is no hardware."},
		{Name: "sim-node", value: freeText(&c.Source.Sim.Node, "the name of a node"),
			Help: "Name of the node that --source=sim simulates."},
		{Name: "sim-seed", Default: "1", value: seed(&c.Source.Sim.Seed),
			Help: "Seed of the simulation: the same seed gives the same values."},
		{Name: "sim-scenario", value: freeText(&c.Source.Sim.Scenario, "a path"),
			Help: "Path of a YAML file with the faults to simulate."},
	})
}

func labelSettings(c *Config) []Setting {
	return section("Labels", []Setting{
		{Name: "hostname-label", value: word(&c.Labels.Hostname, HostLabelLower, HostLabelUpper, HostLabelBoth),
			Help: "Spelling of the host label: hostname (since 4.8.3), Hostname (before) or both."},
		{Name: "owner-labels", value: word(&c.Labels.Owners, OwnersOnSeries, OwnersOnCopies, OwnersOnInfo),
			Help: "Which series carry pod and job labels: series, copies or info."},
		{Name: "no-hostname", alias: "n", value: boolean(&c.Labels.NoHostname), Help: "Leave out the host label."},
		{env: "NODE_NAME", perNode: true, value: freeText(&c.Labels.NodeName, "a name"),
			Help: "Kubernetes node name: the host label, and the node that API watches select."},
		{Name: "use-old-namespace", alias: "o", value: boolean(&c.Labels.OldNamespace),
			Help: "Use the label names of 1.x: uuid, pod_name, pod_namespace, container_name."},
		{Name: "replace-blanks-in-model-name", alias: "rbmn", value: boolean(&c.Labels.ReplaceBlanks),
			Help: "Replace spaces in modelName with dashes."},
	})
}

func kubernetesSettings(c *Config) []Setting {
	return section("Kubernetes", []Setting{
		{Name: "kubernetes", alias: "k", value: boolean(&c.Kubernetes.Enabled),
			Help: "Add the labels of the pod that uses a GPU."},
		{Name: "kubernetes-enable-pod-labels", Needs: "kubernetes", value: boolean(&c.Kubernetes.PodLabels),
			Help: "Add the labels of the pods themselves."},
		{Name: "kubernetes-enable-pod-uid", Needs: "kubernetes", value: boolean(&c.Kubernetes.PodUID),
			Help: "Add the UIDs of the pods."},
		{Name: "kubernetes-gpu-id-type", Needs: "kubernetes", unused: "every form of device ID is recognized",
			value: word(&c.Ignored.GPUIDType, "uid", "device-name"), Help: "Form of the device IDs of the kubelet."},
		{Name: "kubernetes-pod-label-allowlist-regex", Needs: "kubernetes-enable-pod-labels",
			value: list(&c.Kubernetes.PodLabelAllowed, regexps, parseRegexp),
			Help:  "Regular expressions of the pod labels to add. By default all are added."},
		{Name: "kubernetes-pod-label-limit", Default: "16", Needs: "kubernetes-enable-pod-labels",
			value: number(&c.Kubernetes.MaxPodLabels, 1), Help: "Maximum number of labels to add from each pod."},
		{Name: "kubernetes-pod-log-directory", Default: "/var/log/pods", Needs: "kubernetes",
			value: freeText(&c.Kubernetes.PodLogs, "a path"),
			Help:  "Directory of the pods' logs. Its names give the UIDs of static pods."},
		{Name: "kubernetes-virtual-gpus", env: "KUBERNETES_VIRTUAL_GPUS", value: boolean(&c.Kubernetes.VirtualGPUs),
			Help: "Repeat the series of a shared GPU for each replica, with the vgpu label."},
		{Name: "kubernetes-enable-dra", env: "KUBERNETES_ENABLE_DRA", Needs: "kubernetes",
			value: boolean(&c.Kubernetes.DRA), Help: "Attribute GPUs that Dynamic Resource Allocation (DRA) assigns."},
		{Name: "nvidia-resource-names", env: "NVIDIA_RESOURCE_NAMES", Needs: "kubernetes",
			value: list(&c.Kubernetes.ResourceNames, resources, anyText),
			Help:  "Additional resource names of GPUs, such as nvidia.com/a100."},
		{Name: "pod-resources-kubelet-socket", env: "DCGM_POD_RESOURCES_KUBELET_SOCKET",
			Default: "/var/lib/kubelet/pod-resources/kubelet.sock", Needs: "kubernetes",
			value: filePath(&c.Kubernetes.Socket), Help: "Path of the kubelet's PodResources socket."},
		{env: "KUBECONFIG", value: freeText(&c.Kubernetes.Kubeconfig, "paths"),
			Help: "Paths of kubeconfig files, for an exporter outside a pod."},
	})
}

func jobSettings(c *Config) []Setting {
	return section("Jobs and containers", []Setting{
		{Name: "hpc-job-mapping-dir", env: "DCGM_HPC_JOB_MAPPING_DIR", value: freeText(&c.HPC.Dir, "a path"),
			Help: "Directory with a file for each GPU that lists its jobs, one per line."},
		{Name: "container-labels", value: boolean(&c.Containers.Enabled),
			Help: "Add the labels of the Docker or Podman container that uses a GPU."},
		{Name: "container-runtime-socket", env: "DCGM_CONTAINER_RUNTIME_SOCKET", Needs: "container-labels",
			value: freeText(&c.Containers.Socket, "a path"), Help: "Path of the container runtime's socket."},
		{Name: "container-label-allowlist-regex", Needs: "container-labels",
			value: list(&c.Containers.LabelAllowed, regexps, parseRegexp),
			Help:  "Regular expressions of the container labels to add. By default none are."},
	})
}

func webSettings(c *Config) []Setting {
	return section("Web", []Setting{
		{Name: "address", alias: "a", env: "DCGM_EXPORTER_LISTEN", Default: ":9400", perNode: true,
			value: listen(&c.Web.Address), Help: "Address to listen on."},
		{Name: "web-systemd-socket", env: "DCGM_EXPORTER_SYSTEMD_SOCKET", value: boolean(&c.Web.SystemdSocket),
			Help: "Listen on the sockets that systemd passes instead of --address."},
		{Name: "web-config-file", value: freeText(&c.Web.ConfigFile, "a path"),
			Help: "Path of the exporter-toolkit file for TLS and authentication."},
		{Name: "web-read-timeout", Default: "10s", value: duration(&c.Web.ReadTimeout, 0, "no limit"),
			Help: "How long reading a request may take."},
		{Name: "web-write-timeout", Default: "30s", value: duration(&c.Web.WriteTimeout, 0, "no limit"),
			Help: "How long writing a response may take."},
		{Name: "web-max-requests", alias: "max-concurrent-scrapes", alsoEnv: "DCGM_EXPORTER_MAX_CONCURRENT_SCRAPES",
			Key: "server.maxConcurrentScrapes", Default: "40", value: number(&c.Web.MaxRequests, 0),
			Help: "Maximum number of concurrent scrapes (0: unlimited)."},
		{Name: "max-series", Default: "100000", value: number(&c.Metrics.MaxSeries, 0),
			Help: "Maximum number of device and owner series on a page (0: unlimited)."},
		{Name: "web-enable-lifecycle", value: boolean(&c.Web.Lifecycle), Help: "Serve POST /-/reload."},
		{Name: "enable-pprof", value: boolean(&c.Web.Pprof), Help: "Serve /debug/pprof/."},
		{Name: "web-landing-page", Default: "true", value: boolean(&c.Web.LandingPage),
			Help: "Serve a status page of the node at /."},
		{Name: "enable-exporter-metrics", Key: "metrics.enableExporterMetrics", Default: "true",
			value: boolean(&c.Web.ExporterMetrics), Help: "Export metrics about the exporter itself."},
	})
}

func logSettings(c *Config) []Setting {
	return section("Log and debugging", []Setting{
		{Name: "log-format", value: word(&c.Log.Format, LogText, LogJSON), Help: "Log format."},
		{Name: "debug", value: boolean(&c.Log.Debug), Help: "Log at debug level."},
		{Name: "disable-startup-validate", env: "DISABLE_STARTUP_VALIDATE",
			unused: "the exporter starts without a driver and reports what is missing",
			value:  boolean(&c.Ignored.StartupValidate), Help: "Start without checking what the exporter needs."},
		{Name: "dump-enabled", value: boolean(&c.Dump.Enabled),
			Help: "Write the page of each collection to a file of its own, for debugging."},
		{Name: "dump-directory", Default: "/tmp/dcgm-exporter-debug", Needs: "dump-enabled",
			value: filePath(&c.Dump.Directory), Help: "Directory of the dumps."},
		{Name: "dump-retention", Default: "24", Needs: "dump-enabled",
			value: duration(&c.Dump.Retention, time.Hour, "forever"),
			Help:  "How long dumps are kept, in hours or as a duration."},
		{Name: "dump-compression", Default: "true", Needs: "dump-enabled", value: boolean(&c.Dump.Compress),
			Help: "Compress the dumps with gzip."},
	})
}
