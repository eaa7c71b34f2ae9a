package config

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// Config is every setting of the exporter, grouped by who needs it. Parse makes it, and nothing
// changes it afterwards.
type Config struct {
	// Show is set when the command line requests a text instead of a run; the rest of the Config is
	// then not filled in.
	Show Show

	Metrics    Metrics
	Collection Collection
	Devices    Devices
	Source     Source
	Labels     Labels
	Kubernetes Kubernetes
	HPC        HPC
	Containers Containers
	Web        Web
	Log        Log
	Dump       Dump

	// Path is the YAML file, "" for none.
	Path string

	// Notices are sentences for the log, in the order of the table: a value that counts in the place of
	// a bad one, and settings without effect.
	Notices []string

	// Ignored are the settings that are accepted for compatibility.
	Ignored struct {
		StartupValidate, FakeGPUs, RequireGPUs, WatchBinding bool
		BindingInterval, KeepAge                             time.Duration
		KeepSamples                                          int
		GPUIDType                                            string
	}
}

// Show says which text the command line requests.
type Show uint8

// The texts.
const (
	ShowNothing Show = iota
	ShowHelp
	ShowVersion
)

// Metrics says which metrics are exported and under which names. Exactly one of the three places is
// in use: Fields if there are any, else ConfigMap if it is set, else File.
type Metrics struct {
	// File is the path of the counters file.
	File string
	// FileNamed is set when a setting named File. Otherwise it is the default path, and the embedded
	// file stands in for it where none lies there.
	FileNamed bool
	// ConfigMap holds the counters under the key "metrics".
	ConfigMap ConfigMapName
	// Fields are the counters written in the YAML file itself.
	Fields []Field
	// Vocabulary names the requested metrics.
	Vocabulary catalog.Vocabulary
	// Compatibility says how much a page is to be like dcgm-exporter's.
	Compatibility Compatibility
	// Health serves the families about the reading of devices, Accounting the shares of pods.
	// Web.ExporterMetrics serves the families about the exporter.
	Health, Accounting bool
	// MaxSeries is how many series a page has at most, those of health and of the exporter apart;
	// 0 sets no limit.
	MaxSeries int
}

// Compatibility says whether a page is to be exactly dcgm-exporter's.
type Compatibility string

// The degrees of compatibility: this exporter's improvements, or none of them.
const (
	CompatibilityOff    Compatibility = "off"
	CompatibilityStrict Compatibility = "strict"
)

// A ConfigMapName names a ConfigMap; its zero value names none.
type ConfigMapName struct{ Namespace, Name string }

// A Field is one entry of metrics.fields in the YAML file. Like a line of a counters file it is not
// checked against the catalog yet.
type Field struct {
	Name string `yaml:"name"`
	Type string `yaml:"prometheusType"`
	Help string `yaml:"help"`
	Line text.Line
}

// Collection says how often and for how long.
type Collection struct {
	// Interval is the time between two readings; always above zero.
	Interval time.Duration
	// HangLimit is how long a driver call may hang before the process ends with gpu.ErrWedged; always
	// above zero.
	HangLimit time.Duration
	// Groups give fields an interval of their own.
	Groups []WatchGroup
	// XIDWindow and ClockEventWindow are the windows of DCGM_EXP_XID_ERRORS_COUNT and
	// DCGM_EXP_CLOCK_EVENTS_COUNT.
	XIDWindow time.Duration
	// KernelLog is the kernel's log (/dev/kmsg), from which XIDs are read in place of
	// the driver's reports; "" reads none.
	KernelLog        string
	ClockEventWindow time.Duration
}

// Devices says which entities are watched.
type Devices struct{ GPUs, Switches, CPUs gpu.Selector }

// Source says where samples come from.
type Source struct {
	Kind SourceKind
	// Named is set when a setting chose Kind.
	Named bool
	// Remote is the address of a host engine; the zero address embeds one.
	Remote gpu.EngineAddress
	// Fallback says whether NVML serves in place of DCGM under SourceAuto.
	Fallback Fallback
	// DCGMLog turns DCGM's own log on, at DCGMLogLevel.
	DCGMLog      bool
	DCGMLogLevel string
	Sim          Sim
}

