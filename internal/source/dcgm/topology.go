package dcgm

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The fields that say who an entity is (dcgm_fields.h). The first two belong to the node.
const (
	fieldDriver = 1
	fieldName   = 50
	fieldIndex  = 52
	fieldUUID   = 54
	fieldMinor  = 55
	fieldBusID  = 57
)

// A layout is what the set of entities was when the session opened. A Read that finds another one
// ends the session.
type layout struct {
	gpus       []uint32   // all of them, ascending
	unreadable []uint32   // those that DCGM did not read
	lost       []uint32   // those that were lost
	noProfile  []uint32   // those that were lost, whose instances did not report their profiles
	instances  []instance // GPU instances before compute instances, ascending by id
	others     others
}

// sorted puts instances in the order of a layout, in place, each once.
func sorted(instances []instance) []instance {
	slices.SortFunc(instances, func(a, b instance) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.id, b.id))
	})
	return slices.CompactFunc(instances, func(a, b instance) bool { return a.entity == b.entity })
}

// isDivided reports whether a GPU instance holds several compute instances: one alone is the GPU
// instance itself.
func (l *layout) isDivided(id uint32) bool {
	parts := 0
	for _, x := range l.instances {
		if x.group == groupCompute && x.parent == id {
			parts++
		}
	}
	return parts > 1
}

// discover makes the topology: it lists the GPUs and their instances, picks those that the plan
// selects, and reads who they are.
func (s *Session) discover() error {
	gpus, err := s.engine.entities(groupGPU)
	if err != nil {
		return err
	}
	s.layout.gpus = slices.Compact(slices.Sorted(slices.Values(gpus)))
	supported, err := s.engine.supported()
	if err != nil {
		return err
	}
	instances, err := s.engine.instances()
	if s.isOver(err) {
		return err
	}
	if err != nil {
		s.log.Warn("DCGM does not report the MIG instances; GPUs only", "error", s.withVersions(err))
	}
	s.layout.instances = sorted(slices.Clone(instances))
	if s.layout.others, err = s.survey(); err != nil {
		return err
	}

	var members []entity
	for _, id := range s.layout.gpus {
		if !slices.Contains(supported, id) {
			state := s.engine.status(id)
			if state == statusLost {
				s.layout.lost = append(s.layout.lost, id)
			} else {
				s.log.Warn("A GPU is left out", "gpu", id, "state", state.String())
				s.layout.unreadable = append(s.layout.unreadable, id)
				continue
			}
			if slices.ContainsFunc(s.layout.instances, func(x instance) bool { return x.parent == id && x.group == groupInstance }) {
				s.layout.noProfile = append(s.layout.noProfile, id)
			}
		}
		if s.plan.Selects(gpu.Entity{Kind: gpu.KindGPU, ID: id}) {
			members = append(members, entity{groupGPU, id})
		}
		members = s.appendInstances(members, id)
	}
	others := s.peripheral()
	if len(members)+len(others) == 0 {
		return s.nothingToWatch(len(s.layout.gpus))
	}
	known, driver, err := s.identify(members, others)
	if err != nil {
		return err
	}
	s.build(members, others, known, driver)
	if s.plan.Placement {
		return s.locate()
	}
	return nil
}

// appendInstances appends the selected GPU instances of a GPU.
func (s *Session) appendInstances(members []entity, id uint32) []entity {
	for _, x := range s.layout.instances {
		if x.group == groupInstance && x.parent == id && s.plan.Selects(gpu.Entity{Kind: gpu.KindGPUInstance, ID: x.id}) {
			members = append(members, x.entity)
		}
	}
	return members
}

