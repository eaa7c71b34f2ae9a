package sim

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Scenario is a list of faults that befall a node, at times relative to the
// start of its world. It is immutable.
type Scenario struct {
	file   string
	faults []fault
}

// The faults that a scenario can name.
const (
	faultLost         = "gpu-lost"      // the GPUs answer nothing
	faultEngineDown   = "engine-down"   // sessions are lost, Open is refused
	faultDriverAbsent = "driver-absent" // Open is refused
	faultHang         = "hang"          // calls do not return
	faultXID          = "xid"           // XIDs happen
	faultAbsent       = "absent"        // fields give no value
	faultNotSupported = "not-supported" // fields give no value, for good reason
	faultPermission   = "no-permission" // fields give no value, for lack of rights
	faultSpike        = "spike"         // fields give garbage
	faultFreeze       = "freeze"        // fields keep value and timestamp
	faultRepartition  = "repartition"   // MIG cuts GPUs anew
	faultHealth       = "health"        // health watches find something
)

// forever is the end of faults that do not end.
const forever = time.Duration(math.MaxInt64)

// longest bounds the times of a scenario, so that none leaves the range of
// Unix nanoseconds.
const longest = 10 * 365 * 24 * time.Hour

// faultKeys says which keys a fault takes beside fault, at and for. A key
// that is true is required.
func faultKeys() map[string]map[string]bool {
	cells := map[string]bool{"fields": true, "devices": false}
	return map[string]map[string]bool{
		faultLost:         {"devices": true},
		faultEngineDown:   {},
		faultDriverAbsent: {},
		faultHang:         {"call": false, "ignore-cancel": false},
		faultXID:          {"devices": true, "xids": true, "apart": false},
		faultAbsent:       cells,
		faultNotSupported: cells,
		faultPermission:   cells,
		faultSpike:        {"fields": true, "devices": false, "value": false},
		faultFreeze:       cells,
		faultRepartition:  {"devices": true, "mig": false},
		faultHealth:       {"watches": true, "devices": false, "code": false, "result": false},
	}
}

type scenarioSpec struct {
	Faults []faultSpec `yaml:"faults"`
}

type faultSpec struct {
	Line         lineNumber
	Fault        string         `yaml:"fault"`
	At           time.Duration  `yaml:"at"`
	For          *time.Duration `yaml:"for"`
	Devices      []string       `yaml:"devices"`
	Fields       []string       `yaml:"fields"`
	XIDs         []int64        `yaml:"xids"`
	Apart        *time.Duration `yaml:"apart"`
	Value        *float64       `yaml:"value"`
	Call         *string        `yaml:"call"`
	IgnoreCancel *bool          `yaml:"ignore-cancel"`
	MIG          *[]string      `yaml:"mig"`
	Watches      []string       `yaml:"watches"`
	Code         *string        `yaml:"code"`
	Result       *string        `yaml:"result"`
}

