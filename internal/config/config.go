// Package config turns arguments, environment and the YAML file into one validated Config.
//
// table.go declares every setting: its flag, environment variable, YAML key, default and help. Parsing, --help,
// docs/flags.md and the configuration hash all derive from it. Flags override variables, variables override the file,
// and the file overrides defaults.
//
// Go's flag package parses the command line, as it does in NVIDIA's dcgm-exporter: a POSIX parser would read -rbmn as
// four flags.
//
// A Config is immutable once Parse has returned it. Only package app and above import this package. App copies what
// another package needs into the options of that package.
package config

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/hostengine"
)

// Config holds all settings of the exporter, grouped by purpose. It is immutable once Parse has returned it.
type Config struct {
	// Help and Version are set if the command line asks for them. All other fields are then empty.
	Help, Version bool

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

	Path    string   // path of the YAML file, or empty
	Notices []string // warnings for the log: values that were replaced, and settings without effect

	// Ignored holds settings that are accepted for compatibility and have no effect.
	Ignored struct {
		StartupValidate, FakeGPUs, RequireGPUs, WatchBinding bool
		BindingInterval, KeepAge                             time.Duration
		KeepSamples                                          int
		GPUIDType                                            string
	}
}

// Hash returns the value of dcgm_exporter_config_hash, which is equal on nodes with the same configuration. It covers
// all settings except those that differ between nodes, and the content of files such as the counters file. It has 48
// bits, so that a float64 holds it exactly.
func (c *Config) Hash(files ...[]byte) uint64 {
	h := sha256.New()
	for _, o := range table(c) {
		if !o.perNode {
			fmt.Fprintf(h, "%s=%q\n", o.ID(), o.text())
		}
	}
	for _, f := range c.Metrics.Fields {
		fmt.Fprintf(h, "field %q %q %q\n", f.Name, f.Type, f.Help)
	}
	for _, g := range c.Collection.Groups {
		fmt.Fprintf(h, "group %q %s %q\n", g.Name, g.Interval, g.Patterns)
	}
	for _, file := range files {
		fmt.Fprintf(h, "file %x\n", sha256.Sum256(file))
	}
	return binary.BigEndian.Uint64(h.Sum(nil)) >> 16
}

// Values of settings.
const (
	CompatibilityOff    = "off"
	CompatibilityStrict = "strict" // pages are exactly those of NVIDIA's dcgm-exporter

	FallbackAuto = "auto" // NVML if the engine is embedded or on this machine, and none otherwise
	FallbackNVML = "nvml"
	FallbackNone = "none"

	OwnersOnSeries = "series" // series of devices with an exclusive owner have the labels of the owner
	OwnersOnCopies = "copies" // as OwnersOnSeries, and a copy for each job of a shared GPU
	OwnersOnInfo   = "info"   // only the series of owners have them

	LogText = "text"
	LogJSON = "json"
)

// Metrics selects the exported metrics and their names. The counters come from Fields if there are any, else from
// ConfigMap if it is set, else from File.
type Metrics struct {
	File string // path of the counters file
	// FileNamed means that File was given. Otherwise File is the default path, and the embedded counters file is used
	// if nothing exists there.
	FileNamed     bool
	ConfigMap     ConfigMapName // it holds the counters under the key "metrics"
	Fields        []Field       // the counters in the YAML file itself
	Vocabulary    catalog.Vocabulary
	Compatibility string
	// Health enables the families about which devices can be read. Accounting enables the families about the shares of
	// pods. Web.ExporterMetrics enables those about the exporter itself.
	Health, Accounting bool
	IgnoredHealth      []string // codes of health findings that alerts and the verdict ignore
	// MaxSeries is the maximum number of series on a page, not counting those about health and about the exporter.
	// Zero means unlimited.
	MaxSeries int
}

// A ConfigMapName identifies a ConfigMap. The zero value means none.
type ConfigMapName struct{ Namespace, Name string }

// String returns NAMESPACE:NAME or none.
func (n ConfigMapName) String() string {
	if n == (ConfigMapName{}) {
		return "none"
	}
	return n.Namespace + ":" + n.Name
}

// A Field is an entry of metrics.fields in the YAML file. It has not been checked against the catalog.
type Field struct {
	Name string `yaml:"name"`
	Type string `yaml:"prometheusType"`
	Help string `yaml:"help"`
	Line int    `yaml:"-"` // in the YAML file
}

