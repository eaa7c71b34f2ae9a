package sim

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// A Scenario is a list of faults that happen to a node, at times relative to the start of its
// world. It is immutable.
type Scenario struct {
	file   string
	faults []fault
}

// The faults that a scenario can name.
const (
	faultLost        = "gpu-lost"    // the GPUs answer nothing
	faultUnbound     = "unbound"     // the GPUs are not there: bound to another driver
	faultEngineDown  = "engine-down" // sessions are lost, Open is refused
	faultHang        = "hang"        // calls do not return
	faultXID         = "xid"         // XIDs happen
	faultThrottle    = "throttle"    // clock-event reasons hold
	faultAbsent      = "absent"      // fields give no value
	faultSet         = "set"         // fields give the value of the fault
	faultRepartition = "repartition" // MIG partitions GPUs again
	faultHealth      = "health"      // health watches find something
	faultLink        = "link-down"   // links carry nothing
)

// forever is the end of faults that do not end.
const forever = time.Duration(math.MaxInt64)

// longest bounds the times of a scenario, so that none leaves the range of Unix nanoseconds.
const longest = 10 * 365 * 24 * time.Hour

// faultKeys says which keys a fault takes beside fault, at and for. A key that is true is required.
func faultKeys() map[string]map[string]bool {
	return map[string]map[string]bool{
		faultLost:        {"devices": true},
		faultUnbound:     {"devices": true},
		faultEngineDown:  {},
		faultHang:        {"call": false, "ignore-cancel": false},
		faultXID:         {"devices": true, "xids": true, "apart": false, "reported-by": false},
		faultThrottle:    {"devices": true, "reasons": true},
		faultAbsent:      {"fields": true, "devices": false, "reason": false},
		faultSet:         {"fields": true, "devices": false, "value": false, "text": false},
		faultRepartition: {"devices": true, "mig": false},
		faultHealth:      {"watches": true, "devices": false, "code": false, "result": false},
		faultLink:        {"devices": true},
	}
}

// aboutGPUs reports whether a fault takes whole GPUs only.
func aboutGPUs(kind string) bool {
	switch kind {
	case faultLost, faultUnbound, faultRepartition, faultXID, faultThrottle, faultHealth:
		return true
	default:
		return false
	}
}

type scenarioSpec struct {
	Faults []faultSpec `yaml:"faults"`
}

type faultSpec struct {
	Line         text.Line
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
	Witnesses    []string       `yaml:"reported-by"`
	Reasons      []string       `yaml:"reasons"`
	Text         *string        `yaml:"text"`
	Reason       *string        `yaml:"reason"`
}

