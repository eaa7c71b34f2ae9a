package sim

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// A Scenario is an immutable list of faults of a node, at times relative to the start of the simulation.
type Scenario struct {
	file   string
	Faults []fault
}

// The faults that a scenario can name.
const (
	faultLost        = "gpu-lost"    // the GPUs do not answer
	faultUnbound     = "unbound"     // the GPUs are bound to another driver
	faultEngineDown  = "engine-down" // sessions are lost, and Open fails
	faultHang        = "hang"        // calls do not return
	faultXID         = "xid"         // XIDs occur
	faultSXID        = "sxid"        // errors of NVSwitches occur
	faultThrottle    = "throttle"    // clock event reasons are active
	faultAbsent      = "absent"      // fields have no value
	faultSet         = "set"         // fields have the value of the fault
	faultRepartition = "repartition" // MIG partitions GPUs differently
	faultHealth      = "health"      // health watches find something
	faultLink        = "link-down"   // links are down
)

const (
	// longest bounds the times of a scenario, so that all fit Unix nanoseconds.
	longest = 10 * 365 * 24 * time.Hour
	// forever is the duration of faults that do not end.
	forever = 10 * longest
)

// faultKinds lists the keys that each fault accepts in addition to fault, at and for, and whether its devices must be
// whole GPUs.
var faultKinds = map[string]struct {
	required, optional string // separated by spaces; what is required is a list
	ofGPUs             bool
}{
	faultLost:        {required: "devices", ofGPUs: true},
	faultUnbound:     {required: "devices", ofGPUs: true},
	faultEngineDown:  {},
	faultHang:        {optional: "call ignore-cancel"},
	faultXID:         {required: "devices xids", optional: "apart reported-by text", ofGPUs: true},
	faultSXID:        {required: "devices xids", optional: "apart result"},
	faultThrottle:    {required: "devices reasons", ofGPUs: true},
	faultAbsent:      {required: "fields", optional: "devices reason"},
	faultSet:         {required: "fields", optional: "devices value rate text"},
	faultRepartition: {required: "devices", optional: "mig", ofGPUs: true},
	faultHealth:      {required: "watches", optional: "devices code result"},
	faultLink:        {required: "devices"},
}

// A fault is one entry of a scenario.
type fault struct {
	Kind                                   string `yaml:"fault"`
	At                                     time.Duration
	For                                    *time.Duration
	Apart                                  time.Duration
	Value                                  *float64
	Rate                                   float64 // growth of value per second
	XIDs                                   []int64
	Devices, Fields, MIG, Watches, Reasons []string
	Text, Call, Result, Reason             string
	Code                                   string   // empty for the watch's default
	Witnesses                              []string `yaml:"reported-by"`
	IgnoreCancel                           bool     `yaml:"ignore-cancel"`

	node    *yaml.Node
	devices []deviceRef              // nil means all
	fields  map[gpu.FieldID]gpu.Unit // fields with the unit of the value
	mask    int64                    // mask of clock event reasons

	from, to int64 // when the fault is active, in Unix nanoseconds; set by newWorld
}

// occurs returns when the i-th XID of the fault occurs, in Unix nanoseconds.
func (f *fault) occurs(i int) int64 { return f.from + int64(i)*int64(f.Apart) }

// within reports whether the fault is active at a time in Unix nanoseconds.
func (f *fault) within(t int64) bool { return t >= f.from && t < f.to }

// on reports whether the fault affects the device. An SXID of a link belongs to its switch.
func (f *fault) on(d *gpu.Device) bool {
	return f.devices == nil || slices.Contains(f.devices, refOf(d)) ||
		f.Kind == faultSXID && d.Entity.Kind == gpu.KindNVSwitch && f.names(d.Entity.ID)
}

// names reports whether the fault names the device with an ID, or a part of it. All its devices must be of one kind.
func (f *fault) names(index uint32) bool {
	return slices.ContainsFunc(f.devices, func(r deviceRef) bool { return r.id == index })
}

// seenBy reports whether a source of XIDs ("engine" or "kernel") reports the XIDs of the fault.
func (f *fault) seenBy(witness string) bool {
	return f.Witnesses == nil || slices.Contains(f.Witnesses, witness)
}

// unitOf returns the unit of the fault's value for a field, and whether the fault has the field. The fault may name
// base, the same measurement of older engines.
func (f *fault) unitOf(id, base gpu.FieldID) (gpu.Unit, bool) {
	unit, ok := f.fields[id]
	if !ok {
		unit, ok = f.fields[base]
	}
	return unit, ok
}

