package statefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Version is the version of the file's form that this package writes. It reads
// the earlier one too, which had no Reports.
const Version = 2

// MaxSize bounds a file, in bytes: 64 GPUs with 33 owners of 20 XIDs each need
// less than half of it.
const MaxSize = 16 << 20

// The errors of Decode.
var (
	// ErrCorrupt: the file is no state, or one that contradicts itself.
	ErrCorrupt = errors.New("not a state file")
	// ErrVersion: the file is of a form that a later exporter writes.
	ErrVersion = errors.New("another version of the state file")
)

// A State is what is kept. Times are Unix nanoseconds; zero is never.
type State struct {
	Version int `json:"version"`
	// KernelLog is the position up to which the kernel's log has been read, as
	// its reader spells it; empty where none was.
	KernelLog string `json:"kernel_log,omitempty"`
	GPUs      []GPU  `json:"gpus,omitempty"`
}

// A GPU is what is kept of one GPU. No two have the same UUID.
type GPU struct {
	UUID     string `json:"uuid"`
	PCIBusID string `json:"pci_bus_id,omitempty"`
	// LastXID is the time of the newest XID that the engine reported to an
	// exporter that kept no Reports.
	LastXID int64    `json:"last_xid,omitempty"`
	Reports *Reports `json:"reports,omitempty"`
	Owners  []Owner  `json:"owners,omitempty"`
	// Unpaired are recent XIDs of one source that the other may yet tell too.
	Unpaired []Unpaired `json:"unpaired,omitempty"`
	Clock    []Clock    `json:"clock,omitempty"`
}

// Reports are the engine's reports of XIDs that were counted.
type Reports struct {
	// Known are the newest ones, in the order in which they came.
	Known []Report `json:"known,omitempty"`
	// Floor is the highest ID of those that were counted and are not known; nil
	// where all are.
	Floor *int64 `json:"floor,omitempty"`
}

// A Report is XIDs that were counted: Count with one code and one ID.
type Report struct {
	ID    int64 `json:"id"`
	Code  int64 `json:"xid"`
	Count int64 `json:"count"`
}

// An Owner is what struck a GPU while it had an owner with these labels; none
// are those of no owner.
type Owner struct {
	Labels []Label `json:"labels,omitempty"`
	XIDs   []XID   `json:"xids,omitempty"`
}

// A Label is one label of an owner.
type Label struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// An XID is how often one occurred, and when last. Code is -1 for all those
// that have no count of their own.
type XID struct {
	Code  int64 `json:"xid"`
	Count int64 `json:"count"`
	Last  int64 `json:"last,omitempty"`
}

// An Unpaired is how often one source told an XID within a short time.
type Unpaired struct {
	Kernel bool  `json:"kernel,omitempty"` // the kernel's log told it, else the engine
	Code   int64 `json:"xid"`
	Count  int64 `json:"count"`
	From   int64 `json:"from"` // they happened between From
	To     int64 `json:"to"`   // and To
}

// A Clock is how often one clock event began, and how long it lasted in all.
type Clock struct {
	Event       string `json:"event"`
	Count       int64  `json:"count"`
	Nanoseconds int64  `json:"nanoseconds"`
}

// Encode returns the text of a state. What is no UTF-8 in it is repaired.
func Encode(s *State) ([]byte, error) {
	out := *s
	out.Version = Version
	text, err := json.Marshal(&out)
	if err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}

// MaxCount is the greatest count that a state has: greater ones are this. It leaves room
// for what is added, and a float64 holds it exactly.
const MaxCount = 1 << 53

// maxNanoseconds likewise bounds times that add up: 146 years.
const maxNanoseconds = 1 << 62

// Decode reads the text of a state. The error wraps ErrCorrupt or ErrVersion.
func Decode(text []byte) (*State, error) {
	if len(text) > MaxSize {
		return nil, fmt.Errorf("%w: it has %d bytes, %d at most are expected", ErrCorrupt, len(text), MaxSize)
	}
	var form struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &form); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if form.Version > Version {
		return nil, fmt.Errorf("%w: version %d, this exporter knows %d", ErrVersion, form.Version, Version)
	}
	if form.Version < 1 {
		return nil, fmt.Errorf("%w: version %d, expected 1 to %d", ErrCorrupt, form.Version, Version)
	}
	var s State
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: text after its end", ErrCorrupt)
	}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	s.Version = Version
	s.saturate()
	return &s, nil
}

