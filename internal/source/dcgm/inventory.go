package dcgm

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

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

// An inventory holds the entities that a session reads, and finds lost GPUs and changes of the entities. Its topology
// does not change after discover.
type inventory struct {
	conn
	plan *gpu.Plan

	top     *gpu.Topology
	layout  layout
	rows    map[entity]int
	members []entity // by row

	unidentified []entity  // devices that did not report their identity and may do so later
	identified   time.Time // time of the last attempt

	// by row:
	absent    []bool // the GPU was lost when the session opened, so it is in no group
	lost      []bool // lost according to the latest inspection
	detached  []bool // the GPU was detached in this session, so the engine has dropped its watches
	unwatched []bool // in the current Read, the engine reported that a field is not watched
	valued    []int  // number of fields with a value in the current Read
	valuedBy  []int  // the same for the previous Read

	inspected time.Time // time of the latest inspection
	change    error     // first change that ends the session
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
	slices.SortFunc(instances, func(a, b instance) int { return a.compare(b.entity) })
	return slices.CompactFunc(instances, func(a, b instance) bool { return a.entity == b.entity })
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
	if err := inv.logged(err, "DCGM does not report MIG instances; reading only GPUs"); err != nil {
		return err
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
		return inv.nothingToWatch()
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

func (inv *inventory) nothingToWatch() error {
	gpus, unread := inv.layout.gpus, inv.layout.unread
	if len(gpus) == len(unread) {
		return fmt.Errorf("%w: DCGM %s at %v can read none of the %d GPUs it finds; check that the NVIDIA driver is "+
			"loaded where the engine runs", gpu.ErrUnavailable, inv.version, inv.addr, len(gpus))
	}
	var ids []uint32
	for _, x := range inv.layout.instances {
		if x.group == groupInstance {
			ids = append(ids, x.id)
		}
	}
	return fmt.Errorf("%w: none of DCGM's GPUs %v and instances %v is selected", gpu.ErrUnavailable, gpus, ids)
}

// withGPUs returns the GPUs of all selected entities, followed by the selected instances.
func (inv *inventory) withGPUs(members []entity) []entity {
	all := slices.Clone(members)
	for _, e := range members {
		all = append(all, entity{groupGPU, inv.gpuOf(e)})
	}
	for _, m := range inv.layout.others.members {
		if m.Entity.ParentKind == gpu.KindGPU {
			all = append(all, entity{groupGPU, m.Entity.Parent})
		}
	}
	slices.SortFunc(all, entity.compare)
	return slices.Compact(all)
}

// identify reads the identities of GPUs and then instances. DCGM reports minor number and index only as fields.
// Instances that do not answer have no profile.
func (inv *inventory) identify(members []entity) (known map[entity]*identity, driver string, err error) {
	known = make(map[entity]*identity, len(members))
	gpus := 0
	for _, e := range members {
		known[e] = &identity{index: -1, minor: -1}
		if e.group == groupGPU {
			gpus++
		}
	}
	learn := func(e entity, id gpu.FieldID, v gpu.Value) {
		if id == fieldDriver {
			driver = v.String()
		} else if who := known[e]; who != nil {
			who.learn(id, v)
		}
	}
	ofGPUs := []gpu.FieldID{fieldName, fieldIndex, fieldUUID, fieldMinor, fieldBusID}
	if err := inv.readOnce(members[:gpus], ofGPUs, learn); err != nil {
		return nil, "", err
	}
	// Read the driver version from one GPU only: the engine logs an error for each GPU on which it is unwatched.
	for i := 0; i < gpus && driver == ""; i++ {
		if err := reopenOnly(inv.readOnce(members[i:i+1], []gpu.FieldID{fieldDriver}, learn)); err != nil {
			return nil, "", err
		}
	}
	err = inv.readOnce(members[gpus:], []gpu.FieldID{fieldName, fieldUUID}, learn)
	hasProfiles := severityOf(err) != skip
	if err := inv.logged(err, "DCGM does not report profiles of MIG instances"); err != nil {
		return nil, "", err
	}
	inv.unidentified = slices.DeleteFunc(slices.Clone(members), func(e entity) bool {
		who, never := known[e], slices.Contains(inv.layout.lost, inv.gpuOf(e))
		if e.group == groupInstance {
			return never || who.model != "" || !hasProfiles
		}
		return never || who.uuid != "" && who.index >= 0 && who.minor >= 0
	})
	inv.identified = time.Now()
	return known, driver, nil
}

// learn sets the property that a field reports.
func (i *identity) learn(field gpu.FieldID, v gpu.Value) {
	switch field {
	case fieldName:
		i.model = v.String()
	case fieldUUID:
		i.uuid = v.String()
	case fieldBusID:
		i.busID = v.String()
	case fieldIndex:
		i.index, _ = v.Int64()
	case fieldMinor:
		i.minor, _ = v.Int64()
	}
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
	if e.group == groupCompute {
		e = entity{groupInstance, inv.instanceOf(e).parent}
	}
	if e.group == groupInstance {
		return inv.instanceOf(e).parent
	}
	return e.id
}

// build creates the devices. discover has sorted them so that parents come before their children.
func (inv *inventory) build(members []entity, known map[entity]*identity, driver string) {
	gpus := map[uint32]gpu.Device{}
	for e, who := range known {
		if e.group == groupGPU {
			gpus[e.id] = inv.device(e.id, who)
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
			inv.makeInstance(&d, e, known[e])
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
	inv.setTopology(devices)
	inv.top.Source, inv.top.Driver, inv.top.Library = "dcgm", driver, inv.library
	if !inv.addr.IsEmbedded() {
		inv.top.Engine = inv.version
	}
	if inv.addr.Transport == hostengine.TCP && !inv.addr.IsLocal() {
		inv.top.Host = inv.addr.Host
	}
}

// setTopology sets the topology and the state of its rows.
func (inv *inventory) setTopology(devices []gpu.Device) {
	inv.top = gpu.NewTopology(devices)
	n := len(devices)
	inv.absent, inv.lost = make([]bool, n), make([]bool, n)
	inv.detached, inv.unwatched = make([]bool, n), make([]bool, n)
	inv.valued, inv.valuedBy = make([]int, n), make([]int, n)
	for row, d := range devices {
		inv.absent[row] = isOfGPU(d.Entity) && slices.Contains(inv.layout.lost, d.GPU)
	}
}

// isOfGPU reports whether an entity is a GPU or part of one.
func isOfGPU(e gpu.Entity) bool { return e.Kind == gpu.KindGPU || e.ParentKind == gpu.KindGPU }

// device returns the device of a GPU. If the GPU did not report its identity, the engine may have cached it.
func (inv *inventory) device(id uint32, who *identity) gpu.Device {
	d := gpu.Device{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: id}, GPU: id, NVMLIndex: id, Minor: id}
	if who.index >= 0 {
		d.NVMLIndex = uint32(who.index)
	}
	if who.minor >= 0 {
		d.Minor = uint32(who.minor)
	}
	if who.uuid == "" {
		if past, err := inv.engine.attributes(id); err == nil {
			who = &past
		} else {
			inv.log.Warn("GPU does not answer; its details are unknown", "gpu", id, "error", err)
		}
	}
	d.UUID, d.PCIBusID, d.Model = who.uuid, who.busID, who.model
	return d
}

// makeInstance turns the device of a GPU into that of one of its instances. The UUID that a divided instance reports is
// that of a compute instance.
func (inv *inventory) makeInstance(d *gpu.Device, e entity, own *identity) {
	parts := 0
	for _, x := range inv.layout.instances {
		if x.group == groupCompute && x.parent == e.id {
			parts++
		}
	}
	d.Entity = gpu.Entity{Kind: gpu.KindGPUInstance, ParentKind: gpu.KindGPU, Parent: d.GPU, ID: e.id}
	d.InstanceID, d.Profile = inv.instanceOf(e).nvml, gpu.InstanceProfile(own.model)
	if strings.HasPrefix(own.uuid, "MIG-") && parts <= 1 {
		d.MIGUUID = own.uuid
	}
}

func sortedSet[T cmp.Ordered](list []T) []T {
	slices.Sort(list)
	return slices.Compact(list)
}

// mapped returns the result of f for each element.
func mapped[A, B any](list []A, f func(A) B) []B {
	results := make([]B, len(list))
	for i, x := range list {
		results[i] = f(x)
	}
	return results
}

func (inv *inventory) entitiesOf(rows []int) []entity {
	return mapped(rows, func(row int) entity { return inv.members[row] })
}

func (inv *inventory) ids(fields []int) []gpu.FieldID {
	return mapped(fields, func(f int) gpu.FieldID { return inv.plan.Fields[f].ID })
}

// Fields of the CPUs and NUMA nodes near a GPU (dcgm_fields.h). They are masks of 64 bits.
const (
	fieldCPUAffinity    = 70 // 70 to 73
	fieldMemoryAffinity = 86 // 86 to 89
	affinityWords       = 4
)

// locate finds the placement of the GPUs, and how each pair is connected. What the engine does not report stays
// unknown. It returns an error only if the engine is lost.
func (inv *inventory) locate() error {
	var rows []int
	for row, e := range inv.members {
		if e.group == groupGPU {
			rows = append(rows, row)
		}
	}
	near, err := inv.affinities(inv.entitiesOf(rows))
	if err := inv.logged(err, "DCGM does not report the NUMA nodes of GPUs"); err != nil {
		return err
	}
	levels := map[[2]uint32]uint64{}
	known := false
	for _, row := range rows {
		id := inv.members[row].id
		cpus, paths, err := inv.engine.place(id)
		if severityOf(err) == reopen {
			return err
		}
		if err != nil {
			inv.log.Debug("DCGM does not report the placement of a GPU", "gpu", id, "error", err)
		}
		known = known || err == nil
		a := near[inv.members[row]]
		place := gpu.PlaceOf(a.nodes[:], a.cpus[:])
		if wide := gpu.PlaceOf(nil, cpus).CPUs; wide != "" { // covers twice as many CPUs as the fields
			place.CPUs = wide
		}
		if place.NUMANode >= 0 || place.CPUs != "" {
			inv.top.Devices[row].Place = &place
		}
		for _, p := range paths {
			levels[[2]uint32{min(id, p.gpu), max(id, p.gpu)}] = p.levels
		}
	}
	if !known {
		return nil
	}
	for i, a := range rows {
		for _, b := range rows[i+1:] {
			mask := levels[[2]uint32{inv.members[a].id, inv.members[b].id}]
			inv.top.Pairs = append(inv.top.Pairs, gpu.Pair{A: a, B: b, Path: pathOf(mask), NVLinks: nvlinksOf(mask)})
		}
	}
	return nil
}

// An affinity holds the masks of the CPUs and NUMA nodes near a GPU.
type affinity struct{ cpus, nodes [affinityWords]uint64 }

// affinities returns the affinities of the GPUs that report them.
func (inv *inventory) affinities(gpus []entity) (map[entity]affinity, error) {
	near := map[entity]affinity{}
	var ids []gpu.FieldID
	for i := range gpu.FieldID(affinityWords) {
		ids = append(ids, fieldCPUAffinity+i, fieldMemoryAffinity+i)
	}
	err := inv.readOnce(gpus, ids, func(e entity, id gpu.FieldID, v gpu.Value) {
		word, _ := v.Int64()
		a := near[e]
		if i := int(id) - fieldMemoryAffinity; i >= 0 && i < affinityWords {
			a.nodes[i] = uint64(word)
		} else if i := int(id) - fieldCPUAffinity; i >= 0 && i < affinityWords {
			a.cpus[i] = uint64(word)
		}
		near[e] = a
	})
	return near, err
}

// pathOf returns the closest PCIe path in levels (the low byte of DCGM_TOPOLOGY_*).
func pathOf(levels uint64) gpu.Path {
	paths := [...]gpu.Path{
		gpu.PathBoard, gpu.PathSwitch, gpu.PathSwitches, gpu.PathHostBridge, gpu.PathNode, gpu.PathSystem,
	}
	if i := bits.TrailingZeros64(levels); i < len(paths) {
		return paths[i]
	}
	return gpu.PathUnknown
}

// nvlinksOf returns the number of NVLinks in levels: one for 0x100, two for 0x200, and so on.
func nvlinksOf(levels uint64) int { return max(0, bits.Len64(levels)-8) }