func (s *Session) nothingToWatch(gpus int) error {
	switch {
	case gpus == 0:
		return fmt.Errorf("%w: DCGM %s at %v sees no GPU; check that the NVIDIA driver is loaded where the engine runs",
			gpu.ErrUnavailable, s.version, s.addr)
	case len(s.layout.unreadable) == gpus:
		return fmt.Errorf("%w: DCGM %s at %v reads none of its %d GPUs", gpu.ErrUnavailable, s.version, s.addr, gpus)
	default:
		var cuts []uint32
		for _, x := range s.layout.instances {
			if x.group == groupInstance {
				cuts = append(cuts, x.id)
			}
		}
		return fmt.Errorf("%w: the devices selected are none of the %d GPUs and %d instances that DCGM has (GPUs %v, instances %v)",
			gpu.ErrUnavailable, gpus, len(cuts), s.layout.gpus, cuts)
	}
}

// identify reads who the members and the GPUs of instances are, by watches that last only as long as it takes; DCGM gives the minor number and the index in
// no other way. Instances that do not say who they are have no profile.
func (s *Session) identify(members []entity, others []member) (known map[entity]identity, driver string, err error) {
	var gpus, cuts []entity
	add := func(id uint32) {
		if e := (entity{groupGPU, id}); !slices.Contains(gpus, e) {
			gpus = append(gpus, e)
		}
	}
	for _, e := range members {
		if e.group == groupInstance {
			cuts = append(cuts, e)
		}
		add(s.gpuOf(e))
	}
	for i := range others {
		if e := &others[i].Device.Entity; e.ParentKind == gpu.KindGPU {
			add(e.Parent)
		}
	}
	if len(gpus) == 0 { // a machine of switches
		return nil, "", nil
	}
	known = make(map[entity]identity, len(gpus)+len(cuts))
	for _, e := range slices.Concat(gpus, cuts) {
		known[e] = identity{index: -1, minor: -1}
	}
	learn := func(r readout) {
		for i := range r.samples {
			x := &r.samples[i]
			v, _ := decode(&gpu.Field{Text: x.kind == kindText}, x, r.textOf(x))
			if v.IsAbsent() {
				continue
			}
			if x.field == fieldDriver {
				driver = v.String()
				continue
			}
			e := entity{x.group, x.entity}
			if who, ok := known[e]; ok {
				known[e] = who.with(gpu.FieldID(x.field), v)
			}
		}
	}
	if err := s.readOnce(gpus, []gpu.FieldID{fieldDriver, fieldName, fieldIndex, fieldUUID, fieldMinor, fieldBusID}, learn); err != nil {
		return nil, "", err
	}
	if len(cuts) == 0 {
		s.queryIdentitiesLater(gpus, known)
		return known, driver, nil
	}
	err = s.readOnce(cuts, []gpu.FieldID{fieldName, fieldUUID}, learn)
	if s.isOver(err) {
		return nil, "", err
	}
	if err != nil {
		s.log.Warn("DCGM does not report the profiles of MIG instances", "error", s.withVersions(err))
	}
	if err != nil && isFinal(err) {
		cuts = nil // it never does
	}
	s.queryIdentitiesLater(slices.Concat(gpus, cuts), known)
	return known, driver, nil
}

// queryIdentitiesLater has what those that are read did not say queried again. One that is lost
// ends the session anyhow when it is back.
func (s *Session) queryIdentitiesLater(members []entity, known map[entity]identity) {
	for _, e := range members {
		if !slices.Contains(s.layout.lost, s.gpuOf(e)) {
			s.queryIdentityLater(e, known[e])
		}
	}
}

// with returns the identity with one more thing known of it.
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

// instanceOf returns what the layout knows of an instance.
func (s *Session) instanceOf(e entity) instance {
	for _, x := range s.layout.instances {
		if x.entity == e {
			return x
		}
	}
	return instance{entity: e}
}

// gpuOf returns the id of the GPU of an entity: its own, or that of an instance.
func (s *Session) gpuOf(e entity) uint32 {
	switch e.group {
	case groupCompute:
		return s.gpuOf(entity{groupInstance, s.instanceOf(e).parent})
	case groupInstance:
		return s.instanceOf(e).parent
	default:
		return e.id
	}
}

