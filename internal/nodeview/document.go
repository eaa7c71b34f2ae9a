package nodeview

import "time"

// Version is the version of the format. It changes when a field changes its meaning or goes; new
// fields may come without.
const Version = 1

// A Document is one snapshot of a node. Quantities are in base units (bytes, watts, hertz, degrees
// Celsius, ratios from 0 to 1), and absent where they are not collected or not known.
type Document struct {
	Version int       `json:"version"`
	Time    time.Time `json:"time"` // of the snapshot
	// ValidForSeconds is for how long the collector expects to have a newer one; 0 is for good.
	ValidForSeconds float64 `json:"validForSeconds,omitempty"`
	Exporter        string  `json:"exporter,omitempty"` // the exporter's version
	Host            string  `json:"host,omitempty"`     // the node's name
	Source          string  `json:"source,omitempty"`   // "dcgm", "nvml" or "sim"
	Simulated       bool    `json:"simulated,omitempty"`
	Driver          string  `json:"driver,omitempty"`  // version
	Library         string  `json:"library,omitempty"` // version of libdcgm or libnvidia-ml
	Engine          string  `json:"engine,omitempty"`  // version of a remote host engine

	// Problem says why there is no data; absent while the node is read.
	Problem *Problem `json:"problem,omitempty"`
	// Entities are the GPUs, each followed by its instances.
	Entities []Entity `json:"entities"`
	// Others count the devices of other kinds.
	Others []Others `json:"others,omitempty"`
	// Pairs say how each two GPUs are connected, where that was requested.
	Pairs []Pair `json:"pairs,omitempty"`
	// XIDs are those that are known, the newest first.
	XIDs []XID `json:"xids,omitempty"`
	// Unavailable lists what was requested and is not served.
	Unavailable []Unavailable `json:"unavailable,omitempty"`
}

// A Problem is why something is not read: a reason of the closed set that the series have as their
// label, and the text of the error.
type Problem struct {
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

// An Entity is a GPU, a GPU instance or a compute instance.
type Entity struct {
	Name      string  `json:"name"` // "GPU 3", "GPU 3 / instance 1"
	Kind      string  `json:"kind"` // "GPU", "GPU instance", "compute instance"
	GPU       uint32  `json:"gpu"`  // the gpu label
	Instance  *uint32 `json:"instance,omitempty"`
	UUID      string  `json:"uuid,omitempty"` // of the GPU
	MIGUUID   string  `json:"migUUID,omitempty"`
	BusID     string  `json:"pciBusID,omitempty"`
	Model     string  `json:"model,omitempty"`
	Profile   string  `json:"profile,omitempty"` // of an instance: "3g.40gb"
	Instances int     `json:"instances,omitempty"`

	// Problem says why the entity is not read; absent for one that is up.
	Problem *Problem `json:"problem,omitempty"`
	// OldestSample is the time of its oldest sample in Unix seconds; 0 where it has none.
	OldestSample float64 `json:"oldestSample,omitempty"`

	BusyRatio                *float64 `json:"busyRatio,omitempty"`
	MemoryUsedBytes          *float64 `json:"memoryUsedBytes,omitempty"`
	MemoryTotalBytes         *float64 `json:"memoryTotalBytes,omitempty"`
	PowerWatts               *float64 `json:"powerWatts,omitempty"`
	TemperatureCelsius       *float64 `json:"temperatureCelsius,omitempty"`
	MemoryTemperatureCelsius *float64 `json:"memoryTemperatureCelsius,omitempty"`
	SMClockHertz             *float64 `json:"smClockHertz,omitempty"`
	// Throttle names the clock events that hold the clocks down now, or within the window of
	// DCGM_EXP_CLOCK_EVENTS_COUNT where only that is collected. Nil: not collected.
	Throttle []string `json:"throttle"`

	// Sharing is how it is shared: "none", "time-slicing", "mps", "dra"; Replicas in how many parts, 0
	// where unknown.
	Sharing  string  `json:"sharing,omitempty"`
	Replicas int     `json:"replicas,omitempty"`
	Owners   []Owner `json:"owners,omitempty"`
}

// An Owner is a pod, a batch job or a container that an entity is assigned to.
type Owner struct {
	Namespace  string   `json:"namespace,omitempty"`
	Pod        string   `json:"pod,omitempty"`
	Containers []string `json:"containers,omitempty"`
	Job        string   `json:"job,omitempty"`
	Replicas   int      `json:"replicas,omitempty"` // how many of the entity's replicas it has
	// BusyRatio and MemoryUsedBytes are its part of the entity, where the accounting knows it.
	BusyRatio       *float64 `json:"busyRatio,omitempty"`
	MemoryUsedBytes *float64 `json:"memoryUsedBytes,omitempty"`
}

// Others counts devices that have no row of their own: NVSwitches, links, CPUs, cores, cards.
type Others struct {
	Kind string `json:"kind"`
	Up   int    `json:"up"`
	// Down names those that are not read.
	Down []Down `json:"down,omitempty"`
}

// A Down is a device that is not read.
type Down struct {
	Name    string  `json:"name"`
	Problem Problem `json:"problem"`
}

// A Pair is how two GPUs are connected.
type Pair struct {
	A       uint32 `json:"a"` // gpu labels
	B       uint32 `json:"b"`
	Path    string `json:"path,omitempty"` // "PIX", "PXB", "PHB", "NODE", "SYS", "PSB"
	NVLinks int    `json:"nvlinks,omitempty"`
}

// An XID is an error that the driver reported of a GPU or GPU instance.
type XID struct {
	Entity   string  `json:"entity"` // the name of its row
	XID      int64   `json:"xid"`
	Text     string  `json:"text"`
	LastSeen float64 `json:"lastSeen,omitempty"` // Unix seconds, 0 where not collected
	Count    float64 `json:"count,omitempty"`    // since the exporter started, 0 where not collected
	// Pod is the owner at that time, "namespace/pod", where known.
	Pod string `json:"pod,omitempty"`
}

// An Unavailable is a field that was requested and is not served, and of what.
type Unavailable struct {
	Field    string   `json:"field"`
	Reason   string   `json:"reason"`
	Entities []string `json:"entities,omitempty"` // names; none: all
}
