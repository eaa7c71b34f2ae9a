package dcgm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/hostengine"
)

// Fields that identify an entity (dcgm_fields.h). The first two belong to the node.
const (
	fieldDriver = 1
	fieldName   = 50
	fieldIndex  = 52
	fieldUUID   = 54
	fieldMinor  = 55
	fieldBusID  = 57
)

// An inventory holds the entities that a session reads. Its topology does not change after discover.
type inventory struct {
	*conn
	plan *gpu.Plan

	top     *gpu.Topology
	layout  layout
	rows    map[entity]int
	members []entity // by row

	unidentified []entity  // devices that did not report their identity and may do so later
	identified   time.Time // time of the last attempt
}

// A layout is the set of entities when the session was opened. If a Read finds another set, the session ends.
type layout struct {
	gpus      []uint32   // all GPUs, ascending
	unread    []uint32   // GPUs that DCGM could not read
	lost      []uint32   // lost GPUs among unread, which have rows
	instances []instance // GPU instances before compute instances, ascending by ID
	others    others
}

// isLeftOut reports whether an existing GPU has no row.
func (l *layout) isLeftOut(id uint32) bool {
	return slices.Contains(l.unread, id) && !slices.Contains(l.lost, id)
}

// sorted sorts instances in place in the order of a layout, and removes duplicates.
func sorted(instances []instance) []instance {
	slices.SortFunc(instances, func(a, b instance) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.id, b.id))
	})
	return slices.CompactFunc(instances, func(a, b instance) bool { return a.entity == b.entity })
}

// isDivided reports whether a GPU instance has several compute instances.
func (l *layout) isDivided(id uint32) bool {
	parts := 0
	for _, x := range l.instances {
		if x.group == groupCompute && x.parent == id {
			parts++
		}
	}
	return parts > 1
}

// discover builds the topology of the entities that the plan selects.
func (inv *inventory) discover() error {
	gpus, err := inv.engine.entities(groupGPU)
	if err != nil {
		return err
	}
	inv.layout.gpus = sortedSet(gpus)
	supported, err := inv.engine.supported()
	if err != nil {
		return err
	}
	instances, err := inv.engine.instances()
	if severityOf(err) == reopen {
		return err
	}
	if err != nil {
		inv.log.Warn("DCGM does not report MIG instances; reading only GPUs", "error", inv.withVersions(err))
	}
	inv.layout.instances = sorted(instances)

	var members []entity
	for _, id := range inv.layout.gpus {
		if !slices.Contains(supported, id) && !inv.keepsRow(id) {
			continue
		}
		if inv.plan.Selects(gpu.Entity{Kind: gpu.KindGPU, ID: id}) {
			members = append(members, entity{groupGPU, id})
		}
		for _, x := range inv.layout.instances {
			isOnGPU := x.group == groupInstance && x.parent == id
			if isOnGPU && inv.plan.Selects(gpu.Entity{Kind: gpu.KindGPUInstance, ID: x.id}) {
				members = append(members, x.entity)
			}
		}
	}
	if inv.layout.others, err = inv.listOthers(); err != nil {
		return err
	}
	if len(members)+len(inv.layout.others.members) == 0 {
		return inv.nothingToWatch(len(inv.layout.gpus))
	}
	known, driver, err := inv.identify(inv.withGPUs(members))
	if err != nil {
		return err
	}
	inv.build(members, known, driver)
	if inv.plan.Placement {
		return inv.locate()
	}
	return nil
}

// keepsRow records a GPU that DCGM cannot read. A lost GPU keeps its row, because it may return.
func (inv *inventory) keepsRow(id uint32) bool {
	state := inv.engine.status(id)
	inv.log.Warn("DCGM cannot read a GPU", "gpu", id, "state", state.String())
	inv.layout.unread = append(inv.layout.unread, id)
	if state == statusLost {
		inv.layout.lost = append(inv.layout.lost, id)
	}
	return state == statusLost
}

