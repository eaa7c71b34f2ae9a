package podmapper

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/attribution"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// claimDriver is the DRA driver whose devices must match an entity. Devices of other drivers are used if they match.
const claimDriver = "gpu.nvidia.com"

// podDevice is a pod with a device of a device plugin.
type podDevice struct {
	podName
	device string
}

// assignment builds the owners from the mapper's inputs.
type assignment struct {
	*Mapper
	uses      []gpu.Use
	dropped   map[string]int // labels of pods that were dropped, by reason
	labelsOf  map[podName][]gpu.Label
	pending   []Allocation // devices of claims that have not been read
	settled   []bool       // rows of exclusive claims that were read; other claims of the row have admin access
	unmatched []Allocation // GPUs without an entity
	// Whether a claim, or a pod scheduled by HAMi, holds a device of this node that is not known yet.
	unplacedClaim, unplacedHAMi bool
}

// assign builds the owners from the inputs.
func (m *Mapper) assign() *gpu.Owners {
	topology := m.inputs.topology
	a := &assignment{
		Mapper: m, uses: make([]gpu.Use, len(topology.Devices)), settled: make([]bool, len(topology.Devices)),
		dropped: map[string]int{}, labelsOf: map[podName][]gpu.Label{},
	}
	m.podInfo = m.knownPods(m.inputs.allocations)
	for _, alloc := range m.allocated(m.valid(m.inputs.allocations)) {
		rows := m.rows(&alloc)
		switch {
		case rows == nil && m.isGPU(&alloc):
			a.unmatched = append(a.unmatched, alloc)
		case m.claimed(&alloc).pending():
			a.pending = append(a.pending, alloc)
		case rows != nil:
			a.addOwner(&alloc, rows)
		}
		a.noteUnplaced(&alloc)
	}
	a.markIncomplete()
	labels, omitted := attribution.ExclusiveLabels(topology, a.uses, m.labels), 0
	for row := range a.uses {
		omitted += attribution.LimitOwners(&a.uses[row])
	}
	m.unmatched = a.unmatched
	m.opt.Metrics.setUnmatched(a.unmatched)
	m.opt.Metrics.setDropped(a.dropped)
	m.opt.Metrics.owners.Set(float64(omitted))
	return &gpu.Owners{Labels: labels, Uses: a.uses}
}

// addOwner adds the owner of an allocation to rows.
func (a *assignment) addOwner(alloc *Allocation, rows []int) {
	unknownPart := false
	owner := gpu.Owner{
		Namespace: alloc.Namespace, Pod: alloc.Pod, Container: alloc.Container, PodUID: a.inputs.uids[alloc.podName],
		Resource: alloc.Resource, Replica: cmp.Or(alloc.ID.Replica, alloc.Share),
	}
	if info, ok := a.pod(alloc.podName); ok {
		owner.PodUID = info.UID
		if _, ok := a.labelsOf[alloc.podName]; !ok {
			a.labelsOf[alloc.podName] = a.podLabels(info.Labels, a.dropped)
		}
		owner.Labels = a.labelsOf[alloc.podName]
	}
	if alloc.Claim != "" { // a claim names a single device
		device, _ := a.device(alloc)
		uuid := cmp.Or(device.UUID, a.inputs.topology.Devices[rows[0]].MIGUUID)
		owner.Labels = append(claimLabels(alloc, &device, uuid), owner.Labels...)
		claimed := a.claimed(alloc)
		owner.Part = device.part(claimed.Consumed)
		a.settled[rows[0]] = claimed.Read && alloc.isExclusive()
		unknownPart = alloc.Share != "" && len(device.Capacity) > 0 && !claimed.Read
	}
	for _, row := range rows {
		use := &a.uses[row]
		use.Owners = append(use.Owners, owner)
		use.Incomplete = use.Incomplete || unknownPart
		first := &use.Owners[0]
		isOther := owner.Namespace != first.Namespace || owner.Pod != first.Pod || owner.Container != first.Container
		switch {
		case alloc.isReplica():
			use.Sharing = a.inputs.replicated
			if alloc.ID.Replica != "" {
				use.Replicas = max(use.Replicas, len(a.kubelet.shared[alloc.ID.WithoutReplica()]))
			}
		case alloc.Share != "" || alloc.Claim != "" && isOther:
			use.Sharing = gpu.SharingDRA
		}
	}
}

