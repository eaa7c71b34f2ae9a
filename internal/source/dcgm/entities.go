package dcgm

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// errNoEntity means that the machine has no entity of a field's kind, or that none is selected.
var errNoEntity = fmt.Errorf("%w", gpu.ErrNotSupported)

// Fields of switch links (dcgm_fields.h). DCGM rejects all other fields for them.
const (
	firstSwitchField = 700 // DCGM_FI_FIRST_NVSWITCH_FIELD_ID
	lastSwitchField  = 899 // DCGM_FI_LAST_NVSWITCH_FIELD_ID
)

// A scope is a set of entities with the same fields. Links of GPUs and links of switches are different scopes.
type scope struct {
	kind, parent gpu.Kind // parent is only set for links
}

func scopeOf(e gpu.Entity) scope {
	if e.Kind == gpu.KindNVLink {
		return scope{e.Kind, e.ParentKind}
	}
	return scope{kind: e.Kind}
}

// has reports whether a field exists for the entities of the scope.
func (a scope) has(f *gpu.Field) bool {
	ofSwitches := f.ID >= firstSwitchField && f.ID <= lastSwitchField
	return f.Levels.Has(a.kind) && (a.kind != gpu.KindNVLink || ofSwitches == (a.parent == gpu.KindNVSwitch))
}

// scopes lists the kinds that the source reads, in row order.
var scopes = [...]scope{
	{kind: gpu.KindGPU}, {kind: gpu.KindGPUInstance},
	{gpu.KindNVLink, gpu.KindGPU}, {kind: gpu.KindNVSwitch}, {gpu.KindNVLink, gpu.KindNVSwitch},
	{kind: gpu.KindCPU}, {kind: gpu.KindCPUCore}, {kind: gpu.KindConnectX},
}

// A member is an entity of the engine with its device.
type member struct {
	entity
	gpu.Device
}

// others holds all entities except GPUs and their instances.
type others struct {
	members []member           // selected entities in row order
	failed  map[gpu.Kind]error // by kind: why entities that the plan needs are unknown
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

// listOthers lists the selected entities other than GPUs and instances, if the plan has fields or health for them. If
// the engine cannot list a kind, because a module is missing, only that kind is left out.
func (inv *inventory) listOthers() (others, error) {
	o := others{failed: map[gpu.Kind]error{}}
	links, cpus := sync.OnceValues(inv.engine.links), sync.OnceValues(inv.engine.cpus)
	isLeftOut := func(m member) bool { return !inv.plan.Selects(m.Entity) }
	for _, a := range scopes {
		isNeeded := inv.plan.Health.Has(a.kind) ||
			slices.ContainsFunc(inv.plan.Fields, func(f gpu.Field) bool { return a.has(&f) })
		if a.kind == gpu.KindGPU || a.kind == gpu.KindGPUInstance || !isNeeded {
			continue
		}
		list, err := inv.list(a, links, cpus)
		if severityOf(err) == reopen {
			return o, err
		}
		o.failed[a.kind] = err
		o.members = append(o.members, slices.DeleteFunc(list, isLeftOut)...)
	}
	return o, nil
}

// list returns the members of a scope.
func (inv *inventory) list(
	a scope, links func() ([]link, error), cpus func() ([]cpu, error),
) (list []member, err error) {
	add := func(e gpu.Entity, serial string) {
		list = append(list, member{entity{engineGroups[e.Kind], e.ID}, gpu.Device{Entity: e, Serial: serial}})
	}
	switch a.kind {
	case gpu.KindNVLink:
		found, err := links()
		return inv.membersOf(found, a), err
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
		ids, err := inv.engine.entities(engineGroups[a.kind])
		for _, id := range slices.Sorted(slices.Values(ids)) {
			add(gpu.Entity{Kind: a.kind, ID: id}, "")
		}
		return list, err
	}
}

// membersOf returns the links of GPUs that have rows, or the links of switches.
func (inv *inventory) membersOf(links []link, a scope) (list []member) {
	slices.SortFunc(links, func(a, b link) int {
		return cmp.Or(cmp.Compare(a.parent.id, b.parent.id), cmp.Compare(a.index, b.index))
	})
	for _, l := range links {
		if l.parent.group == engineGroups[a.parent] && !(a.parent == gpu.KindGPU && inv.layout.isLeftOut(l.parent.id)) {
			e := gpu.Entity{Kind: a.kind, ParentKind: a.parent, Parent: l.parent.id, ID: l.index}
			list = append(list, member{l.entity(), gpu.Device{Entity: e, Link: l.index}})
		}
	}
	return list
}

// engineGroups has the engine's entity group of each kind that is one.
var engineGroups = map[gpu.Kind]entityGroup{
	gpu.KindGPU: groupGPU, gpu.KindNVSwitch: groupSwitch, gpu.KindCPU: groupCPU, gpu.KindCPUCore: groupCore,
	gpu.KindConnectX: groupConnectX,
}

// Reads reports whether the source can read everything in a plan. It checks only the fields, because DCGM always has
// health, peers and placement. The engine and the hardware may still lack some of it.
func Reads(p *gpu.Plan) bool {
	return !slices.ContainsFunc(p.Fields, func(f gpu.Field) bool { return !reads(&f) })
}

// reads reports whether the field is read for any kind of entity.
func reads(f *gpu.Field) bool {
	return slices.ContainsFunc(scopes[:], func(a scope) bool { return a.has(f) })
}