func (inv *inventory) nothingToWatch(gpus int) error {
	switch {
	case gpus == 0:
		return fmt.Errorf("%w: DCGM %s at %v finds no GPU; "+
			"check that the NVIDIA driver is loaded where the engine runs", gpu.ErrUnavailable, inv.version, inv.addr)
	case len(inv.layout.unread) == gpus:
		return fmt.Errorf("%w: DCGM %s at %v cannot read any of its %d GPUs",
			gpu.ErrUnavailable, inv.version, inv.addr, gpus)
	default:
		var ids []uint32
		for _, x := range inv.layout.instances {
			if x.group == groupInstance {
				ids = append(ids, x.id)
			}
		}
		return fmt.Errorf("%w: none of DCGM's %d GPUs and %d instances is selected (GPUs %v, instances %v)",
			gpu.ErrUnavailable, gpus, len(ids), inv.layout.gpus, ids)
	}
}

// withGPUs returns the GPUs of all selected entities, followed by the selected instances.
func (inv *inventory) withGPUs(members []entity) []entity {
	var gpus []uint32
	var instances []entity
	for _, e := range members {
		gpus = append(gpus, inv.gpuOf(e))
		if e.group == groupInstance {
			instances = append(instances, e)
		}
	}
	for _, m := range inv.layout.others.members {
		if m.Entity.ParentKind == gpu.KindGPU {
			gpus = append(gpus, m.Entity.Parent)
		}
	}
	var all []entity
	for _, id := range sortedSet(gpus) {
		all = append(all, entity{groupGPU, id})
	}
	return append(all, instances...)
}

// identify reads the identities of GPUs and then instances. DCGM reports minor number and index only as fields.
// Instances that do not answer have no profile.
func (inv *inventory) identify(members []entity) (known map[entity]identity, driver string, err error) {
	known = make(map[entity]identity, len(members))
	for _, e := range members {
		known[e] = identity{index: -1, minor: -1}
	}
	learn := func(e entity, id gpu.FieldID, v gpu.Value) {
		if id == fieldDriver {
			driver = v.String()
		} else if who, ok := known[e]; ok {
			known[e] = who.with(id, v)
		}
	}
	n := 0
	for n < len(members) && members[n].group == groupGPU {
		n++
	}
	ofGPUs := []gpu.FieldID{fieldName, fieldIndex, fieldUUID, fieldMinor, fieldBusID}
	if err := inv.readOnce(members[:n], ofGPUs, learn); err != nil {
		return nil, "", err
	}
	// Read the driver version from one GPU only: the engine logs an error for each GPU on which it is unwatched.
	for i := 0; i < n && driver == ""; i++ {
		if err := reopenOnly(inv.readOnce(members[i:i+1], []gpu.FieldID{fieldDriver}, learn)); err != nil {
			return nil, "", err
		}
	}
	err = inv.readOnce(members[n:], []gpu.FieldID{fieldName, fieldUUID}, learn)
	if severityOf(err) == reopen {
		return nil, "", err
	}
	if err != nil {
		inv.log.Warn("DCGM does not report profiles of MIG instances", "error", inv.withVersions(err))
	}
	inv.unidentified = slices.DeleteFunc(slices.Clone(members), func(e entity) bool {
		never := e.group == groupInstance && severityOf(err) == skip
		return never || known[e].isComplete(e.group) || slices.Contains(inv.layout.lost, inv.gpuOf(e))
	})
	inv.identified = time.Now()
	return known, driver, nil
}

// isComplete reports whether all properties that a device of the group can report are known.
func (i identity) isComplete(group entityGroup) bool {
	if group == groupGPU {
		return i.uuid != "" && i.index >= 0 && i.minor >= 0
	}
	return i.model != ""
}

// with returns the identity with the value of a field added.
func (i identity) with(field gpu.FieldID, v gpu.Value) identity {
	n, _ := v.Int64()
	switch field {
	case fieldName:
		i.model = v.String()
	case fieldUUID:
		i.uuid = v.String()
	case fieldBusID:
		i.busID = v.String()
	case fieldIndex:
		i.index = n
	case fieldMinor:
		i.minor = n
	}
	return i
}

// instanceOf returns the instance of an entity.
func (inv *inventory) instanceOf(e entity) instance {
	for _, x := range inv.layout.instances {
		if x.entity == e {
			return x
		}
	}
	return instance{entity: e}
}

// gpuOf returns the ID of the entity's GPU.
func (inv *inventory) gpuOf(e entity) uint32 {
	switch e.group {
	case groupCompute:
		return inv.gpuOf(entity{groupInstance, inv.instanceOf(e).parent})
	case groupInstance:
		return inv.instanceOf(e).parent
	default:
		return e.id
	}
}