// markIncomplete marks the entities that may have unknown owners. These are entities in doubt, and entities without an
// owner while the kubelet may not know all pods or the device of a claim is unknown. While the device of a HAMi pod is
// unknown, shared entities are marked too.
func (a *assignment) markIncomplete() {
	for _, alloc := range a.allocated(a.inputs.doubted) {
		for _, row := range a.rows(&alloc) {
			a.uses[row].Incomplete = a.uses[row].Incomplete || len(a.uses[row].Owners) == 0
		}
		a.noteUnplaced(&alloc)
	}
	for _, alloc := range a.pending {
		for _, row := range a.rows(&alloc) {
			a.uses[row].Incomplete = a.uses[row].Incomplete || !a.settled[row]
		}
	}
	for row := range a.uses {
		use := &a.uses[row]
		free := len(use.Owners) == 0
		if parent := a.inputs.topology.ParentRow(row); parent >= 0 && len(a.uses[parent].Owners) > 0 {
			free = false // an instance of a GPU that is owned as a whole
		}
		replicated := use.Sharing != gpu.SharingNone && use.Sharing != gpu.SharingDRA
		use.Incomplete = use.Incomplete || free && (!a.inputs.ownersKnown || a.unplacedClaim) ||
			(free || replicated) && a.unplacedHAMi
	}
}

// noteUnplaced records that the device of alloc is unknown. The ResourceSlice lags behind or is not read, or HAMi's
// annotation is missing.
func (a *assignment) noteUnplaced(alloc *Allocation) {
	_, placed := a.device(alloc)
	a.unplacedHAMi = a.unplacedHAMi || alloc.hami != ""
	a.unplacedClaim = a.unplacedClaim || alloc.Claim != "" && alloc.Resource == claimDriver && !placed
}

// valid removes the allocations of claims with admin access and of pods that have ended. Old kubelets still list ended
// pods. A pod has ended if the API server says so, or if a newer pod holds the same plugin device, which is never
// assigned twice.
func (m *Mapper) valid(allocations []Allocation) []Allocation {
	m.count++
	seen := make(map[podDevice]uint64, len(allocations))
	var valid []Allocation
	for _, alloc := range allocations {
		if info, ok := m.pod(alloc.podName); ok && info.Finished || m.claimed(&alloc).Admin {
			continue
		}
		valid = append(valid, alloc)
		if alloc.Claim == "" {
			who := podDevice{alloc.podName, alloc.Device}
			seen[who] = cmp.Or(m.seen[who], m.count)
		}
	}
	m.seen = seen
	newest := map[string]podDevice{} // the newest podDevice by device
	for who := range seen {
		if other, ok := newest[who.device]; !ok || m.newer(who, other) {
			newest[who.device] = who
		}
	}
	return slices.DeleteFunc(valid, func(alloc Allocation) bool {
		return alloc.Claim == "" && m.newer(newest[alloc.Device], podDevice{alloc.podName, alloc.Device})
	})
}

// newer reports whether a is known to have received the device after b. It compares the creation times from the API
// server, or else when each was first listed.
func (m *Mapper) newer(a, b podDevice) bool {
	x, okX := m.pod(a.podName)
	y, okY := m.pod(b.podName)
	if okX && okY && !x.Created.Equal(y.Created) {
		return x.Created.After(y.Created)
	}
	return m.seen[a] > m.seen[b]
}

