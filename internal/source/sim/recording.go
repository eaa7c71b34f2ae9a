package sim

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Recording is what a machine showed for a while: its entities, and what
// each of a few Reads found. It holds no text of an error and nothing of the
// environment. Nobody changes a Recording that is played.
type Recording struct {
	// Topology has every entity that the recording session had.
	Topology *gpu.Topology
	// Masked is set where names and numbers that tell one machine from another
	// were replaced by made-up ones.
	Masked bool
	// Interval is the plan's that was recorded; above zero.
	Interval time.Duration
	// Fields are the fields that were asked for, whether or not the machine
	// serves them; the Batches refer to them by index.
	Fields []RecordedField
	// Owners are what the attributors said, each once.
	Owners []RecordedOwners
	// Pods are the UIDs of the pods of the recorded processes, by process id.
	Pods map[uint32]string
	// Reads are in the order of their time; there is at least one.
	Reads []RecordedRead

	began int64 // when the first Read was added
}

// A RecordedField is a field that was asked for, and the unit of its values.
type RecordedField struct {
	ID   gpu.FieldID
	Unit gpu.Unit
}

// RecordedOwners are the answer of one attributor, by row of the topology.
type RecordedOwners struct {
	Attributor string
	Labels     [][]gpu.Label
	Uses       []gpu.Use
}

// A RecordedRead is one Read. Its times, At and those in the Batch, are
// nanoseconds since the first Read, whole microseconds each; a sample that is
// older than the first Read has a negative one. XIDs are samples of their field.
// The errors of faults are those of package gpu, bare, or ErrRecorded.
type RecordedRead struct {
	At    int64
	Batch gpu.Batch
}

// facts returns how much was found.
func (r *RecordedRead) facts() int {
	b := &r.Batch
	return len(b.Samples) + len(b.Faults) + len(b.Processes) + len(b.Utilizations) + len(b.Health) + len(b.Peers)
}

// NewRecording returns a recording without a Read of a session for plan, whose
// topology is t.
func NewRecording(t *gpu.Topology, plan *gpu.Plan) *Recording {
	r := &Recording{Topology: t, Interval: plan.Interval, Pods: map[uint32]string{}}
	for i := range plan.Fields {
		r.Fields = append(r.Fields, RecordedField{plan.Fields[i].ID, plan.Fields[i].Unit})
	}
	return r
}

// Add appends a copy of what a Read at a time found. Values that are no
// numbers, or that are of another type than the catalogue says, are left out;
// what comes from the future counts as of now.
func (r *Recording) Add(at time.Time, b *gpu.Batch) {
	const whole = int64(time.Microsecond)
	now := at.UnixNano() / whole * whole
	if len(r.Reads) == 0 {
		r.began = now
	}
	next := RecordedRead{At: now - r.began}
	when := func(t int64) int64 {
		return max(min(t/whole*whole-r.began, next.At), next.At-int64(maxRecordedAge))
	}
	for _, s := range b.Samples {
		e, known := catalog.ByID(r.Fields[s.Field].ID)
		if n, ok := s.Value.Number(); ok && math.IsInf(n, 0) || known && s.Value.IsText() != (e.Type == catalog.Text) {
			continue
		}
		s.Time = when(s.Time)
		next.Batch.Samples = append(next.Batch.Samples, s)
	}
	if f := slices.IndexFunc(r.Fields, func(f RecordedField) bool { return f.ID == catalog.XIDErrors }); f >= 0 {
		for _, x := range b.XIDs {
			next.Batch.AddAt(x.Row, f, gpu.Int(x.Code), when(x.Time))
		}
	}
	slices.SortStableFunc(next.Batch.Samples, func(a, b gpu.Sample) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Row, b.Row), cmp.Compare(a.Time, b.Time))
	})
	for _, f := range b.Faults {
		next.Batch.Fail(f.Row, f.Field, RecordedError(f.Err))
	}
	for _, p := range b.Processes {
		p.Time = when(p.Time)
		next.Batch.Processes = append(next.Batch.Processes, p)
	}
	next.Batch.Utilizations = append(next.Batch.Utilizations, b.Utilizations...)
	for _, h := range b.Health {
		h.Time = when(h.Time)
		next.Batch.Health = append(next.Batch.Health, h)
	}
	next.Batch.Peers = append(next.Batch.Peers, b.Peers...)
	r.Reads = append(r.Reads, next)
}