// given lists the keys beside fault, at and for that the file gave.
func (s *faultSpec) given() []string {
	var keys []string
	for key, ok := range map[string]bool{
		"devices": s.Devices != nil, "fields": s.Fields != nil, "xids": s.XIDs != nil, "apart": s.Apart != nil,
		"value": s.Value != nil, "call": s.Call != nil, "ignore-cancel": s.IgnoreCancel != nil, "mig": s.MIG != nil,
		"watches": s.Watches != nil, "code": s.Code != nil, "result": s.Result != nil,
	} {
		if ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// A fault is one entry of a scenario.
type fault struct {
	kind    string
	line    int
	at      time.Duration
	until   time.Duration // forever where it does not end
	devices []deviceRef   // nil for all
	fields  map[gpu.FieldID]bool
	xids    []int64
	apart   time.Duration
	value   *float64
	open    bool // hang: of Open
	read    bool // hang: of Read
	deaf    bool // hang: does not notice that the context is done
	mig     []string
	watches uint   // health: bits of watches
	code    string // health: "" for the watch's usual one
	result  int64  // health
}

// within reports whether the fault lasts at a time since the start.
func (f *fault) within(t time.Duration) bool { return t >= f.at && t < f.until }

// on reports whether the fault is about the device.
func (f *fault) on(d *gpu.Device) bool {
	return f.devices == nil || slices.ContainsFunc(f.devices, func(r deviceRef) bool { return r.matches(d) })
}

// of reports whether the fault is about the device or the GPU it is part of.
func (f *fault) of(d *gpu.Device) bool {
	if f.on(d) {
		return true
	}
	partOfGPU := d.Entity.ParentKind == gpu.KindGPU
	return partOfGPU && slices.ContainsFunc(f.devices, func(r deviceRef) bool { return r.kind == gpu.KindGPU && r.id == d.GPU })
}

// ParseScenario reads a scenario. file names it in errors, which are of type
// *SyntaxError.
func ParseScenario(r io.Reader, file string) (*Scenario, error) {
	var spec scenarioSpec
	if err := decode(r, file, &spec); err != nil {
		return nil, err
	}
	s := &Scenario{file: file}
	for i := range spec.Faults {
		f, err := spec.Faults[i].parse()
		if err != nil {
			return nil, &SyntaxError{File: file, Line: int(spec.Faults[i].Line), Msg: err.Error()}
		}
		s.faults = append(s.faults, f)
	}
	return s, nil
}

func (s *faultSpec) parse() (fault, error) {
	all := faultKeys()
	keys, ok := all[s.Fault]
	if !ok {
		names := make([]string, 0, len(all))
		for name := range all {
			names = append(names, name)
		}
		return fault{}, fmt.Errorf("unknown fault %q%s", s.Fault, didYouMean(s.Fault, names))
	}
	given := s.given()
	for _, key := range given {
		if _, ok := keys[key]; !ok {
			return fault{}, fmt.Errorf("fault %s takes no key %q", s.Fault, key)
		}
	}
	for key, required := range keys {
		if required && !slices.Contains(given, key) {
			return fault{}, fmt.Errorf("fault %s needs the key %q", s.Fault, key)
		}
	}
	f := fault{
		kind: s.Fault, line: int(s.Line), at: s.At, until: forever,
		xids: s.XIDs, apart: time.Millisecond, value: s.Value,
	}
	if s.At < 0 || s.At > longest {
		return fault{}, fmt.Errorf("at is %v, expected 0 to %v after the start", s.At, longest)
	}
	if s.For != nil {
		if *s.For <= 0 || *s.For > longest {
			return fault{}, fmt.Errorf("for is %v, expected more than 0, and %v at most", *s.For, longest)
		}
		f.until = s.At + *s.For
	}
	if s.Apart != nil {
		if f.apart = *s.Apart; f.apart <= 0 || f.apart > time.Hour {
			return fault{}, fmt.Errorf("apart is %v, expected more than 0, and an hour at most", f.apart)
		}
	}
	for _, x := range s.XIDs {
		if x <= 0 {
			return fault{}, fmt.Errorf("xid %d, expected a positive number", x)
		}
	}
	if s.Call != nil {
		if *s.Call != "open" && *s.Call != "read" {
			return fault{}, fmt.Errorf("call is %q, expected open or read", *s.Call)
		}
	}
	f.open = s.Call != nil && *s.Call == "open"
	f.read = !f.open
	f.deaf = s.IgnoreCancel != nil && *s.IgnoreCancel
	if s.MIG != nil {
		f.mig = append([]string{}, *s.MIG...)
	}
	if err := f.parseHealth(s); err != nil {
		return fault{}, err
	}
	for _, text := range s.Devices {
		ref, err := parseDevice(text)
		if err != nil {
			return fault{}, err
		}
		if ref.kind != gpu.KindGPU && (s.Fault == faultLost || s.Fault == faultRepartition || s.Fault == faultXID || s.Fault == faultHealth) {
			return fault{}, fmt.Errorf("device %q, fault %s is about whole GPUs", text, s.Fault)
		}
		f.devices = append(f.devices, ref)
	}
	return f, f.parseFields(s.Fields)
}

// parseFields resolves field names of either vocabulary, and numbers.
func (f *fault) parseFields(names []string) error {
	f.fields = map[gpu.FieldID]bool{}
	for _, name := range names {
		if id, err := strconv.ParseUint(name, 10, 16); err == nil {
			if _, ok := counters.ByID(gpu.FieldID(id)); !ok {
				return fmt.Errorf("unknown field id %d", id)
			}
			f.fields[gpu.FieldID(id)] = true
			continue
		}
		named, ok := counters.Lookup(name)
		if !ok {
			hint := ""
			if near := counters.Nearest(name); near != "" {
				hint = fmt.Sprintf(", did you mean %s?", near)
			}
			return fmt.Errorf("unknown field %q%s", strings.TrimSpace(name), hint)
		}
		f.fields[named.Entry.ID] = true
		if named.Entry.BaseOf != 0 {
			f.fields[named.Entry.BaseOf] = true
		}
	}
	return nil
}

// check reports faults that this node cannot have, and returns the
// repartitions as the world needs them.
func (s *Scenario) check(n *Node, start int64) ([]relayout, error) {
	if s == nil {
		return nil, nil
	}
	var list []relayout
	for i := range s.faults {
		f := &s.faults[i]
		at := func(err error) error { return &SyntaxError{File: s.file, Line: f.line, Msg: err.Error()} }
		for _, ref := range f.devices {
			if !n.exists(ref) {
				return nil, at(fmt.Errorf("node %s has no such device (fault %s)", n.spec.Name, f.kind))
			}
			if f.kind != faultRepartition {
				continue
			}
			g := &n.gpus[ref.id]
			if g.board.MIG == nil {
				return nil, at(fmt.Errorf("GPU %d is a %s, which has no MIG", ref.id, g.board.Name))
			}
			then := relayout{at: start + int64(f.at), gpu: ref.id, cut: f.mig != nil}
			if f.mig != nil {
				layout, err := g.board.place(f.mig)
				if err != nil {
					return nil, at(err)
				}
				then.layout = layout
			}
			list = append(list, then)
			if f.until != forever {
				list = append(list, relayout{at: start + int64(f.until), gpu: ref.id, cut: g.mig, layout: g.layout})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b relayout) int { return cmp.Compare(a.at, b.at) })
	return list, nil
}