// readOnce watches fields, has them sampled, calls read with their values, and stops watching.
func (s *Session) readOnce(members []entity, ids []gpu.FieldID, read func(readout)) error {
	group, _, err := s.engine.createGroup(s.nextName(), members)
	if err != nil || group == 0 {
		return err // lost ones, which say nothing
	}
	defer s.engine.destroyGroup(group)
	fields, err := s.engine.createFieldGroup(s.nextName(), ids)
	if err != nil {
		return err
	}
	defer s.engine.destroyFieldGroup(fields)
	if err := s.engine.watch(group, fields, time.Second, 0, 1); err != nil {
		return err
	}
	defer s.engine.unwatch(group, fields)
	if err := s.engine.update(); err != nil {
		return err
	}
	r, err := s.engine.latest(group, fields)
	if err != nil {
		return err
	}
	read(r)
	return nil
}

// build makes the devices, parents before their children as discover sorted them.
func (s *Session) build(members []entity, others []member, known map[entity]identity, driver string) {
	devices := make([]gpu.Device, 0, len(members)+len(others))
	s.rows = make(map[entity]int, len(members)+len(others))
	s.members = make([]entity, 0, len(members)+len(others))
	add := func(e entity, d gpu.Device) {
		if _, twice := s.rows[e]; twice {
			return
		}
		s.rows[e] = len(devices)
		s.members = append(s.members, e)
		devices = append(devices, d)
	}
	remembered := map[uint32]identity{}
	whole := func(id uint32) gpu.Device {
		who, ok := remembered[id]
		if !ok {
			who = s.remembered(id, known[entity{groupGPU, id}])
			remembered[id] = who
		}
		return who.device(id)
	}
	for _, e := range members {
		d := whole(s.gpuOf(e))
		if e.group != groupGPU {
			s.instanceDevice(&d, e, known[e])
		}
		add(e, d)
	}
	for _, m := range others {
		if m.Device.Entity.ParentKind == gpu.KindGPU {
			d := whole(m.Device.Entity.Parent)
			d.Entity, d.Link = m.Device.Entity, m.Link
			m.Device = d
		}
		add(m.entity, m.Device)
	}
	s.top = gpu.NewTopology(devices)
	s.top.Source = "dcgm"
	s.top.Driver = driver
	s.top.Library = s.library
	if !s.addr.IsEmbedded() {
		s.top.Engine = s.version
	}
	s.top.Host = hostOf(s.addr)
	s.lost = make([]bool, len(devices))
	s.absent = make([]bool, len(devices))
	s.gone = make([]error, len(devices))
	for row := range devices {
		d := &devices[row]
		s.absent[row] = isOfGPU(d.Entity) && slices.Contains(s.layout.lost, d.GPU)
	}
	s.valued, s.valuedBy = make([]int, len(devices)), make([]int, len(devices))
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

// instanceDevice makes the device of an instance of the device of its GPU.
func (s *Session) instanceDevice(d *gpu.Device, e entity, own identity) {
	x := s.instanceOf(e)
	d.Entity = gpu.Entity{Kind: gpu.KindGPUInstance, ParentKind: gpu.KindGPU, Parent: d.GPU, ID: e.id}
	d.InstanceID = x.nvml
	d.Profile, d.MIGUUID = own.mig()
	d.Profile = gpu.InstanceProfile(d.Profile)
	if s.layout.isDivided(e.id) {
		d.MIGUUID = "" // whatever is said is that of one of its compute instances
	}
}

// mig returns what an instance said of itself as a MIG device.
func (i identity) mig() (profile, uuid string) {
	if strings.HasPrefix(i.uuid, "MIG-") {
		uuid = i.uuid
	}
	return profileName(i.model), uuid
}

// remembered fills what a GPU did not report, as a lost one, with what the engine remembers of it.
func (s *Session) remembered(id uint32, who identity) identity {
	if who.uuid != "" {
		return who
	}
	past, err := s.engine.attributes(id)
	if err != nil {
		s.log.Warn("Nothing is known of a GPU that does not answer", "gpu", id, "error", err)
		return who
	}
	past.index, past.minor = who.index, who.minor
	return past
}

// profileName returns the MIG profile, which DCGM gives as the name of an instance, with or without
// the words before it that NVML has.
func profileName(name string) string {
	if i := strings.LastIndex(name, "MIG "); i >= 0 {
		name = name[i+len("MIG "):]
	}
	return strings.TrimSpace(name)
}

// The inspection reads the state of the GPUs and the topology, which takes three calls. It
// is made every inspectIntervals collection intervals, and every inspectPace at least.
const (
	inspectIntervals = 5
	inspectPace      = 5 * time.Second
)

// inspectDue reports whether the inspection is to be made in this Read: it is time, something is
// lost or partitioned (what an instance says may be another's by the next Read), or a GPU has fewer
// values than before: a lost one has only blanks.
func (s *Session) inspectDue(now time.Time) bool {
	pace := min(inspectIntervals*s.plan.Interval, max(inspectPace, s.plan.Interval))
	due := now.Sub(s.inspected) >= pace*9/10 || len(s.layout.instances) > 0 || slices.Contains(s.lost, true)
	for row, n := range s.valued {
		due = due || n < s.valuedBy[row]
	}
	s.valued, s.valuedBy = s.valuedBy, s.valued
	return due
}

// inspect makes faults of the GPUs that DCGM does not read at present, and ends the session if the
// set of entities is another one. That a GPU is lost does not change the set; that one is back
// which was lost when the session opened does: it is in no group, and may say now who it is.
func (s *Session) inspect(b *gpu.Batch, now time.Time) error {
	if !s.inspectDue(now) {
		return nil
	}
	s.inspected = now
	clear(s.lost)
	supported, err := s.engine.supported()
	if err != nil {
		return err
	}
	for row := range s.top.Devices {
		d := &s.top.Devices[row]
		if !isOfGPU(d.Entity) {
			continue
		}
		if slices.Contains(supported, d.GPU) {
			if s.absent[row] || d.UUID == "" {
				s.changed("GPU %d is back", d.GPU)
			}
			continue
		}
		s.lost[row] = true
		if s.gone[row] == nil {
			s.gone[row] = fmt.Errorf("%w: GPU %d is %v", gpu.ErrLost, d.GPU, s.engine.status(d.GPU))
		}
		b.Fail(row, gpu.AllFields, s.gone[row])
	}
	for row := range s.gone {
		if !s.lost[row] {
			s.gone[row] = nil
		}
	}
	for _, id := range slices.Concat(s.layout.unreadable, s.layout.noProfile) {
		if slices.Contains(supported, id) {
			s.changed("GPU %d can be read now", id)
		}
	}
	if err := s.queryDue(now); err != nil {
		return err
	}
	return s.compareLayout()
}

// compareLayout ends the session if GPUs came or went, or a GPU was partitioned again.
func (s *Session) compareLayout() error {
	gpus, err := s.engine.entities(groupGPU)
	if err != nil {
		return err
	}
	slices.Sort(gpus)
	gpus = slices.Compact(gpus)
	if !slices.Equal(gpus, s.layout.gpus) {
		s.changed("the GPUs are now %v, they were %v", gpus, s.layout.gpus)
	}
	if err := s.compareFabric(); err != nil {
		return err
	}
	instances, err := s.engine.instances()
	if err != nil {
		var r *resultError
		if errors.As(err, &r) && endsSession(r.code) {
			return err
		}
		return nil // as in discover: said then
	}
	if slices.Equal(sorted(instances), s.layout.instances) {
		return nil
	}
	s.changed("the MIG instances are not those of before")
	for row := range s.top.Devices {
		// What an instance said may be another instance's by now.
		if s.members[row].group == groupInstance {
			s.lost[row] = true
		}
	}
	return nil
}

// changed ends the session because the topology is another one.
func (s *Session) changed(format string, args ...any) {
	_ = s.End(fmt.Errorf("dcgm: %w: %s", gpu.ErrTopology, fmt.Sprintf(format, args...)))
}