// ErrRecorded stands for an error of which the recording knows only that it is
// none of package gpu's.
var ErrRecorded = errors.New("a recorded error")

// RecordedError returns what a recording keeps of an error: its reason.
func RecordedError(err error) error {
	if known, ok := errorOf(gpu.Reason(err)); ok {
		return known
	}
	return ErrRecorded
}

// errorOf is the inverse of gpu.Reason.
func errorOf(reason string) (error, bool) {
	for _, err := range []error{
		gpu.ErrNotSupported, gpu.ErrPermission, gpu.ErrLost, gpu.ErrTimeout, gpu.ErrWedged,
		gpu.ErrUnavailable, gpu.ErrVersion, gpu.ErrReleased, gpu.ErrPIDNamespace, ErrRecorded,
	} {
		if gpu.Reason(err) == reason {
			return err, true
		}
	}
	return nil, false
}

// The bounds of what a file can hold, far above what machines show.
const (
	// MaxRecording is the size of a recording in bytes before compression.
	MaxRecording = 64 << 20

	// A short line of a file can hold many samples, which are larger in memory:
	// these bound what a file can take there, to some hundred MiB.
	maxRecordedLine  = 8 << 20 // bytes
	maxRecordedFacts = 4 << 20 // samples, faults, processes, checks and peers of all Reads

	maxRecordedRows = 1 << 14
	maxRecordedTime = 31 * 24 * time.Hour       // of the last Read
	maxRecordedAge  = 50 * 365 * 24 * time.Hour // of a sample
)

// recordingFormat and recordingVersion are in the first line of a file.
const (
	recordingFormat  = "dcgm-exporter recording"
	recordingVersion = 1
)

// A recordingLine is one line of a file, with exactly one member set.
type recordingLine struct {
	Recording *headerLine `json:"recording,omitempty"` // the first line
	Device    *deviceLine `json:"device,omitempty"`    // in the order of the rows
	Part      *partLine   `json:"part,omitempty"`
	Pair      *pairLine   `json:"pair,omitempty"`
	Field     *fieldLine  `json:"field,omitempty"` // in the order of the indexes
	Owners    *ownersLine `json:"owners,omitempty"`
	Pod       *podLine    `json:"pod,omitempty"`
	Read      *readLine   `json:"read,omitempty"`
	End       *endLine    `json:"end,omitempty"` // the last line, which tells a whole file from a cut one
}

type headerLine struct {
	Format   string `json:"format"`
	Version  int    `json:"version"`
	Masked   bool   `json:"masked"`
	Interval int64  `json:"interval_us"`
	Source   string `json:"source"`
	Driver   string `json:"driver,omitempty"`
	Library  string `json:"library,omitempty"`
	Engine   string `json:"engine,omitempty"`
	Host     string `json:"host,omitempty"`
}

type deviceLine struct {
	Kind       string     `json:"kind"`
	ID         uint32     `json:"id"`
	ParentKind string     `json:"parent_kind,omitempty"`
	Parent     uint32     `json:"parent,omitempty"`
	GPU        uint32     `json:"gpu,omitempty"`
	UUID       string     `json:"uuid,omitempty"`
	PCIBusID   string     `json:"pci_bus_id,omitempty"`
	NVMLIndex  uint32     `json:"nvml_index,omitempty"`
	Minor      uint32     `json:"minor,omitempty"`
	Model      string     `json:"model,omitempty"`
	InstanceID uint32     `json:"instance_id,omitempty"`
	ComputeID  uint32     `json:"compute_id,omitempty"`
	Profile    string     `json:"profile,omitempty"`
	MIGUUID    string     `json:"mig_uuid,omitempty"`
	Link       uint32     `json:"link,omitempty"`
	Serial     string     `json:"serial,omitempty"`
	Place      *placeLine `json:"place,omitempty"`
}

