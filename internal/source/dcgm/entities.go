package dcgm

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// errNoEntity says that a field is of a kind of which this machine has none, or none is selected.
var errNoEntity = fmt.Errorf("%w", gpu.ErrNotSupported)

// The fields of links that belong to switches (dcgm_fields.h, module NvSwitch); DCGM refuses them
// for links of GPUs, and all others for links of switches.
const (
	firstSwitchField = 700 // DCGM_FI_FIRST_NVSWITCH_FIELD_ID
	lastSwitchField  = 899 // DCGM_FI_LAST_NVSWITCH_FIELD_ID
)

func ofSwitches(id gpu.FieldID) bool { return id >= firstSwitchField && id <= lastSwitchField }

// A scope is a kind of entities that share their fields: links of GPUs and links of switches are
// two.
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

// scopes are all that the source reads, in the order of rows.
var scopes = [...]scope{
	{kind: gpu.KindGPU}, {kind: gpu.KindGPUInstance},
	{gpu.KindNVLink, gpu.KindGPU}, {kind: gpu.KindNVSwitch}, {gpu.KindNVLink, gpu.KindNVSwitch},
	{kind: gpu.KindCPU}, {kind: gpu.KindCPUCore}, {kind: gpu.KindConnectX},
}

// needs reports whether some field of the plan exists for a scope. What no field exists for is not
// requested and has no rows.
func (s *Session) needs(a scope) bool {
	if s.requested == nil {
		s.requested = map[scope]bool{}
		for f := range s.plan.Fields {
			for _, a := range scopes {
				if a.has(&s.plan.Fields[f]) {
					s.requested[a] = true
				}
			}
		}
	}
	return s.requested[a]
}

// needsKind is needs for every scope of a kind.
func (s *Session) needsKind(kind gpu.Kind) bool {
	return s.needs(scope{kind: kind}) || s.needs(scope{kind, gpu.KindGPU}) || s.needs(scope{kind, gpu.KindNVSwitch})
}

// others are everything but the GPUs and their instances, as far as the plan wants it.
type others struct {
	switches, cards []uint32 // ascending
	links           []link   // of GPUs and then of switches, as DCGM lists them
	cpus            []cpu
	failed          map[gpu.Kind]error // why a kind is not known
}

// survey lists the others, from the engine. A kind that the engine cannot list, for a module that
// it does not have, costs that kind alone.
func (s *Session) survey() (others, error) {
	p, err := s.surveyFabric()
	if err != nil || !s.needsKind(gpu.KindCPU) && !s.needsKind(gpu.KindCPUCore) {
		return p, err
	}
	p.cpus, err = s.engine.cpus()
	p.failed[gpu.KindCPU], p.failed[gpu.KindCPUCore] = err, err
	if err != nil { // the other kinds are listed again and again: compareFabric
		s.queryLater("the CPUs", err, func() error {
			_, err := s.engine.cpus()
			return err
		})
	}
	return p, s.over(err)
}

// surveyFabric is survey without the CPUs, which never change.
func (s *Session) surveyFabric() (others, error) {
	p := others{failed: map[gpu.Kind]error{}}
	for kind, list := range map[gpu.Kind]*[]uint32{gpu.KindNVSwitch: &p.switches, gpu.KindConnectX: &p.cards} {
		if !s.needs(scope{kind: kind}) {
			continue
		}
		ids, err := s.engine.entities(engineGroup(kind))
		if s.isOver(err) {
			return p, err
		}
		p.failed[kind] = err
		*list = slices.Sorted(slices.Values(ids))
	}
	ofGPUs, ofSwitches := s.needs(scope{gpu.KindNVLink, gpu.KindGPU}), s.needs(scope{gpu.KindNVLink, gpu.KindNVSwitch})
	if !ofGPUs && !ofSwitches {
		return p, nil
	}
	links, err := s.engine.links()
	p.failed[gpu.KindNVLink] = err
	for _, l := range links {
		if l.parent.group == groupGPU && ofGPUs || l.parent.group == groupSwitch && ofSwitches {
			p.links = append(p.links, l)
		}
	}
	slices.SortFunc(p.links, func(a, b link) int {
		return cmp.Or(cmp.Compare(a.parent.group, b.parent.group), cmp.Compare(a.parent.id, b.parent.id), cmp.Compare(a.index, b.index))
	})
	return p, s.over(err)
}

// over returns err if it means that the engine is gone, and nil otherwise.
func (s *Session) over(err error) error {
	if s.isOver(err) {
		return err
	}
	return nil
}

// engineGroup names the kinds of whole devices to the engine.
func engineGroup(kind gpu.Kind) entityGroup {
	switch kind {
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

// compareFabric ends the session if switches, links or cards came or went. That the engine does not
// report it is not logged.
func (s *Session) compareFabric() error {
	if !slices.ContainsFunc([]gpu.Kind{gpu.KindNVLink, gpu.KindNVSwitch, gpu.KindConnectX}, s.needsKind) {
		return nil
	}
	now, err := s.surveyFabric()
	if err != nil {
		return err
	}
	was := &s.layout.others
	if now.failed[gpu.KindNVSwitch] == nil && !slices.Equal(now.switches, was.switches) {
		s.changed("the NVSwitches are now %v, they were %v", now.switches, was.switches)
	}
	if now.failed[gpu.KindConnectX] == nil && !slices.Equal(now.cards, was.cards) {
		s.changed("the ConnectX cards are now %v, they were %v", now.cards, was.cards)
	}
	if now.failed[gpu.KindNVLink] == nil && !slices.Equal(now.links, was.links) {
		s.changed("there are now %d NVLinks that are not those of before, %d", len(now.links), len(was.links))
	}
	return nil
}

// peripheral returns the members of the others that the plan selects. Links of GPUs go with their
// GPU.
func (s *Session) peripheral() []member {
	p := &s.layout.others
	var list []member
	add := func(at entity, d gpu.Device) {
		if s.plan.Selects(d.Entity) {
			list = append(list, member{at, d})
		}
	}
	links := func(of entityGroup, kind gpu.Kind) {
		for _, l := range p.links {
			if l.parent.group == of && (of != groupGPU || !slices.Contains(s.layout.unreadable, l.parent.id)) {
				add(l.entity(), gpu.Device{
					Entity: gpu.Entity{Kind: gpu.KindNVLink, ParentKind: kind, Parent: l.parent.id, ID: l.index}, Link: l.index,
				})
			}
		}
	}
	whole := func(e gpu.Entity, serial string) {
		add(entity{engineGroup(e.Kind), e.ID}, gpu.Device{Entity: e, Serial: serial})
	}
	links(groupGPU, gpu.KindGPU)
	for _, id := range p.switches {
		whole(gpu.Entity{Kind: gpu.KindNVSwitch, ID: id}, "")
	}
	links(groupSwitch, gpu.KindNVSwitch)
	for _, c := range p.cpus {
		whole(gpu.Entity{Kind: gpu.KindCPU, ID: c.id}, c.serial)
	}
	for _, c := range p.cpus {
		for _, core := range c.cores {
			whole(gpu.Entity{Kind: gpu.KindCPUCore, ID: core, ParentKind: gpu.KindCPU, Parent: c.id}, c.serial)
		}
	}
	for _, id := range p.cards {
		whole(gpu.Entity{Kind: gpu.KindConnectX, ID: id}, "")
	}
	return list
}

// A member is an entity of the engine and the device that it becomes.
type member struct {
	entity
	gpu.Device
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
