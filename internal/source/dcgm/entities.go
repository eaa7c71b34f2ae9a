package dcgm

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The fields of links that belong to switches (dcgm_fields.h, module
// NvSwitch); DCGM refuses them for links of GPUs, and all others for links of
// switches.
const (
	firstSwitchField = 700 // DCGM_FI_FIRST_NVSWITCH_FIELD_ID
	lastSwitchField  = 899 // DCGM_FI_LAST_NVSWITCH_FIELD_ID
)

func ofSwitches(id gpu.FieldID) bool { return id >= firstSwitchField && id <= lastSwitchField }

// An audience is a kind of entities that share their fields: links of GPUs and
// links of switches are two.
type audience struct {
	kind, parent gpu.Kind // parent is set for links alone
}

func audienceOf(e gpu.Entity) audience {
	if e.Kind == gpu.KindNVLink {
		return audience{e.Kind, e.ParentKind}
	}
	return audience{kind: e.Kind}
}

// has reports whether a field exists for the entities of the audience.
func (a audience) has(f *gpu.Field) bool {
	if !f.Levels.Has(a.kind) {
		return false
	}
	return a.kind != gpu.KindNVLink || ofSwitches(f.ID) == (a.parent == gpu.KindNVSwitch)
}

// audiences are all that the source reads, in the order of rows.
var audiences = [...]audience{
	{kind: gpu.KindGPU}, {kind: gpu.KindGPUInstance}, {kind: gpu.KindComputeInstance},
	{gpu.KindNVLink, gpu.KindGPU}, {kind: gpu.KindNVSwitch}, {gpu.KindNVLink, gpu.KindNVSwitch},
	{kind: gpu.KindCPU}, {kind: gpu.KindCPUCore}, {kind: gpu.KindConnectX},
}

// wants reports whether some field of the plan exists for an audience. What no
// field exists for is not asked for and has no rows. Compute instances are
// selected besides.
func (s *Session) wants(a audience) bool {
	if a.kind == gpu.KindComputeInstance && !s.plan.Devices.Compute {
		return false
	}
	if s.wanted == nil {
		s.wanted = map[audience]bool{}
		for f := range s.plan.Fields {
			for _, a := range audiences {
				if a.has(&s.plan.Fields[f]) {
					s.wanted[a] = true
				}
			}
		}
	}
	return s.wanted[a]
}

// wantsKind is wants for every audience of a kind.
func (s *Session) wantsKind(kind gpu.Kind) bool {
	return s.wants(audience{kind: kind}) || s.wants(audience{kind, gpu.KindGPU}) || s.wants(audience{kind, gpu.KindNVSwitch})
}

// A periphery is everything but the GPUs and their instances, as far as the
// plan wants it.
type periphery struct {
	switches, cards []uint32 // ascending
	links           []link   // of GPUs and then of switches, as DCGM lists them
	cpus            []cpu
	failed          map[gpu.Kind]error // why a kind is not known
}

// survey asks the engine for the periphery. A kind that the engine cannot tell,
// for a module that it does not have, costs that kind alone.
func (s *Session) survey() (periphery, error) {
	p, err := s.surveyFabric()
	if err != nil || !s.wantsKind(gpu.KindCPU) && !s.wantsKind(gpu.KindCPUCore) {
		return p, err
	}
	p.cpus, err = s.engine.cpus()
	p.failed[gpu.KindCPU], p.failed[gpu.KindCPUCore] = err, err
	if err != nil { // the other kinds are asked for again and again: compareFabric
		s.askAgain("the CPUs", err, func() error {
			_, err := s.engine.cpus()
			return err
		})
	}
	return p, s.over(err)
}

// surveyFabric is survey without the CPUs, which never change.
func (s *Session) surveyFabric() (periphery, error) {
	p := periphery{failed: map[gpu.Kind]error{}}
	for kind, list := range map[gpu.Kind]*[]uint32{gpu.KindNVSwitch: &p.switches, gpu.KindConnectX: &p.cards} {
		if !s.wants(audience{kind: kind}) {
			continue
		}
		ids, err := s.engine.entities(engineGroup(kind))
		if s.isOver(err) {
			return p, err
		}
		p.failed[kind] = err
		*list = slices.Sorted(slices.Values(ids))
	}
	ofGPUs, ofSwitches := s.wants(audience{gpu.KindNVLink, gpu.KindGPU}), s.wants(audience{gpu.KindNVLink, gpu.KindNVSwitch})
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

// compareFabric ends the session if switches, links or cards came or went.
// That the engine does not tell is no news.
func (s *Session) compareFabric() error {
	if !slices.ContainsFunc([]gpu.Kind{gpu.KindNVLink, gpu.KindNVSwitch, gpu.KindConnectX}, s.wantsKind) {
		return nil
	}
	now, err := s.surveyFabric()
	if err != nil {
		return err
	}
	was := &s.layout.periphery
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

// peripheral returns the members of the periphery that the plan selects. Links
// of GPUs go with their GPU.
func (s *Session) peripheral() []member {
	p, plan := &s.layout.periphery, s.plan
	var list []member
	links := func(of entityGroup, kind gpu.Kind, selected func(link) bool) {
		for _, l := range p.links {
			if l.parent.group == of && selected(l) {
				list = append(list, member{l.entity(), gpu.Device{
					Entity: gpu.Entity{Kind: gpu.KindNVLink, ParentKind: kind, Parent: l.parent.id, ID: l.index}, Link: l.index,
				}})
			}
		}
	}
	whole := func(kind gpu.Kind, id uint32) {
		list = append(list, member{entity{engineGroup(kind), id}, gpu.Device{Entity: gpu.Entity{Kind: kind, ID: id}}})
	}
	links(groupGPU, gpu.KindGPU, func(l link) bool {
		return plan.Devices.HasMajor(l.parent.id) && !slices.Contains(s.layout.unread, l.parent.id)
	})
	for _, id := range p.switches {
		if plan.Switches.HasMajor(id) {
			whole(gpu.KindNVSwitch, id)
		}
	}
	links(groupSwitch, gpu.KindNVSwitch, func(l link) bool { return plan.Switches.HasMinor(l.index) })
	if s.wants(audience{kind: gpu.KindCPU}) {
		for _, c := range p.cpus {
			if plan.CPUs.HasMajor(c.id) {
				whole(gpu.KindCPU, c.id)
				list[len(list)-1].Serial = c.serial
			}
		}
	}
	if s.wants(audience{kind: gpu.KindCPUCore}) {
		for _, c := range p.cpus {
			for _, core := range c.cores {
				if plan.CPUs.HasMinor(core) {
					whole(gpu.KindCPUCore, core)
					d := &list[len(list)-1]
					d.Entity.ParentKind, d.Entity.Parent, d.Serial = gpu.KindCPU, c.id, c.serial
				}
			}
		}
	}
	for _, id := range p.cards {
		whole(gpu.KindConnectX, id)
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
		served := slices.ContainsFunc(s.top.Devices, func(d gpu.Device) bool { return audienceOf(d.Entity).has(field) })
		if served {
			continue
		}
		kinds := field.Levels.List()
		var err error
		for _, kind := range kinds {
			err = cmp.Or(err, s.layout.periphery.failed[kind])
		}
		switch {
		case err != nil:
			err = fmt.Errorf("the engine tells no %v: %w", kinds[0], s.inWords(err))
		case !reads(field):
			err = fmt.Errorf("%w: the DCGM source does not read it", gpu.ErrNotSupported)
		default:
			err = fmt.Errorf("%w: no %v is here or selected", gpu.ErrNotSupported, kinds[0])
		}
		s.log.Warn("A field is not watched", "field", field.Name, "error", err)
		s.faults = append(s.faults, gpu.Fault{Row: gpu.AllRows, Field: f, Err: err})
	}
}