// Collection configures intervals, windows and limits of the collection.
type Collection struct {
	Interval time.Duration // time between two collections; greater than zero
	// HangLimit is how long a driver call may hang before the process exits with gpu.ErrWedged. It is greater than
	// zero.
	HangLimit time.Duration
	Groups    []WatchGroup // intervals of particular fields
	// XIDWindow and ClockEventWindow are the windows of DCGM_EXP_XID_ERRORS_COUNT and DCGM_EXP_CLOCK_EVENTS_COUNT.
	XIDWindow, ClockEventWindow time.Duration
	// KernelLog is the path of the kernel log (/dev/kmsg) from which XIDs are read instead of from the driver. If it
	// is empty, XIDs come from the driver.
	KernelLog string
}

// Devices selects the watched entities.
type Devices struct{ GPUs, Switches, CPUs gpu.Selector }

// Source selects where samples come from.
type Source struct {
	Kind         SourceKind
	Named        bool               // Kind was given
	Remote       hostengine.Address // of a host engine; the zero address embeds one
	Fallback     string             // what SourceAuto reads while DCGM is unavailable
	DCGMLog      bool               // enables DCGM's own log, at DCGMLogLevel
	DCGMLogLevel string
	Sim          Sim
}

// SourceKind is the name of a source.
type SourceKind string

// The sources. SourceAuto uses DCGM if it is available, else NVML. It simulates only if Sim.Fallback is set.
const (
	SourceAuto SourceKind = "auto"
	SourceDCGM SourceKind = "dcgm"
	SourceNVML SourceKind = "nvml"
	SourceSim  SourceKind = "sim"
)

// Sim configures the simulated node.
type Sim struct {
	Fallback bool   // lets SourceAuto simulate a node if there is no hardware
	Node     string // name of a node model; empty for the default
	Seed     uint64
	Scenario string // path of a file with scripted faults, or empty
}

// HostLabel is the spelling of the label that holds the host name.
type HostLabel string

// The spellings of the host label.
const (
	HostLabelLower HostLabel = "hostname" // NVIDIA's dcgm-exporter since 4.8.3
	HostLabelUpper HostLabel = "Hostname" // NVIDIA's dcgm-exporter before 4.8.3
	HostLabelBoth  HostLabel = "both"     // a label of each
)

// Names returns the names of the label.
func (l HostLabel) Names() []string {
	if l == HostLabelBoth {
		return []string{string(HostLabelLower), string(HostLabelUpper)}
	}
	return []string{string(l)}
}

// Labels configures the labels of series.
type Labels struct {
	Hostname      HostLabel
	Owners        string
	NoHostname    bool   // leaves out the host label
	NodeName      string // $NODE_NAME, the name of the Kubernetes node
	OldNamespace  bool   // uses the label names of 1.x
	ReplaceBlanks bool   // replaces spaces in the model name with dashes
}

// Kubernetes configures how entities are attributed to pods.
type Kubernetes struct {
	Enabled         bool
	PodLabels       bool
	PodLabelAllowed []string // valid regular expressions; an empty list allows all labels
	MaxPodLabels    int      // per pod
	PodLogs         string   // directory of the pods' logs, or empty
	PodUID          bool
	ResourceNames   []string // resource names in addition to nvidia.com/gpu and nvidia.com/mig-*
	VirtualGPUs     bool
	DRA             bool
	Socket          string // the kubelet's PodResources socket
	Kubeconfig      string // paths as in $KUBECONFIG; if empty, the service account of the pod is used
}

// HPC configures how entities are attributed to jobs of a batch scheduler.
type HPC struct {
	Dir string // directory of the job files, or empty
}

// Containers configures how entities are attributed to containers without Kubernetes.
type Containers struct {
	Enabled      bool
	Socket       string   // socket of the container runtime; if empty, the first usual one that exists
	LabelAllowed []string // valid regular expressions; an empty list allows no labels
}

// Web configures the HTTP server.
type Web struct {
	Address         string        // host:port
	SystemdSocket   bool          // systemd passes the listeners; Address is unused
	ConfigFile      string        // path of the exporter-toolkit file for TLS and authentication
	ReadTimeout     time.Duration // zero means no timeout
	WriteTimeout    time.Duration // zero means no timeout
	MaxRequests     int           // maximum number of concurrent scrapes; zero means unlimited
	Lifecycle       bool          // enables the POST routes below /-/
	Pprof           bool
	LandingPage     bool // enables the status page at /
	ExporterMetrics bool // enables the metrics about the exporter itself
}

// Log configures the log.
type Log struct {
	Format string
	Debug  bool
}

// Dump configures files with the page of each collection, for debugging.
type Dump struct {
	Enabled   bool
	Directory string
	Retention time.Duration // zero means forever
	Compress  bool
}