// SourceKind names a source, or leaves the choice to the exporter.
type SourceKind string

// The sources. Auto takes DCGM where it is, else NVML; it never simulates.
const (
	SourceAuto SourceKind = "auto"
	SourceDCGM SourceKind = "dcgm"
	SourceNVML SourceKind = "nvml"
	SourceSim  SourceKind = "sim"
)

// Fallback names the source that serves while DCGM is missing.
type Fallback string

// The fallbacks. FallbackAuto is NVML for an engine of this machine, else none.
const (
	FallbackAuto Fallback = "auto"
	FallbackNVML Fallback = "nvml"
	FallbackNone Fallback = "none"
)

// Sim describes the simulated node.
type Sim struct {
	// Fallback lets SourceAuto simulate where there is no hardware.
	Fallback bool
	Node     string // the name of a node model, "" for the default one
	Seed     uint64
	Scenario string // the path of a file of scripted faults, "" for none
}

// Labels says how series are labeled.
type Labels struct {
	// Hostname is the spelling of the host label.
	Hostname gpu.HostnameLabel
	// Owners says where the labels of owners stand.
	Owners OwnerLabels
	// NoHostname leaves the host label out.
	NoHostname bool
	// NodeName is $NODE_NAME, the node's name under Kubernetes.
	NodeName string
	// OldNamespace uses the label names of 1.x.
	OldNamespace bool
	// ReplaceBlanks writes dashes for the blanks of the model name.
	ReplaceBlanks bool
}

// OwnerLabels names the series that carry the labels of a device's owner.
type OwnerLabels string

// The places of owner labels: the series of a device that has one owner; these, and a copy for each job where several
// jobs have a GPU; the series of owners alone.
const (
	OwnersOnSeries OwnerLabels = "series"
	OwnersOnCopies OwnerLabels = "copies"
	OwnersOnInfo   OwnerLabels = "info"
)

// Kubernetes says how entities are attributed to pods.
type Kubernetes struct {
	Enabled         bool
	PodLabels       bool
	PodLabelAllowed []string // regular expressions that compile; none allows all
	PodLogs         string   // the folder of the pods' logs; "" for none
	PodUID          bool
	ResourceNames   []string // beside nvidia.com/gpu and nvidia.com/mig-*
	VirtualGPUs     bool
	DRA             bool
	Socket          string // the kubelet's PodResources socket
	Kubeconfig      string // paths as in $KUBECONFIG; "" means the pod's service account
}

// HPC says how entities are attributed to the jobs of a batch scheduler.
type HPC struct {
	Dir string // of the job files; "" for none
}

// Containers says how entities are attributed to containers without Kubernetes.
type Containers struct {
	Enabled      bool
	Socket       string   // of the container runtime; "" for the first usual one that is there
	LabelAllowed []string // regular expressions that compile; none allows none
}

// Web says how pages are served.
type Web struct {
	Address       string // host:port
	SystemdSocket bool   // the listeners come from systemd, Address is unused
	// ConfigFile is the exporter-toolkit's file for TLS and authentication.
	ConfigFile   string
	ReadTimeout  time.Duration // zero: none
	WriteTimeout time.Duration // zero: none
	MaxRequests  int           // served at once; zero: no limit
	// Lifecycle serves the POST routes under /-/.
	Lifecycle bool
	Pprof     bool
	// LandingPage serves the page at /.
	LandingPage bool
	// ExporterMetrics serves the series about the exporter itself.
	ExporterMetrics bool
}

// Log says how the exporter logs.
type Log struct {
	Format LogFormat
	Debug  bool
}

// LogFormat is the form of a log line.
type LogFormat string

// The forms of a log line.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// Dump configures the files of collections, for debugging.
type Dump struct {
	Enabled   bool
	Directory string
	Retention time.Duration // zero: kept forever
	Compress  bool
}