// build creates the devices. discover has sorted them so that parents come before their children.
func (inv *inventory) build(members []entity, known map[entity]identity, driver string) {
	gpus := map[uint32]gpu.Device{}
	for e, who := range known {
		if e.group == groupGPU {
			gpus[e.id] = inv.remembered(e.id, who).device(e.id)
		}
	}
	var devices []gpu.Device
	inv.rows = map[entity]int{}
	add := func(e entity, d gpu.Device) {
		if _, twice := inv.rows[e]; twice {
			return
		}
		inv.rows[e] = len(devices)
		inv.members = append(inv.members, e)
		devices = append(devices, d)
	}
	for _, e := range members {
		d := gpus[inv.gpuOf(e)]
		if e.group != groupGPU {
			inv.instanceDevice(&d, e, known[e])
		}
		add(e, d)
	}
	for _, m := range inv.layout.others.members {
		if m.Entity.ParentKind == gpu.KindGPU {
			d := gpus[m.Entity.Parent]
			d.Entity, d.Link = m.Entity, m.Link
			m.Device = d
		}
		add(m.entity, m.Device)
	}
	if inv.plan.Health.Has(gpu.KindNode) {
		add(entity{group: groupNone}, gpu.Device{Entity: gpu.Entity{Kind: gpu.KindNode}})
	}
	inv.top = gpu.NewTopology(devices)
	inv.top.Source = "dcgm"
	inv.top.Driver = driver
	inv.top.Library = inv.library
	if !inv.addr.IsEmbedded() {
		inv.top.Engine = inv.version
	}
	if inv.addr.Transport == hostengine.TCP && !inv.addr.IsLocal() {
		inv.top.Host = inv.addr.Host
	}
}

// isOfGPU reports whether an entity is a GPU or part of one.
func isOfGPU(e gpu.Entity) bool { return e.Kind == gpu.KindGPU || e.ParentKind == gpu.KindGPU }

// device returns the device of a GPU.
func (i identity) device(id uint32) gpu.Device {
	d := gpu.Device{
		Entity: gpu.Entity{Kind: gpu.KindGPU, ID: id},
		GPU:    id, UUID: i.uuid, PCIBusID: i.busID, Model: i.model, NVMLIndex: id, Minor: id,
	}
	if i.index >= 0 {
		d.NVMLIndex = uint32(i.index)
	}
	if i.minor >= 0 {
		d.Minor = uint32(i.minor)
	}
	return d
}

// instanceDevice turns the device of a GPU into that of one of its instances.
func (inv *inventory) instanceDevice(d *gpu.Device, e entity, own identity) {
	x := inv.instanceOf(e)
	d.Entity = gpu.Entity{Kind: gpu.KindGPUInstance, ParentKind: gpu.KindGPU, Parent: d.GPU, ID: e.id}
	d.InstanceID = x.nvml
	d.Profile = gpu.InstanceProfile(own.model)
	// If the instance is divided, the UUID is that of a compute instance.
	if strings.HasPrefix(own.uuid, "MIG-") && !inv.layout.isDivided(e.id) {
		d.MIGUUID = own.uuid
	}
}

// remembered returns the identity of a GPU. If the GPU did not report it, the identity that the engine has cached is
// returned.
func (inv *inventory) remembered(id uint32, who identity) identity {
	if who.uuid != "" {
		return who
	}
	past, err := inv.engine.attributes(id)
	if err != nil {
		inv.log.Warn("GPU does not answer; its details are unknown", "gpu", id, "error", err)
		return who
	}
	past.index, past.minor = who.index, who.minor
	return past
}

func sortedSet[T cmp.Ordered](list []T) []T {
	slices.Sort(list)
	return slices.Compact(list)
}

func (inv *inventory) entitiesOf(rows []int) []entity {
	members := make([]entity, len(rows))
	for i, row := range rows {
		members[i] = inv.members[row]
	}
	return members
}

func (inv *inventory) ids(fields []int) []gpu.FieldID {
	ids := make([]gpu.FieldID, len(fields))
	for i, f := range fields {
		ids[i] = inv.plan.Fields[f].ID
	}
	return ids
}

// samplingOf returns the sampling of the field at an index of the plan.
func (inv *inventory) samplingOf(f int) sampling {
	field := &inv.plan.Fields[f]
	return sampling{
		interval: inv.plan.IntervalOf(f), every: field.AllSamples, profiling: field.Profiling,
		sporadic: field.ID == catalog.XIDErrors,
	}
}