// ParseScenario parses a scenario. Errors are of type *text.SyntaxError and name file.
func ParseScenario(content []byte, file string) (*Scenario, error) {
	s := &Scenario{file: file}
	root, err := text.DecodeYAML(file, content, s)
	if err != nil {
		return nil, err
	}
	for i := range s.Faults {
		f := &s.Faults[i]
		f.node = text.NodeAt(text.NodeAt(root, "faults").Content[i])
		for _, parse := range []func() error{f.checkKeys, f.checkNumbers, f.parseWords, f.parseDevices, f.parseFields} {
			if err := parse(); err != nil {
				return nil, s.at(f, err)
			}
		}
	}
	return s, nil
}

// at adds the line of a fault to an error about it.
func (s *Scenario) at(f *fault, err error) error {
	return &text.SyntaxError{File: s.file, Line: f.node.Line, Msg: err.Error()}
}

// checkKeys checks that the fault has only keys of its kind, and elements in those that it needs.
func (f *fault) checkKeys() error {
	if err := known("unknown fault", f.Kind, slices.Collect(maps.Keys(faultKinds))); err != nil {
		return err
	}
	kind := faultKinds[f.Kind]
	for _, key := range strings.Fields(kind.required) {
		if list := text.NodeAt(f.node, key); list == nil || len(list.Content) == 0 {
			return fmt.Errorf("fault %s needs a list %q that is not empty", f.Kind, key)
		}
	}
	accepted := strings.Fields("fault at for " + kind.required + " " + kind.optional)
	for i := 0; i < len(f.node.Content); i += 2 {
		if key := text.NodeAt(f.node.Content[i]).Value; !slices.Contains(accepted, key) {
			return fmt.Errorf("fault %s does not accept the key %q", f.Kind, key)
		}
	}
	return nil
}

func (f *fault) checkNumbers() error {
	isFinite := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
	switch {
	case f.At < 0 || f.At > longest:
		return fmt.Errorf("at is %v, expected 0 to %v after the start", f.At, longest)
	case f.For != nil && (*f.For <= 0 || *f.For > longest):
		return fmt.Errorf("for is %v, expected more than 0 and at most %v", *f.For, longest)
	case f.Apart < 0 || f.Apart > time.Hour:
		return fmt.Errorf("apart is %v, expected more than 0 and at most 1h", f.Apart)
	case f.Rate != 0 && f.Value == nil:
		return errors.New("rate needs the key \"value\", which it increases")
	case f.Value != nil && !isFinite(*f.Value) || !isFinite(f.Rate):
		return errors.New("value and rate must be finite numbers")
	case f.Kind == faultSet && (f.Value == nil) == (f.Text == ""):
		return errors.New("fault set needs either the key \"value\" or the key \"text\"")
	}
	for _, x := range f.XIDs {
		if x <= 0 {
			return fmt.Errorf("xid %d, expected a positive number", x)
		}
	}
	f.Apart = cmp.Or(f.Apart, time.Millisecond)
	return nil
}

// absentReasons maps the reason of an absent fault to the error that the source reports. It is nil if the source
// repeats the previous sample or reports nothing.
var absentReasons = map[string]error{
	"stale":           nil,
	"not_supported":   gpu.ErrNotSupported,
	"permission":      gpu.ErrPermission,
	"unavailable":     gpu.ErrUnavailable,
	"needs_dcgm":      gpu.ErrNeedsDCGM,
	"needs_sys_admin": gpu.ErrNeedsAdmin,
}

// parseWords parses the keys whose values are words of a list.
func (f *fault) parseWords() error {
	reasons := map[string]int64{"sw_power_cap": reasonPowerCap}
	for _, e := range catalog.ClockEvents()[1:] { // only the model knows which GPU is idle
		reasons[e.Name] = e.Mask
	}
	var names []string
	for _, w := range builtIn().Watches {
		names = append(names, w.Name)
	}
	for _, list := range []struct {
		what         string
		words, known []string
	}{
		{"call", []string{f.Call}, []string{"open", "read"}},
		{"reason", []string{f.Reason}, slices.Collect(maps.Keys(absentReasons))},
		{"result", []string{f.Result}, []string{"warn", "fail"}},
		{"reported-by", f.Witnesses, []string{"engine", "kernel"}},
		{"reason of a throttle", f.Reasons, slices.Collect(maps.Keys(reasons))},
		{"health watch", f.Watches, names},
	} {
		for _, word := range list.words {
			if err := known("unknown "+list.what, word, list.known); err != nil && word != "" {
				return err
			}
			f.mask |= reasons[word]
		}
	}
	if f.Code != "" && !strings.HasPrefix(f.Code, "DCGM_FR_") {
		return fmt.Errorf("code is %q, expected a name of dcgm_errors.h such as DCGM_FR_NVLINK_DOWN", f.Code)
	}
	return nil
}

