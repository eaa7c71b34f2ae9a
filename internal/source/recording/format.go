package recording

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The format and its version are in the first line of a file.
const (
	format  = "dcgm-exporter recording"
	version = 1
)

// The bounds of what a file can hold, far above what machines show.
const (
	// MaxSize is the size of a recording in bytes before compression.
	MaxSize = 64 << 20

	// A short line of a file can hold many samples, which are larger in memory: these bound what a
	// file can take there, to some hundred MiB.
	maxLine  = 8 << 20 // bytes
	maxFacts = 4 << 20 // samples, faults, processes, checks and peers of all Reads

	maxDevices = 1 << 14
	// In microseconds: the interval, the time of the last Read, and the age of a sample.
	maxInterval = int64(24 * time.Hour / time.Microsecond)
	maxTime     = int64(31 * 24 * time.Hour / time.Microsecond)
	maxAge      = int64(50 * 365 * 24 * time.Hour / time.Microsecond)
)

// A line is one line of a file, with exactly one member set. A row is the number of a device line,
// counted from 0, and a field that of a field line.
type line struct {
	Header *Header `json:"recording,omitempty"` // the first line
	Device *Device `json:"device,omitempty"`
	Part   *Part   `json:"part,omitempty"`
	Pair   *Pair   `json:"pair,omitempty"`
	Field  *Field  `json:"field,omitempty"`
	Owners *Owners `json:"owners,omitempty"`
	Pod    *pod    `json:"pod,omitempty"`
	Read   *Read   `json:"read,omitempty"`
	End    *end    `json:"end,omitempty"` // the last line, which distinguishes a whole file from a truncated one
}

// A Header says what was recorded: the source and the versions that its topology had.
type Header struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Masked is set where names and numbers that distinguish one machine from another were replaced by
	// made-up ones.
	Masked bool `json:"masked"`
	// Interval is the plan's, in microseconds; above zero.
	Interval int64  `json:"interval_us"`
	Source   string `json:"source"`
	Driver   string `json:"driver,omitempty"`
	Library  string `json:"library,omitempty"`
	Engine   string `json:"engine,omitempty"`
	Host     string `json:"host,omitempty"`
}

// A Device is a gpu.Device, with the words of gpu.Kind.
type Device struct {
	Kind       string `json:"kind"`
	ID         uint32 `json:"id"`
	ParentKind string `json:"parent_kind,omitempty"`
	Parent     uint32 `json:"parent,omitempty"`
	GPU        uint32 `json:"gpu,omitempty"`
	UUID       string `json:"uuid,omitempty"`
	PCIBusID   string `json:"pci_bus_id,omitempty"`
	NVMLIndex  uint32 `json:"nvml_index,omitempty"`
	Minor      uint32 `json:"minor,omitempty"`
	Model      string `json:"model,omitempty"`
	InstanceID uint32 `json:"instance_id,omitempty"`
	ComputeID  uint32 `json:"compute_id,omitempty"`
	Profile    string `json:"profile,omitempty"`
	MIGUUID    string `json:"mig_uuid,omitempty"`
	Link       uint32 `json:"link,omitempty"`
	Serial     string `json:"serial,omitempty"`
	Place      *Place `json:"place,omitempty"`
}

// A Place is a gpu.Place.
type Place struct {
	NUMANode int    `json:"numa_node"`
	CPUs     string `json:"cpus,omitempty"`
}

// A Part is a compute instance of a GPU instance that has several.
type Part struct {
	Instance int    `json:"instance"` // the row of the GPU instance
	ID       uint32 `json:"id"`
	Profile  string `json:"profile,omitempty"`
	MIGUUID  string `json:"mig_uuid,omitempty"`
}

// A Pair is a gpu.Pair, of two rows, with the word of gpu.Path.
type Pair struct {
	A          int    `json:"a"`
	B          int    `json:"b"`
	Path       string `json:"path,omitempty"`
	NVLinks    int    `json:"nvlinks,omitempty"`
	Generation int    `json:"generation,omitempty"`
}

