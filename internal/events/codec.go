package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/events/statefile"
)

// Version is the version of the form of a State that is written. The earlier one, which had no
// Reports, is read, too.
const Version = 2

// Form is how a state file has a State.
func Form() statefile.Form[State] {
	return statefile.Form[State]{Decode: Decode, Encode: Encode, Add: (*State).add}
}

// Encode returns the text of a state. What is not UTF-8 in it is repaired.
func Encode(s *State) ([]byte, error) {
	out := *s
	out.Version = Version
	text, err := json.Marshal(&out)
	if err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}

// MaxCount is the greatest count that a state has: greater ones are this. It leaves room for what
// is added, and a float64 holds it exactly.
const MaxCount = 1 << 53

// maxNanoseconds likewise bounds times that add up: 146 years.
const maxNanoseconds = 1 << 62

// Decode reads the text of a state. The error wraps statefile.ErrCorrupt or statefile.ErrVersion.
func Decode(text []byte) (*State, error) {
	if len(text) > statefile.MaxSize {
		return nil, fmt.Errorf("%w: it has %d bytes, %d at most are expected", statefile.ErrCorrupt, len(text), statefile.MaxSize)
	}
	var form struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &form); err != nil {
		return nil, fmt.Errorf("%w: %w", statefile.ErrCorrupt, err)
	}
	if form.Version > Version {
		return nil, fmt.Errorf("%w: version %d, this exporter knows %d", statefile.ErrVersion, form.Version, Version)
	}
	if form.Version < 1 {
		return nil, fmt.Errorf("%w: version %d, expected 1 to %d", statefile.ErrCorrupt, form.Version, Version)
	}
	var s State
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return nil, fmt.Errorf("%w: %w", statefile.ErrCorrupt, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: text after its end", statefile.ErrCorrupt)
	}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", statefile.ErrCorrupt, err)
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

func addOwner(list []OwnerXIDs, o *OwnerXIDs) []OwnerXIDs {
	i := slices.IndexFunc(list, func(x OwnerXIDs) bool { return slices.Equal(x.Labels, o.Labels) })
	if i < 0 {
		return append(list, *o)
	}
	for _, x := range o.XIDs {
		j := slices.IndexFunc(list[i].XIDs, func(y XIDCount) bool { return y.Code == x.Code })
		if j < 0 {
			list[i].XIDs = append(list[i].XIDs, x)
			continue
		}
		y := &list[i].XIDs[j]
		y.Count, y.Last = min(y.Count, MaxCount)+x.Count, max(y.Last, x.Last)
	}
	return list
}

func addClock(list []ClockTotal, c ClockTotal) []ClockTotal {
	i := slices.IndexFunc(list, func(x ClockTotal) bool { return x.Event == c.Event })
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

// check refuses what no Log could have kept.
func (s *State) check() error {
	seen := map[string]bool{}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		if g.UUID == "" || seen[g.UUID] {
			return fmt.Errorf("GPU %d has no UUID of its own: %q", i, g.UUID)
		}
		seen[g.UUID] = true
		if what := g.impossible(); what != "" {
			return fmt.Errorf("GPU %s: %s", g.UUID, what)
		}
	}
	return nil
}

// impossible returns what of the counts cannot be, "" where all can.
func (g *GPUCounts) impossible() string {
	if g.LastXID < 0 {
		return "negative time"
	}
	if g.Reports != nil {
		for _, x := range g.Reports.Known {
			if x.Code < 1 || x.Count < 1 {
				return fmt.Sprintf("report %d of XID %d, %d times", x.ID, x.Code, x.Count)
			}
		}
	}
	for _, o := range g.Owners {
		for _, x := range o.XIDs {
			if x.Code < otherXIDs || x.Count < 0 || x.Last < 0 {
				return fmt.Sprintf("XID %d, %d times, last at %d", x.Code, x.Count, x.Last)
			}
		}
	}
	for _, c := range g.Clock {
		if c.Count < 0 || c.Nanoseconds < 0 {
			return fmt.Sprintf("clock event %q, %d times, %d ns", c.Event, c.Count, c.Nanoseconds)
		}
	}
	for _, u := range g.Unpaired {
		if u.Count < 1 || u.From > u.To {
			return fmt.Sprintf("XID %d, %d times from %d to %d", u.Code, u.Count, u.From, u.To)
		}
	}
	return ""
}
