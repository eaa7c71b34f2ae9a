package config

import "time"

// DefaultCountersFile is where the counters file lies in the image and after an installation.
const DefaultCountersFile = "/etc/dcgm-exporter/default-counters.csv"

// An option is one row of the table: one setting, wherever it can be given.
type option struct {
	section string // of the help; a row without one is in that of the row above
	name    string // the flag, without dashes; "" for a variable alone
	alias   string // another name of the flag
	env     string // the variable
	alsoEnv string // another name of the variable
	key     string // its place in the YAML file
	def     string // the default, as it would be given
	help    string // a sentence or two, without the default
	unused  string // ends the sentence "NAME has no effect: …", for a setting that is accepted for compatibility
	needs   string // the switch without which the setting does nothing
	perNode bool   // nodes that are configured alike differ in it
	bind    func(*Config) value
}

// Words of the forms of values.
const (
	notCounted = "nothing is counted"
	regexps    = "regular expressions separated by commas"
	resources  = "resource names separated by commas"
)

// table returns every setting in the order of the help. A new slice each time: nothing shared can
// change.
func table() []option {
	rows := []option{
		{section: "Metrics", name: "collectors", alias: "f", env: "DCGM_EXPORTER_COLLECTORS", key: "metrics.file", def: DefaultCountersFile, help: "Path of the counters file. Where none is named and there is none at the default path, the built-in copy is used.", bind: func(c *Config) value { return filePath(&c.Metrics.File) }},
		{name: "config-file", env: "DCGM_EXPORTER_CONFIG_FILE", help: "Path of a YAML file. Flags and variables that are given win over it.", bind: func(c *Config) value { return freeText(&c.Path, "a path") }},
		{name: "configmap-data", alias: "m", env: "DCGM_EXPORTER_CONFIGMAP_DATA", def: "none", help: "ConfigMap NAMESPACE:NAME that holds the counters under the key metrics. Wins over a counters file.", bind: func(c *Config) value { return configMap(&c.Metrics.ConfigMap) }},
		{name: "vocabulary", env: "DCGM_EXPORTER_VOCABULARY", def: "classic", help: "Metric names and units: classic (as in 4.8), current (as in 4.9) or both. A name that a counters file spells out is kept in each.", bind: func(c *Config) value { return vocabulary(&c.Metrics.Vocabulary) }},
		{name: "compatibility", env: "DCGM_EXPORTER_COMPATIBILITY", def: "off", help: "strict serves exactly the page of NVIDIA's exporter: values of a GPU repeated for its MIG instances, its spelling of numbers, a copy per HPC job, one owner for a shared GPU, and none of this exporter's own families unless their switch is given. The host label has both spellings unless --hostname-label chooses one.", bind: func(c *Config) value { return word(&c.Metrics.Compatibility, CompatibilityOff, CompatibilityStrict) }},
		{name: "enable-health-metrics", env: "DCGM_EXPORTER_ENABLE_HEALTH_METRICS", def: "true", help: "Serve what is read and what is not, and why: dcgm_exporter_entity_up, dcgm_exporter_field_unavailable and dcgm_exporter_sample_age_seconds. Off under --compatibility=strict.", bind: func(c *Config) value { return boolean(&c.Metrics.Health) }},
		{name: "enable-accounting-metrics", env: "DCGM_EXPORTER_ENABLE_ACCOUNTING_METRICS", def: "true", help: "Serve who uses how much of each GPU: dcgm_pod_gpu_*, dcgm_gpu_unattributed_* and dcgm_exporter_attribution_unavailable. Off under --compatibility=strict.", bind: func(c *Config) value { return boolean(&c.Metrics.Accounting) }},
		{name: "collect-interval", alias: "c", env: "DCGM_EXPORTER_INTERVAL", key: "collection.interval", def: "30000", help: "Time between two collections, in milliseconds or as a duration.", bind: func(c *Config) value { return duration(&c.Collection.Interval, time.Millisecond, "") }},
		{name: "collect-hang-limit", env: "DCGM_EXPORTER_COLLECT_HANG_LIMIT", def: "2m", help: "How long a driver call may hang before the process ends, so that it is restarted. A frozen host engine answers again after about a minute.", bind: func(c *Config) value { return duration(&c.Collection.HangLimit, 0, "") }},
		{name: "xid-count-window-size", alias: "x", env: "DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE", def: "300000", help: "Window of DCGM_EXP_XID_ERRORS_COUNT, in milliseconds or as a duration.", bind: func(c *Config) value { return duration(&c.Collection.XIDWindow, time.Millisecond, notCounted) }},
		{name: "clock-events-count-window-size", env: "DCGM_EXPORTER_CLOCK_EVENTS_COUNT_WINDOW_SIZE", def: "300000", help: "Window of DCGM_EXP_CLOCK_EVENTS_COUNT, in milliseconds or as a duration.", bind: func(c *Config) value { return duration(&c.Collection.ClockEventWindow, time.Millisecond, notCounted) }},
		{name: "xid-kernel-log", env: "DCGM_EXPORTER_XID_KERNEL_LOG", help: "Path of the kernel's log, /dev/kmsg, to read XIDs from it while it can be read, in place of the driver's reports. A simulated node has a simulated log.", bind: func(c *Config) value { return freeText(&c.Collection.KernelLog, "a path") }},
		{section: "Source", name: "source", env: "DCGM_EXPORTER_SOURCE", def: "auto", help: "Where values come from: auto takes DCGM where it is, else NVML, and waits where there is neither; sim simulates a node.", bind: func(c *Config) value { return word(&c.Source.Kind, SourceAuto, SourceDCGM, SourceNVML, SourceSim) }},
		{name: "remote-hostengine-info", alias: "r", env: "DCGM_REMOTE_HOSTENGINE_INFO", perNode: true, help: "Address of a running host engine. Without it the exporter embeds one. Prefer unix:// for an engine on the same machine.", bind: func(c *Config) value { return engine(&c.Source.Remote) }},
		{name: "fallback", env: "DCGM_EXPORTER_FALLBACK", def: "auto", help: "What --source=auto reads where DCGM is not there: nvml, none, or auto, which is nvml if the host engine is on this machine or embedded. DCGM is taken back when it returns.", bind: func(c *Config) value { return word(&c.Source.Fallback, FallbackAuto, FallbackNVML, FallbackNone) }},
		{name: "devices", alias: "d", env: "DCGM_EXPORTER_DEVICES_STR", def: "f", help: "GPUs (g) and GPU instances (i) to watch; f watches every GPU, and the instances of those that are partitioned by MIG.", bind: func(c *Config) value { return selector(&c.Devices.GPUs) }},
		{name: "switch-devices", alias: "s", env: "DCGM_EXPORTER_OTHER_DEVICES_STR", def: "f", help: "NVSwitches (g) and NVLinks (i) to watch.", bind: func(c *Config) value { return selector(&c.Devices.Switches) }},
		{name: "cpu-devices", alias: "p", env: "DCGM_EXPORTER_CPU_DEVICES_STR", def: "f", help: "Grace CPUs (g) and CPU cores (i) to watch.", bind: func(c *Config) value { return selector(&c.Devices.CPUs) }},
		{name: "fake-gpus", env: "DCGM_EXPORTER_USE_FAKE_GPUS", def: "false", unused: "GPUs are taken as the engine reports them; for made-up ones there is --source=sim", help: "Accept GPUs that DCGM's injection made, for tests.", bind: func(c *Config) value { return boolean(&c.Ignored.FakeGPUs) }},
		{name: "enable-gpu-bind-unbind-watch", env: "DCGM_EXPORTER_ENABLE_GPU_BIND_UNBIND_WATCH", def: "false", key: "sources.dcgm.detectBindUnbind.enabled", unused: "GPUs that come and go are always followed", help: "Follow GPUs that are bound and unbound.", bind: func(c *Config) value { return boolean(&c.Ignored.WatchBinding) }},
		{name: "gpu-bind-unbind-poll-interval", env: "DCGM_EXPORTER_GPU_BIND_UNBIND_POLL_INTERVAL", def: "1s", key: "sources.dcgm.detectBindUnbind.pollInterval", unused: "GPUs that come and go are always followed", help: "Time between two looks for GPUs that were bound or unbound.", bind: func(c *Config) value { return duration(&c.Ignored.BindingInterval, 0, "") }},
		{name: "watch-max-keep-age", env: "DCGM_EXPORTER_WATCH_MAX_KEEP_AGE", def: "10m", key: "sources.dcgm.watch.maxKeepAge", unused: "the engine keeps what is not read yet, and the exporter the rest", help: "How long DCGM keeps the samples of watched fields.", bind: func(c *Config) value { return duration(&c.Ignored.KeepAge, 0, "no limit") }},
		{name: "watch-max-keep-samples", env: "DCGM_EXPORTER_WATCH_MAX_KEEP_SAMPLES", def: "0", key: "sources.dcgm.watch.maxKeepSamples", unused: "the engine keeps what is not read yet, and the exporter the rest", help: "How many samples of a watched field DCGM keeps.", bind: func(c *Config) value { return count(&c.Ignored.KeepSamples) }},
		{name: "health-require-gpus", env: "DCGM_EXPORTER_HEALTH_REQUIRE_GPUS", def: "false", unused: "GPUs that appear late are served without a restart", help: "Fail /health while there is no GPU, so that the process is restarted.", bind: func(c *Config) value { return boolean(&c.Ignored.RequireGPUs) }},
		{name: "enable-dcgm-log", env: "DCGM_EXPORTER_ENABLE_DCGM_LOG", def: "false", help: "Write DCGM's own log to standard output.", bind: func(c *Config) value { return boolean(&c.Source.DCGMLog) }},
		{name: "dcgm-log-level", env: "DCGM_EXPORTER_DCGM_LOG_LEVEL", def: "NONE", needs: "enable-dcgm-log", help: "Level of DCGM's own log.", bind: func(c *Config) value { return logLevel(&c.Source.DCGMLogLevel) }},
		{name: "sim-fallback", env: "DCGM_EXPORTER_SIM_FALLBACK", def: "false", help: "Let --source=auto serve the simulated node where there is no hardware, as make run does. Never for production: simulated values look real.", bind: func(c *Config) value { return boolean(&c.Source.Sim.Fallback) }},
		{name: "sim-node", env: "DCGM_EXPORTER_SIM_NODE", help: "Name of the node that --source=sim simulates; without it eight H100, two of them partitioned by MIG.", bind: func(c *Config) value { return freeText(&c.Source.Sim.Node, "the name of a node") }},
		{name: "sim-seed", env: "DCGM_EXPORTER_SIM_SEED", def: "1", help: "Seed of the simulation: the same seed gives the same values.", bind: func(c *Config) value { return seed(&c.Source.Sim.Seed) }},
		{name: "sim-scenario", env: "DCGM_EXPORTER_SIM_SCENARIO", help: "Path of a YAML file with the faults that the simulation plays.", bind: func(c *Config) value { return freeText(&c.Source.Sim.Scenario, "a path") }},
		{section: "Labels", name: "hostname-label", env: "DCGM_EXPORTER_HOSTNAME_LABEL", def: "hostname", help: "Spelling of the host label: hostname (from 4.8.3 on), Hostname (before) or both.", bind: func(c *Config) value { return hostname(&c.Labels.Hostname) }},
		{name: "owner-labels", env: "DCGM_EXPORTER_OWNER_LABELS", def: "series", help: "Where the labels of a device's owner stand. series: on the series of a device that one pod, job or container has, as in NVIDIA's exporter. copies: likewise, and those of a GPU that several HPC jobs hold are repeated for each of them, as NVIDIA's exporter does, so that sums count the device several times; the default under --compatibility=strict. info: on dcgm_pod_gpu_* alone, so that pods and jobs that come and go make no new series of devices; dcgm_pod_gpu_info joins them. Not with --compatibility=strict.", bind: func(c *Config) value {
			return word(&c.Labels.Owners, OwnersOnSeries, OwnersOnCopies, OwnersOnInfo)
		}},
		{name: "no-hostname", alias: "n", env: "DCGM_EXPORTER_NO_HOSTNAME", def: "false", help: "Leave the host label out.", bind: func(c *Config) value { return boolean(&c.Labels.NoHostname) }},
		{env: "NODE_NAME", perNode: true, help: "The node's name under Kubernetes: it becomes the host label, and API watches keep to this node.", bind: func(c *Config) value { return freeText(&c.Labels.NodeName, "a name") }},
		{name: "use-old-namespace", alias: "o", env: "DCGM_EXPORTER_USE_OLD_NAMESPACE", def: "false", help: "Use the label names of 1.x: uuid, pod_name, pod_namespace, container_name.", bind: func(c *Config) value { return boolean(&c.Labels.OldNamespace) }},
		{name: "replace-blanks-in-model-name", alias: "rbmn", env: "DCGM_EXPORTER_REPLACE_BLANKS_IN_MODEL_NAME", def: "false", help: "Write dashes for the blanks in modelName.", bind: func(c *Config) value { return boolean(&c.Labels.ReplaceBlanks) }},
		{section: "Kubernetes", name: "kubernetes", alias: "k", env: "DCGM_EXPORTER_KUBERNETES", def: "false", help: "Say which pod uses which GPU.", bind: func(c *Config) value { return boolean(&c.Kubernetes.Enabled) }},
		{name: "kubernetes-enable-pod-labels", env: "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS", def: "false", needs: "kubernetes", help: "Add the pods' labels.", bind: func(c *Config) value { return boolean(&c.Kubernetes.PodLabels) }},
		{name: "kubernetes-enable-pod-uid", env: "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID", def: "false", needs: "kubernetes", help: "Add the pods' UIDs.", bind: func(c *Config) value { return boolean(&c.Kubernetes.PodUID) }},
		{name: "kubernetes-gpu-id-type", env: "DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE", def: "uid", needs: "kubernetes", unused: "every form of device id is recognized by itself", help: "What the kubelet's device ids are.", bind: func(c *Config) value { return word(&c.Ignored.GPUIDType, "uid", "device-name") }},
		{name: "kubernetes-pod-label-allowlist-regex", env: "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX", needs: "kubernetes-enable-pod-labels", help: "Regular expressions of the pod labels to add, separated by commas or repeated; without any, all are.", bind: func(c *Config) value { return list(&c.Kubernetes.PodLabelAllowed, regexps, isRegexp) }},
		{name: "kubernetes-pod-log-directory", env: "DCGM_EXPORTER_KUBERNETES_POD_LOG_DIRECTORY", def: "/var/log/pods", needs: "kubernetes", help: "Folder of the pods' logs, whose names have the pods' UIDs, for pods that the API server does not report; no log is read. It need not exist; empty for none.", bind: func(c *Config) value { return freeText(&c.Kubernetes.PodLogs, "a path") }},
		{name: "kubernetes-virtual-gpus", env: "KUBERNETES_VIRTUAL_GPUS", def: "false", help: "Repeat the series of a shared GPU for every replica that a pod holds, with the vgpu label, as dcgm-exporter does; utilization and frame buffer are then the pod's own. Sums over such series count the device several times: prefer the dcgm_pod_gpu_* series.", bind: func(c *Config) value { return boolean(&c.Kubernetes.VirtualGPUs) }},
		{name: "kubernetes-enable-dra", env: "KUBERNETES_ENABLE_DRA", def: "false", needs: "kubernetes", help: "Attribute GPUs that Dynamic Resource Allocation hands out.", bind: func(c *Config) value { return boolean(&c.Kubernetes.DRA) }},
		{name: "nvidia-resource-names", env: "NVIDIA_RESOURCE_NAMES", needs: "kubernetes", help: "Further resource names of GPUs, such as nvidia.com/a100, separated by commas or repeated.", bind: func(c *Config) value { return list(&c.Kubernetes.ResourceNames, resources, isAnything) }},
		{name: "pod-resources-kubelet-socket", env: "DCGM_POD_RESOURCES_KUBELET_SOCKET", def: "/var/lib/kubelet/pod-resources/kubelet.sock", needs: "kubernetes", help: "Path of the kubelet's PodResources socket.", bind: func(c *Config) value { return filePath(&c.Kubernetes.Socket) }},
		{env: "KUBECONFIG", help: "Paths of kubeconfig files, for an exporter outside a pod. Without it the pod's service account reads the API server, and only for what a setting needs.", bind: func(c *Config) value { return freeText(&c.Kubernetes.Kubeconfig, "paths") }},
		{section: "Jobs and containers", name: "hpc-job-mapping-dir", env: "DCGM_HPC_JOB_MAPPING_DIR", help: "Folder with a file per GPU (0) or GPU instance (0.1) that names the jobs on it, one a line.", bind: func(c *Config) value { return freeText(&c.HPC.Dir, "a path") }},
		{name: "container-labels", env: "DCGM_EXPORTER_CONTAINER_LABELS", def: "false", help: "Say which container of Docker or Podman uses which GPU, without Kubernetes.", bind: func(c *Config) value { return boolean(&c.Containers.Enabled) }},
		{name: "container-runtime-socket", env: "DCGM_CONTAINER_RUNTIME_SOCKET", needs: "container-labels", help: "Path of the container runtime's socket. Without it, the first of Docker's and Podman's usual ones that is there.", bind: func(c *Config) value { return freeText(&c.Containers.Socket, "a path") }},
		{name: "container-label-allowlist-regex", env: "DCGM_EXPORTER_CONTAINER_LABEL_ALLOWLIST_REGEX", needs: "container-labels", help: "Regular expressions of the containers' own labels to add, separated by commas or repeated; without any, none are.", bind: func(c *Config) value { return list(&c.Containers.LabelAllowed, regexps, isRegexp) }},
		{section: "Web", name: "address", alias: "a", env: "DCGM_EXPORTER_LISTEN", def: ":9400", perNode: true, help: "Address to listen on.", bind: func(c *Config) value { return listen(&c.Web.Address) }},
		{name: "web-systemd-socket", env: "DCGM_EXPORTER_SYSTEMD_SOCKET", def: "false", help: "Listen on the sockets that systemd hands over, not on --address.", bind: func(c *Config) value { return boolean(&c.Web.SystemdSocket) }},
		{name: "web-config-file", env: "DCGM_EXPORTER_WEB_CONFIG_FILE", help: "Path of the exporter-toolkit file for TLS and authentication.", bind: func(c *Config) value { return freeText(&c.Web.ConfigFile, "a path") }},
		{name: "web-read-timeout", env: "DCGM_EXPORTER_WEB_READ_TIMEOUT", def: "10s", help: "How long reading a request may take.", bind: func(c *Config) value { return duration(&c.Web.ReadTimeout, 0, "no limit") }},
		{name: "web-write-timeout", env: "DCGM_EXPORTER_WEB_WRITE_TIMEOUT", def: "30s", help: "How long answering a request may take.", bind: func(c *Config) value { return duration(&c.Web.WriteTimeout, 0, "no limit") }},
		{name: "web-max-requests", alias: "max-concurrent-scrapes", env: "DCGM_EXPORTER_WEB_MAX_REQUESTS", alsoEnv: "DCGM_EXPORTER_MAX_CONCURRENT_SCRAPES", key: "server.maxConcurrentScrapes", def: "40", help: "How many scrapes are answered at once; 0 sets no limit.", bind: func(c *Config) value { return count(&c.Web.MaxRequests) }},
		{name: "max-series", env: "DCGM_EXPORTER_MAX_SERIES", def: "100000", help: "How many series of devices and their owners a page has at most; 0 sets no limit. Over it go, as far as needed: labels of pods, copies for virtual GPUs and jobs, families of accounting, families that the default counters file does not have. dcgm_exporter_max_series_dropped counts what is left out.", bind: func(c *Config) value { return count(&c.Metrics.MaxSeries) }},
		{name: "web-enable-lifecycle", env: "DCGM_EXPORTER_WEB_ENABLE_LIFECYCLE", def: "false", help: "Serve POST /-/reload. Needs authentication in --web-config-file, or an --address on loopback.", bind: func(c *Config) value { return boolean(&c.Web.Lifecycle) }},
		{name: "enable-pprof", env: "DCGM_EXPORTER_ENABLE_PPROF", def: "false", help: "Serve /debug/pprof/. Needs authentication in --web-config-file, or an --address on loopback.", bind: func(c *Config) value { return boolean(&c.Web.Pprof) }},
		{name: "web-landing-page", env: "DCGM_EXPORTER_WEB_LANDING_PAGE", def: "true", help: "Serve at / a page that shows the node to a person. It reads /metrics once per collection interval.", bind: func(c *Config) value { return boolean(&c.Web.LandingPage) }},
		{name: "enable-exporter-metrics", env: "DCGM_EXPORTER_ENABLE_EXPORTER_METRICS", def: "true", key: "metrics.enableExporterMetrics", help: "Serve the series about the exporter itself: what it collects, its configuration, the Go runtime and the process. Off under --compatibility=strict.", bind: func(c *Config) value { return boolean(&c.Web.ExporterMetrics) }},
		{section: "Log and debugging", name: "log-format", env: "DCGM_EXPORTER_LOG_FORMAT", def: "text", help: "Form of the log.", bind: func(c *Config) value { return word(&c.Log.Format, LogText, LogJSON) }},
		{name: "debug", env: "DCGM_EXPORTER_DEBUG", def: "false", help: "Log details too.", bind: func(c *Config) value { return boolean(&c.Log.Debug) }},
		{name: "disable-startup-validate", env: "DISABLE_STARTUP_VALIDATE", def: "false", unused: "the exporter starts without a driver, and says what is missing", help: "Start without the checks of what the exporter needs.", bind: func(c *Config) value { return boolean(&c.Ignored.StartupValidate) }},
		{name: "dump-enabled", env: "DCGM_EXPORTER_DUMP_ENABLED", def: "false", help: "Write the page of each collection into a file of its own, for debugging.", bind: func(c *Config) value { return boolean(&c.Dump.Enabled) }},
		{name: "dump-directory", env: "DCGM_EXPORTER_DUMP_DIRECTORY", def: "/tmp/dcgm-exporter-debug", needs: "dump-enabled", help: "Folder of the dumps.", bind: func(c *Config) value { return filePath(&c.Dump.Directory) }},
		{name: "dump-retention", env: "DCGM_EXPORTER_DUMP_RETENTION", def: "24", needs: "dump-enabled", help: "How long dumps are kept, in hours or as a duration.", bind: func(c *Config) value { return duration(&c.Dump.Retention, time.Hour, "forever") }},
		{name: "dump-compression", env: "DCGM_EXPORTER_DUMP_COMPRESSION", def: "true", needs: "dump-enabled", help: "Compress the dumps with gzip.", bind: func(c *Config) value { return boolean(&c.Dump.Compress) }},
	}
	for i := range rows {
		if rows[i].section == "" {
			rows[i].section = rows[i-1].section
		}
	}
	return rows
}