// A Field is a field that was requested, whether or not the machine serves it, and the unit of its
// values.
type Field struct {
	ID   gpu.FieldID `json:"id"`
	Name string      `json:"name,omitempty"` // for people; not read
	Unit gpu.Unit    `json:"unit,omitempty"`
}

// Owners are the answer of one attributor, for the rows of which it has one.
type Owners struct {
	Attributor string `json:"attributor"`
	Uses       []Use  `json:"uses"`
}

// A Use is who uses a row: the labels of its entity, and a gpu.Use with the word of gpu.Sharing.
type Use struct {
	Row      int     `json:"row"`
	Labels   []Label `json:"labels,omitempty"`
	Sharing  string  `json:"sharing,omitempty"`
	Replicas int     `json:"replicas,omitempty"`
	Owners   []Owner `json:"owners,omitempty"`
}

// An Owner is a gpu.Owner.
type Owner struct {
	Namespace string  `json:"namespace,omitempty"`
	Pod       string  `json:"pod,omitempty"`
	Container string  `json:"container,omitempty"`
	PodUID    string  `json:"pod_uid,omitempty"`
	Resource  string  `json:"resource,omitempty"`
	Replica   string  `json:"replica,omitempty"`
	Part      float64 `json:"part,omitempty"` // of a GPU instance, 0 to 1
	Labels    []Label `json:"labels,omitempty"`
}

// A Label is a name and a value.
type Label [2]string

// pod is the pod that a recorded process belongs to.
type pod struct {
	PID uint32 `json:"pid"`
	UID string `json:"uid"`
}

// A Read is what one Read found, At microseconds after the first. Ages are microseconds before the
// Read. XIDs, and what was sampled since the previous Read, are samples of their fields.
type Read struct {
	At        int64     `json:"at_us"`
	Samples   []Samples `json:"samples,omitempty"`
	Faults    []Faults  `json:"faults,omitempty"`
	Processes []Process `json:"processes,omitempty"`
	// Utilizations are of the entities whose processes say how busy they were.
	Utilizations []Utilization `json:"utilizations,omitempty"`
	Health       []Health      `json:"health,omitempty"`
	Peers        []Peer        `json:"peers,omitempty"`
}

// Samples are those of one field; the lists run side by side.
type Samples struct {
	Field  int     `json:"field"`
	Rows   []int   `json:"rows"`
	Values []Value `json:"values"`
	// Ages are left out where all are 0.
	Ages []int64 `json:"ages_us,omitempty"`
}

// Faults are of one field and for one reason; Field and Rows are a gpu.Fault's, below zero too.
type Faults struct {
	Field  int    `json:"field"`
	Rows   []int  `json:"rows"`
	Reason string `json:"reason"` // a word of gpu.Reasons
}

// A Process is a gpu.Process.
type Process struct {
	Row    int    `json:"row"`
	PID    uint32 `json:"pid"`
	Busy   Value  `json:"busy,omitzero"`   // 0 to 1
	Memory Value  `json:"memory,omitzero"` // bytes
	Age    int64  `json:"age_us,omitempty"`
}

// A Utilization is a gpu.Utilization.
type Utilization struct {
	Row  int   `json:"row"`
	Busy Value `json:"busy"` // 0 to 1
}

// A Health is a gpu.HealthCheck.
type Health struct {
	Row    int    `json:"row"`
	Watch  string `json:"watch"`
	Code   string `json:"code,omitempty"`
	Result int64  `json:"result"` // DCGM's: 0 pass, 10 warn, 20 fail
	Age    int64  `json:"age_us,omitempty"`
}

// A Peer is a gpu.PeerState.
type Peer struct {
	Row    int    `json:"row"`
	Peer   int    `json:"peer"`
	Status string `json:"status"`
}

type end struct {
	Reads int `json:"reads"`
}

// facts returns how much was found.
func (r *Read) facts() int {
	n := len(r.Processes) + len(r.Utilizations) + len(r.Health) + len(r.Peers)
	for i := range r.Samples {
		n += len(r.Samples[i].Rows)
	}
	for i := range r.Faults {
		n += len(r.Faults[i].Rows)
	}
	return n
}