type placeLine struct {
	NUMANode int    `json:"numa_node"`
	CPUs     string `json:"cpus,omitempty"`
}

// A partLine is a compute instance of a divided GPU instance.
type partLine struct {
	Instance int    `json:"instance"` // its row
	ID       uint32 `json:"id"`
	Profile  string `json:"profile,omitempty"`
	MIGUUID  string `json:"mig_uuid,omitempty"`
}

type pairLine struct {
	A          int    `json:"a"`
	B          int    `json:"b"`
	Path       string `json:"path,omitempty"`
	NVLinks    int    `json:"nvlinks,omitempty"`
	Generation int    `json:"generation,omitempty"`
}

type fieldLine struct {
	ID   gpu.FieldID `json:"id"`
	Name string      `json:"name,omitempty"` // for people; not read
	Unit gpu.Unit    `json:"unit,omitempty"`
}

type ownersLine struct {
	Attributor string    `json:"attributor"`
	Uses       []useLine `json:"uses"`
}

type useLine struct {
	Row      int         `json:"row"`
	Labels   []labelLine `json:"labels,omitempty"`
	Sharing  string      `json:"sharing,omitempty"`
	Replicas int         `json:"replicas,omitempty"`
	Owners   []ownerLine `json:"owners,omitempty"`
}

type ownerLine struct {
	Namespace string      `json:"namespace,omitempty"`
	Pod       string      `json:"pod,omitempty"`
	Container string      `json:"container,omitempty"`
	PodUID    string      `json:"pod_uid,omitempty"`
	Resource  string      `json:"resource,omitempty"`
	Replica   string      `json:"replica,omitempty"`
	Part      float64     `json:"part,omitempty"`
	Labels    []labelLine `json:"labels,omitempty"`
}

type labelLine [2]string

type podLine struct {
	PID uint32 `json:"pid"`
	UID string `json:"uid"`
}

type readLine struct {
	At        int64         `json:"at_us"`
	Samples   []sampleGroup `json:"samples,omitempty"`
	Faults    []faultGroup  `json:"faults,omitempty"`
	Processes []processLine `json:"processes,omitempty"`
	// Utilizations are of the entities whose processes say how busy they were.
	Utilizations []utilizationLine `json:"utilizations,omitempty"`
	Health       []healthLine      `json:"health,omitempty"`
	Peers        []peerLine        `json:"peers,omitempty"`
}

// A sampleGroup has the samples of one field; its lists run side by side.
type sampleGroup struct {
	Field  int             `json:"field"`
	Rows   []int           `json:"rows"`
	Values []recordedValue `json:"values"`
	// Ages are microseconds before the Read; left out where all are 0.
	Ages []int64 `json:"ages_us,omitempty"`
}

type faultGroup struct {
	Field  int    `json:"field"`
	Rows   []int  `json:"rows"`
	Reason string `json:"reason"`
}

type processLine struct {
	Row    int            `json:"row"`
	PID    uint32         `json:"pid"`
	Busy   *recordedValue `json:"busy,omitempty"`
	Memory *recordedValue `json:"memory,omitempty"`
	Age    int64          `json:"age_us,omitempty"`
}

type utilizationLine struct {
	Row  int           `json:"row"`
	Busy recordedValue `json:"busy"`
}

type healthLine struct {
	Row    int    `json:"row"`
	Watch  string `json:"watch"`
	Code   string `json:"code,omitempty"`
	Result int64  `json:"result"`
	Age    int64  `json:"age_us,omitempty"`
}

type peerLine struct {
	Row    int    `json:"row"`
	Peer   int    `json:"peer"`
	Status string `json:"status"`
}

type endLine struct {
	Reads int `json:"reads"`
}