func (f *fault) parseDevices() error {
	for _, name := range f.Devices {
		ref, err := parseDevice(name)
		switch {
		case err != nil:
			return err
		case ref.kind != gpu.KindGPU && faultKinds[f.Kind].ofGPUs:
			return fmt.Errorf("device %q: fault %s needs a whole GPU, such as \"3\"", name, f.Kind)
		case f.Kind == faultHealth && !slices.ContainsFunc(builtIn().Watches, func(w watch) bool {
			return w.Of == ref.kind.String() && slices.Contains(f.Watches, w.Name)
		}):
			return fmt.Errorf("device %q has no health watch %s", name, strings.Join(f.Watches, " or "))
		case f.Kind == faultSXID && ref.kind != gpu.KindNVSwitch && ref.of != gpu.KindNVSwitch:
			const form = `device %q: fault %s needs a switch such as "nvswitch 1" or a link such as "nvswitch 1/7"`
			return fmt.Errorf(form, name, f.Kind)
		case f.Kind == faultLink && ref.kind != gpu.KindNVLink:
			return fmt.Errorf(`device %q: fault %s needs a link such as "nvlink 0/4" or "nvswitch 1/7"`, name, f.Kind)
		}
		f.devices = append(f.devices, ref)
	}
	return nil
}

// linkFields lists the fields that are 0 on a link that is down: the state of a switch's link (off) and of a GPU's
// (NVML_NVLINK_STATE_INACTIVE), and the rates. Byte counters continue, since the model spreads the traffic of a GPU
// over the remaining links.
var linkFields = []string{"870", "1508", "1529", "1530", "1531", "1532", "1533"}

// parseFields resolves the fields and checks that the value has their type.
func (f *fault) parseFields() error {
	switch {
	case f.Kind == faultLink:
		f.Fields, f.Value = linkFields, new(float64)
	case f.Kind == faultSXID && f.Result == "warn":
		f.Fields = []string{"DCGM_FI_DEV_NVSWITCH_NON_FATAL_ERRORS"}
	case f.Kind == faultSXID:
		f.Fields = []string{"DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS"}
	}
	f.fields = map[gpu.FieldID]gpu.Unit{}
	for _, name := range f.Fields {
		list, err := fieldsNamed(name)
		if err != nil {
			return err
		}
		for _, named := range list {
			if f.Kind == faultSet && (named.Entry.Type == catalog.Text) != (f.Value == nil) {
				return fmt.Errorf("field %s: use the key \"text\" for strings and \"value\" for numbers", named.Name)
			}
			f.fields[named.Entry.ID] = named.Unit
		}
	}
	return nil
}

// fieldsNamed returns the fields for a name of either vocabulary, a DCGM field number, or a pattern of names such as
// DCGM_FI_PROF_*.
func fieldsNamed(pattern string) (list []catalog.Named, err error) {
	if named, ok := catalog.Lookup(pattern); ok {
		return []catalog.Named{named}, nil
	}
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, fmt.Errorf("pattern %q of fields: %w", pattern, err)
	}
	for e := range catalog.All() {
		for _, name := range []string{e.Classic, e.Current, e.Name, strconv.Itoa(int(e.ID))} {
			if like, _ := path.Match(pattern, name); like && e.Exportable() {
				named, ok := catalog.Lookup(name)
				if !ok { // pattern is a number
					named, _ = catalog.Lookup(e.Name)
				}
				list = append(list, named)
				break
			}
		}
	}
	if list != nil {
		return list, nil
	}
	if near := catalog.Nearest(pattern); near != "" {
		return nil, fmt.Errorf("unknown field %q, did you mean %s?", pattern, near)
	}
	return nil, fmt.Errorf("unknown field %q", pattern)
}

// value returns the value of a field under the fault at a time, in the unit of the plan. unit is that of the fault.
func (f *fault) value(field *gpu.Field, unit gpu.Unit, now int64) gpu.Value {
	age := time.Duration(now - f.from)
	if f.Kind == faultSXID {
		return gpu.Int(f.XIDs[min(int(age/f.Apart), len(f.XIDs)-1)])
	}
	if f.Value == nil {
		return gpu.Text(f.Text)
	}
	v := gpu.Float(*f.Value + f.Rate*age.Seconds())
	if factor, ok := catalog.Conversion(unit, field.Unit); ok && factor != 1 {
		v = v.Scale(factor)
	}
	if n, _ := v.Number(); n == float64(int64(n)) {
		return gpu.Int(int64(n))
	}
	return v
}