// saturate bounds what is added to.
func (s *State) saturate() {
	for i := range s.GPUs {
		g := &s.GPUs[i]
		for j := range g.Owners {
			for k := range g.Owners[j].XIDs {
				x := &g.Owners[j].XIDs[k]
				x.Count = min(x.Count, MaxCount)
			}
		}
		for j := range g.Unpaired {
			g.Unpaired[j].Count = min(g.Unpaired[j].Count, MaxCount)
		}
		for j := range g.Clock {
			c := &g.Clock[j]
			c.Count, c.Nanoseconds = min(c.Count, MaxCount), min(c.Nanoseconds, maxNanoseconds)
		}
	}
}

// add adds the counts of an earlier state to s.
func (s *State) add(earlier *State) {
	at := make(map[string]int, len(s.GPUs))
	for i := range s.GPUs {
		at[s.GPUs[i].UUID] = i
	}
	for i := range earlier.GPUs {
		g := &earlier.GPUs[i]
		j, known := at[g.UUID]
		if !known {
			s.GPUs = append(s.GPUs, *g)
			continue
		}
		mine := &s.GPUs[j]
		mine.LastXID = max(mine.LastXID, g.LastXID)
		if mine.Reports == nil {
			mine.Reports = g.Reports
		}
		for k := range g.Owners {
			mine.Owners = addOwner(mine.Owners, &g.Owners[k])
		}
		for _, c := range g.Clock {
			mine.Clock = addClock(mine.Clock, c)
		}
	}
	s.saturate()
}

func addOwner(list []Owner, o *Owner) []Owner {
	i := slices.IndexFunc(list, func(x Owner) bool { return slices.Equal(x.Labels, o.Labels) })
	if i < 0 {
		return append(list, *o)
	}
	for _, x := range o.XIDs {
		j := slices.IndexFunc(list[i].XIDs, func(y XID) bool { return y.Code == x.Code })
		if j < 0 {
			list[i].XIDs = append(list[i].XIDs, x)
			continue
		}
		y := &list[i].XIDs[j]
		y.Count, y.Last = min(y.Count, MaxCount)+x.Count, max(y.Last, x.Last)
	}
	return list
}

func addClock(list []Clock, c Clock) []Clock {
	i := slices.IndexFunc(list, func(x Clock) bool { return x.Event == c.Event })
	if i < 0 {
		return append(list, c)
	}
	x := &list[i]
	x.Count = min(x.Count, MaxCount) + c.Count
	if x.Nanoseconds > maxNanoseconds-c.Nanoseconds {
		x.Nanoseconds = maxNanoseconds
	} else {
		x.Nanoseconds += c.Nanoseconds
	}
	return list
}

// check refuses what the collector could not have written.
func (s *State) check() error {
	seen := map[string]bool{}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		if g.UUID == "" || seen[g.UUID] {
			return fmt.Errorf("GPU %d has no UUID of its own: %q", i, g.UUID)
		}
		seen[g.UUID] = true
		if g.LastXID < 0 {
			return fmt.Errorf("GPU %s: negative time", g.UUID)
		}
		if g.Reports != nil {
			for _, x := range g.Reports.Known {
				if x.Code < 1 || x.Count < 1 {
					return fmt.Errorf("GPU %s: report %d of XID %d, %d times", g.UUID, x.ID, x.Code, x.Count)
				}
			}
		}
		for _, o := range g.Owners {
			for _, x := range o.XIDs {
				if x.Code < -1 || x.Count < 0 || x.Last < 0 {
					return fmt.Errorf("GPU %s: XID %d, %d times, last at %d", g.UUID, x.Code, x.Count, x.Last)
				}
			}
		}
		for _, c := range g.Clock {
			if c.Count < 0 || c.Nanoseconds < 0 {
				return fmt.Errorf("GPU %s: clock event %q, %d times, %d ns", g.UUID, c.Event, c.Count, c.Nanoseconds)
			}
		}
		for _, u := range g.Unpaired {
			if u.Count < 1 || u.From > u.To {
				return fmt.Errorf("GPU %s: XID %d, %d times from %d to %d", g.UUID, u.Code, u.Count, u.From, u.To)
			}
		}
	}
	return nil
}