// given lists the keys beside fault, at and for that the file gave.
func (s *faultSpec) given() []string {
	var keys []string
	for key, ok := range map[string]bool{
		"devices": s.Devices != nil, "fields": s.Fields != nil, "xids": s.XIDs != nil, "apart": s.Apart != nil,
		"value": s.Value != nil, "call": s.Call != nil, "ignore-cancel": s.IgnoreCancel != nil, "mig": s.MIG != nil,
		"watches": s.Watches != nil, "code": s.Code != nil, "result": s.Result != nil,
		"reported-by": s.Witnesses != nil, "reasons": s.Reasons != nil, "text": s.Text != nil, "reason": s.Reason != nil,
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
	kind          string
	line          int
	at            time.Duration
	until         time.Duration            // forever where it does not end
	devices       []deviceRef              // nil for all
	fields        map[gpu.FieldID]gpu.Unit // with the unit of value
	xids          []int64
	apart         time.Duration
	engine        bool // xid: the engine reports it
	kernel        bool // xid: the kernel's log reports it
	reasons       int64
	value         *float64
	text          string
	open          bool // hang: of Open
	read          bool // hang: of Read
	ignoresCancel bool // hang: does not notice that the context is done
	mig           []string
	watches       uint   // health: bits of watches
	code          string // health: "" for the watch's usual one
	result        int64  // health
	reason        error  // absent: why; nil where the source does not say
	stale         bool   // absent: value and time of before are repeated
}

// within reports whether the fault lasts at a time since the start.
func (f *fault) within(t time.Duration) bool { return t >= f.at && t < f.until }

// on reports whether the fault is about the device.
func (f *fault) on(d *gpu.Device) bool {
	return f.devices == nil || slices.ContainsFunc(f.devices, func(r deviceRef) bool { return r.matches(d) })
}

// concerns reports whether the fault changes what a field gives on a device; id is that of the
// older field of the same measurement where there is one.
func (f *fault) concerns(field *gpu.Field, id gpu.FieldID, d *gpu.Device) bool {
	switch f.kind {
	case faultLink:
		_, changed := linkGives(id)
		return changed && f.on(d)
	default:
		_, named := f.fields[field.ID]
		_, older := f.fields[id]
		return (named || older) && f.on(d)
	}
}

// of reports whether the fault is about the device or the GPU it is part of.
func (f *fault) of(d *gpu.Device) bool {
	if f.on(d) {
		return true
	}
	partOfGPU := d.Entity.ParentKind == gpu.KindGPU
	return partOfGPU && slices.ContainsFunc(f.devices, func(r deviceRef) bool { return r.kind == gpu.KindGPU && r.id == d.GPU })
}

// ParseScenario reads a scenario. file names it in errors, which are of type *text.SyntaxError.
func ParseScenario(r io.Reader, file string) (*Scenario, error) {
	var spec scenarioSpec
	if err := text.DecodeYAML(r, file, &spec); err != nil {
		return nil, err
	}
	s := &Scenario{file: file}
	for i := range spec.Faults {
		f, err := spec.Faults[i].parse()
		if err != nil {
			return nil, &text.SyntaxError{File: file, Line: int(spec.Faults[i].Line), Msg: err.Error()}
		}
		s.faults = append(s.faults, f)
	}
	return s, nil
}

func (s *faultSpec) parse() (fault, error) {
	if err := s.checkKeys(); err != nil {
		return fault{}, err
	}
	f := fault{kind: s.Fault, line: int(s.Line), value: s.Value}
	f.open = s.Call != nil && *s.Call == "open"
	f.read = !f.open
	f.ignoresCancel = s.IgnoreCancel != nil && *s.IgnoreCancel
	if s.MIG != nil {
		f.mig = append([]string{}, *s.MIG...)
	}
	for _, step := range []func(*faultSpec) error{
		f.parseTimes, f.parseXIDs, f.parseWords, f.parseHealth, f.parseReasons, f.parseDevices, f.parseFields,
	} {
		if err := step(s); err != nil {
			return fault{}, err
		}
	}
	return f, nil
}

// checkKeys checks that the fault has the keys of its kind.
func (s *faultSpec) checkKeys() error {
	all := faultKeys()
	keys, ok := all[s.Fault]
	if !ok {
		return fmt.Errorf("unknown fault %q, %s", s.Fault, text.Suggest(s.Fault, slices.Collect(maps.Keys(all))))
	}
	given := s.given()
	for _, key := range given {
		if _, ok := keys[key]; !ok {
			return fmt.Errorf("fault %s takes no key %q", s.Fault, key)
		}
	}
	for key, required := range keys {
		if required && !slices.Contains(given, key) {
			return fmt.Errorf("fault %s needs the key %q", s.Fault, key)
		}
	}
	return nil
}

func (f *fault) parseTimes(s *faultSpec) error {
	f.at, f.until, f.apart = s.At, forever, time.Millisecond
	switch {
	case s.At < 0 || s.At > longest:
		return fmt.Errorf("at is %v, expected 0 to %v after the start", s.At, longest)
	case s.For != nil && (*s.For <= 0 || *s.For > longest):
		return fmt.Errorf("for is %v, expected more than 0, and %v at most", *s.For, longest)
	case s.For != nil:
		f.until = s.At + *s.For
	}
	if s.Apart != nil {
		if f.apart = *s.Apart; f.apart <= 0 || f.apart > time.Hour {
			return fmt.Errorf("apart is %v, expected more than 0, and an hour at most", f.apart)
		}
	}
	return nil
}

func (f *fault) parseXIDs(s *faultSpec) error {
	both := s.Witnesses == nil
	f.xids, f.engine, f.kernel = s.XIDs, both, both
	for _, x := range s.XIDs {
		if x <= 0 {
			return fmt.Errorf("xid %d, expected a positive number", x)
		}
	}
	for _, witness := range s.Witnesses {
		switch witness {
		case "engine":
			f.engine = true
		case "kernel":
			f.kernel = true
		default:
			return fmt.Errorf("reported-by %q, %s", witness, text.Suggest(witness, []string{"engine", "kernel"}))
		}
	}
	return nil
}

func (f *fault) parseWords(s *faultSpec) error {
	if s.Call != nil && *s.Call != "open" && *s.Call != "read" {
		return fmt.Errorf("call is %q, expected open or read", *s.Call)
	}
	if s.Reason != nil {
		reasons := map[string]error{"not_supported": gpu.ErrNotSupported, "permission": gpu.ErrPermission, "unavailable": gpu.ErrUnavailable}
		f.stale, f.reason = *s.Reason == "stale", reasons[*s.Reason]
		if !f.stale && f.reason == nil {
			return fmt.Errorf("reason is %q, expected not_supported, permission, stale or unavailable", *s.Reason)
		}
	}
	return nil
}

func (f *fault) parseDevices(s *faultSpec) error {
	for _, text := range s.Devices {
		ref, err := parseDevice(text)
		switch {
		case err != nil:
			return err
		case ref.kind != gpu.KindGPU && aboutGPUs(f.kind):
			return fmt.Errorf("device %q, fault %s is about whole GPUs", text, f.kind)
		case ref.kind != gpu.KindNVLink && f.kind == faultLink:
			return fmt.Errorf("device %q, fault %s is about links such as \"nvlink 0/4\" and \"nvswitch 1/7\"", text, f.kind)
		}
		f.devices = append(f.devices, ref)
	}
	return nil
}

// A plot is what a scenario has in store for a world.
type plot struct {
	relayouts []relayout   // sorted by time
	throttles [][]throttle // by GPU
}

// check reports faults that this node cannot have, and returns the plot of the others.
func (s *Scenario) check(n *Node, start int64) (plot, error) {
	p := plot{throttles: make([][]throttle, len(n.gpus))}
	if s == nil {
		return p, nil
	}
	var list []relayout
	for i := range s.faults {
		f := &s.faults[i]
		at := func(err error) error { return &text.SyntaxError{File: s.file, Line: f.line, Msg: err.Error()} }
		for _, ref := range f.devices {
			if !n.exists(ref) {
				return plot{}, at(n.noDevice(ref))
			}
			if f.kind != faultRepartition {
				continue
			}
			g := &n.gpus[ref.id]
			if g.board.MIG == nil {
				return plot{}, at(fmt.Errorf("GPU %d is a %s, which has no MIG", ref.id, g.board.Name))
			}
			then := relayout{at: start + int64(f.at), gpu: ref.id, partitioned: f.mig != nil}
			if f.mig != nil {
				layout, err := g.board.place(f.mig)
				if err != nil {
					return plot{}, at(err)
				}
				then.layout = layout
			}
			list = append(list, then)
			if f.until != forever {
				list = append(list, relayout{at: start + int64(f.until), gpu: ref.id, partitioned: g.mig, layout: g.layout})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b relayout) int { return cmp.Compare(a.at, b.at) })
	p.relayouts, p.throttles = list, s.throttles(len(n.gpus), start)
	return p, nil
}