// rows returns the rows of the entities that alloc holds.
func (m *Mapper) rows(alloc *Allocation) []int {
	if alloc.Claim == "" {
		return m.resolver.Rows(alloc.ID)
	}
	if device, ok := m.device(alloc); ok {
		return m.resolver.Rows(device.id())
	}
	return nil
}

// isGPU reports whether alloc is certainly a GPU. A GPU without rows is unmatched.
func (m *Mapper) isGPU(alloc *Allocation) bool {
	if alloc.Claim != "" {
		return m.opt.Device != nil && alloc.Resource == claimDriver
	}
	return alloc.ID.OfNVIDIA() || strings.HasPrefix(alloc.Resource, "nvidia.com/") ||
		slices.Contains(m.opt.Resources, alloc.Resource)
}

// device returns the device of a claim, if a ResourceSlice lists it.
func (m *Mapper) device(alloc *Allocation) (ClaimDevice, bool) {
	if alloc.Claim == "" || m.opt.Device == nil {
		return ClaimDevice{}, false
	}
	return m.opt.Device(alloc.Resource, alloc.Pool, alloc.Device)
}

// Unmatched is a device of a container that matches no entity of the topology. It counts in
// dcgm_exporter_unmatched_devices.
type Unmatched struct {
	Allocation
	Why string // a sentence
}

// Unmatched queries the kubelet once and returns the unmatched devices in the order of the allocations. It returns the
// errors of Attribute.
func (m *Mapper) Unmatched(ctx context.Context, t *gpu.Topology) (unmatched []Unmatched, err error) {
	if _, err := m.Attribute(ctx, t); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, alloc := range m.unmatched {
		id := alloc.ID
		device, listed := m.device(&alloc)
		if listed {
			id = device.id()
		}
		why := id.Missing()
		switch {
		case alloc.hami != "":
			why = "The pod has no HAMi annotation that names its GPU, or pods are not watched: " +
				"set --kubernetes-enable-pod-uid."
		case alloc.Claim != "" && !listed:
			why = "No ResourceSlice of this node lists the device with a UUID or a placement. " +
				"Slices can lag behind claims, and the exporter needs permission to read them."
		}
		unmatched = append(unmatched, Unmatched{alloc, why})
	}
	return unmatched, nil
}

// part returns the fraction of the device that is consumed: the largest fraction of any of its capacities. It is 0 if
// none is consumed.
func (d *ClaimDevice) part(consumed map[string]float64) (part float64) {
	for name, n := range consumed {
		if all := d.Capacity[name]; all > 0 {
			part = max(part, min(n/all, 1))
		}
	}
	return part
}

// claimLabels returns dcgm-exporter's labels for a claimed device. uuid is its current UUID.
func claimLabels(alloc *Allocation, device *ClaimDevice, uuid string) []gpu.Label {
	labels := []gpu.Label{
		{Name: "dra_claim_name", Value: alloc.Claim}, {Name: "dra_claim_namespace", Value: alloc.ClaimNamespace},
		{Name: "dra_device_name", Value: alloc.Device}, {Name: "dra_driver_name", Value: alloc.Resource},
		{Name: "dra_pool_name", Value: alloc.Pool},
	}
	if device.MIG {
		profile := gpu.Label{Name: "dra_mig_profile", Value: device.Profile}
		labels = append(labels, profile, gpu.Label{Name: "dra_mig_device_uuid", Value: uuid})
	}
	return labels
}

// labels returns the labels of an entity with a single owner, sorted by name, without empty values.
func (m *Mapper) labels(owner *gpu.Owner) []gpu.Label {
	labels := owner.PodLabels()
	if m.opt.PodUID {
		labels = append(labels, gpu.Label{Name: "pod_uid", Value: owner.PodUID})
	}
	labels = append(labels, owner.Labels...)
	labels = slices.DeleteFunc(labels, func(l gpu.Label) bool { return l.Value == "" })
	slices.SortFunc(labels, func(a, b gpu.Label) int { return cmp.Compare(a.Name, b.Name) })
	return labels
}
