package dcgm

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// errNoEntity says that this machine has no entity of a field's kind, or none is selected.
var errNoEntity = fmt.Errorf("%w", gpu.ErrNotSupported)

// The fields of the links of switches (dcgm_fields.h); DCGM refuses all others for them.
const (
	firstSwitchField = 700 // DCGM_FI_FIRST_NVSWITCH_FIELD_ID
	lastSwitchField  = 899 // DCGM_FI_LAST_NVSWITCH_FIELD_ID
)

func ofSwitches(id gpu.FieldID) bool { return id >= firstSwitchField && id <= lastSwitchField }

// A scope is entities that share their fields: links of GPUs are one, links of switches another.
type scope struct {
	kind, parent gpu.Kind // parent is set for links alone
}

func scopeOf(e gpu.Entity) scope {
	if e.Kind == gpu.KindNVLink {
		return scope{e.Kind, e.ParentKind}
	}
	return scope{kind: e.Kind}
}

// has reports whether a field exists for the entities of the scope.
func (a scope) has(f *gpu.Field) bool {
	if !f.Levels.Has(a.kind) {
		return false
	}
	return a.kind != gpu.KindNVLink || ofSwitches(f.ID) == (a.parent == gpu.KindNVSwitch)
}

// scopes are the kinds that the source reads, in the order of rows.
var scopes = [...]scope{
	{kind: gpu.KindGPU}, {kind: gpu.KindGPUInstance},
	{gpu.KindNVLink, gpu.KindGPU}, {kind: gpu.KindNVSwitch}, {gpu.KindNVLink, gpu.KindNVSwitch},
	{kind: gpu.KindCPU}, {kind: gpu.KindCPUCore}, {kind: gpu.KindConnectX},
}

// needs reports whether some field of the plan exists for a scope, or its health is requested. Others
// have no rows.
func (s *Session) needs(a scope) bool {
	return s.plan.Health.Has(a.kind) || slices.ContainsFunc(s.plan.Fields, func(f gpu.Field) bool { return a.has(&f) })
}

// A member is an entity of the engine and the device that it becomes.
type member struct {
	entity
	gpu.Device
}

// others are everything but the GPUs and their instances.
type others struct {
	members []member           // the selected ones, in the order of rows
	failed  map[gpu.Kind]error // of the kinds that the plan needs, why they are not known
}

// of returns the members of a kind.
func (o *others) of(kind gpu.Kind) (list []entity) {
	for _, m := range o.members {
		if m.Entity.Kind == kind {
			list = append(list, m.entity)
		}
	}
	return list
}

// survey lists the others. A kind that the engine cannot list, for lack of a module, costs itself.
func (s *Session) survey() (others, error) {
	o := others{failed: map[gpu.Kind]error{}}
	links, cpus := sync.OnceValues(s.engine.links), sync.OnceValues(s.engine.cpus)
	for _, a := range scopes {
		if a.kind == gpu.KindGPU || a.kind == gpu.KindGPUInstance || !s.needs(a) {
			continue
		}
		list, err := s.list(a, links, cpus)
		if s.isOver(err) {
			return o, err
		}
		o.failed[a.kind] = err
		o.members = append(o.members, slices.DeleteFunc(list, func(m member) bool { return !s.plan.Selects(m.Entity) })...)
	}
	return o, nil
}

// list returns the members of a scope.
func (s *Session) list(a scope, links func() ([]link, error), cpus func() ([]cpu, error)) (list []member, err error) {
	add := func(e gpu.Entity, serial string) {
		list = append(list, member{entity{engineGroup(e.Kind), e.ID}, gpu.Device{Entity: e, Serial: serial}})
	}
	switch a.kind {
	case gpu.KindNVLink:
		found, err := links()
		return s.membersOf(found, a), err
	case gpu.KindCPU, gpu.KindCPUCore:
		found, err := cpus()
		for _, c := range found {
			if a.kind == gpu.KindCPU {
				add(gpu.Entity{Kind: a.kind, ID: c.id}, c.serial)
				continue
			}
			for _, core := range c.cores {
				add(gpu.Entity{Kind: a.kind, ID: core, ParentKind: gpu.KindCPU, Parent: c.id}, c.serial)
			}
		}
		return list, err
	default:
		ids, err := s.engine.entities(engineGroup(a.kind))
		for _, id := range slices.Sorted(slices.Values(ids)) {
			add(gpu.Entity{Kind: a.kind, ID: id}, "")
		}
		return list, err
	}
}

// membersOf returns the links of GPUs that have rows, or those of switches.
func (s *Session) membersOf(links []link, a scope) (list []member) {
	slices.SortFunc(links, func(a, b link) int {
		return cmp.Or(cmp.Compare(a.parent.id, b.parent.id), cmp.Compare(a.index, b.index))
	})
	for _, l := range links {
		if l.parent.group != engineGroup(a.parent) || a.parent == gpu.KindGPU && s.layout.isLeftOut(l.parent.id) {
			continue
		}
		list = append(list, member{l.entity(), gpu.Device{
			Entity: gpu.Entity{Kind: a.kind, ParentKind: a.parent, Parent: l.parent.id, ID: l.index}, Link: l.index,
		}})
	}
	return list
}

// engineGroup names the kinds of whole devices to the engine.
func engineGroup(kind gpu.Kind) entityGroup {
	switch kind {
	case gpu.KindGPU:
		return groupGPU
	case gpu.KindNVSwitch:
		return groupSwitch
	case gpu.KindCPU:
		return groupCPU
	case gpu.KindCPUCore:
		return groupCore
	case gpu.KindConnectX:
		return groupConnectX
	default:
		return groupNone
	}
}

// unserved makes the faults of the fields that no row of the topology has.
func (s *Session) unserved() {
	for f := range s.plan.Fields {
		field := &s.plan.Fields[f]
		served := slices.ContainsFunc(s.top.Devices, func(d gpu.Device) bool { return scopeOf(d.Entity).has(field) })
		if served {
			continue
		}
		kinds := field.Levels.List()
		var err error
		for _, kind := range kinds {
			err = cmp.Or(err, s.layout.others.failed[kind])
		}
		switch {
		case err != nil:
			err = fmt.Errorf("the engine lists no %v: %w", kinds[0], s.withVersions(err))
		case !reads(field):
			err = fmt.Errorf("%w: the DCGM source does not read it", gpu.ErrNotSupported)
		default:
			err = fmt.Errorf("%w: no %v is here or selected", errNoEntity, kinds[0])
		}
		s.faults = append(s.faults, gpu.Fault{Row: gpu.AllRows, Field: f, Err: err})
	}
}

// Reads reports whether the source reads from an engine all that a plan names. It does not say that
// the engine and the hardware have it.
func Reads(p *gpu.Plan) bool {
	for i := range p.Fields {
		if !reads(&p.Fields[i]) {
			return false
		}
	}
	return true // health, peers and placement are the engine's too
}

// reads reports whether there is any kind of entities that the field is read for.
func reads(f *gpu.Field) bool {
	return slices.ContainsFunc(scopes[:], func(a scope) bool { return a.has(f) })
}
