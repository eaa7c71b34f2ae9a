package podmapper

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gauge"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// maxUnmatched bounds the pairs of resource and form that are counted. The owners
// of an entity are bounded by gpu.MaxOwners.
const maxUnmatched = 64

// claimDriver is the DRA driver whose devices must match; those of others are
// used where they do.
const claimDriver = "gpu.nvidia.com"

// A tenancy is a pod that holds a device of a plugin.
type tenancy struct{ namespace, pod, device string }

func tenancyOf(h *Holding) tenancy { return tenancy{h.Namespace, h.Pod, h.Device} }

// assign makes the owners of a listing.
func (m *Mapper) assign(in *inputs) *gpu.Owners {
	t := in.topology
	rows := len(t.Devices)
	o := &gpu.Owners{Uses: make([]gpu.Use, rows)}
	unmatched := map[[2]string]int{}
	lost := dropped{}
	podLabels := map[[2]string][]gpu.Label{}
	uids := map[[2]string]string{}

	for _, h := range m.allocated(m.valid(in.holdings)) {
		match, known := m.match(&h)
		if match == nil {
			if known {
				key := [2]string{h.Resource, string(h.ID().Form)}
				if _, ok := unmatched[key]; !ok && len(unmatched) >= maxUnmatched {
					key[0] = "other"
				}
				unmatched[key]++
			}
			continue
		}
		id := h.ID()
		owner := gpu.Owner{
			Namespace: h.Namespace, Pod: h.Pod, Container: h.Container,
			Resource: h.Resource, Replica: cmp.Or(id.Replica, h.Share),
		}
		owner.PodUID = in.uids[podName{h.Namespace, h.Pod}]
		if info, ok := m.opt.Pod(h.Namespace, h.Pod); ok {
			owner.PodUID = info.UID
			key := [2]string{h.Namespace, h.Pod}
			uids[key] = info.UID
			labels, ok := podLabels[key]
			if !ok {
				labels = m.policy.labels(info.Labels, lost)
				podLabels[key] = labels
			}
			owner.Labels = labels
		} else if key := [2]string{h.Namespace, h.Pod}; m.known[key] != "" {
			uids[key] = m.known[key] // it is deleted, and listed still
		}
		if h.Claim != "" {
			owner.Labels = append(m.claimLabels(&h), owner.Labels...)
		}
		part := m.resolver.Part(m.named(&h))
		for _, row := range match {
			use := &o.Uses[row]
			owner.Part = 0
			if t.Devices[row].Entity.Kind == gpu.KindGPUInstance {
				owner.Part = part
			}
			use.Owners = append(use.Owners, owner)
			switch {
			case h.Claim == "" && (id.Replica != "" || strings.HasSuffix(h.Resource, ".shared")):
				use.Sharing = in.replicated
				if id.Replica != "" {
					replicas := m.kubelet.replicas(id)
					use.Replicas = max(use.Replicas, replicas)
					use.Owners[len(use.Owners)-1].Part /= float64(max(replicas, 1))
				}
			case h.Share != "" || h.Claim != "" && owner.Part == 0 && !sameOwner(&use.Owners[0], &owner):
				use.Sharing = gpu.SharingDRA
			}
		}
	}
	o.Labels = gpu.ExclusiveLabels(t, o.Uses, m.labels)
	spared := 0
	for row := range o.Uses {
		spared += o.Uses[row].Limit()
	}

	m.known = uids
	var series []gauge.Series
	for key, n := range unmatched {
		series = append(series, gauge.Series{Value: float64(n), Labels: key[:]})
	}
	m.opt.Metrics.unmatched.Set(series...)
	for _, reason := range []string{droppedCollision, droppedBudget, droppedLength} {
		m.opt.Metrics.labels.WithLabelValues(reason).Set(float64(lost[reason]))
	}
	m.opt.Metrics.owners.Set(float64(spared))
	return o
}

// valid returns the holdings without those of claims with admin access and of pods that are over but still
// listed, as old kubelets do: the API server says so, or a newer pod holds a
// device of a plugin, which is never given to two.
func (m *Mapper) valid(holdings []Holding) []Holding {
	m.count++
	seen := make(map[tenancy]uint64, len(holdings))
	tenants := map[string][]tenancy{} // of a device
	var valid []Holding
	for _, h := range holdings {
		if info, ok := m.opt.Pod(h.Namespace, h.Pod); ok && info.Finished || m.admin(&h) {
			continue
		}
		valid = append(valid, h)
		if h.Claim != "" {
			continue
		}
		who := tenancyOf(&h)
		if _, ok := seen[who]; ok {
			continue
		}
		since, ok := m.seen[who]
		if !ok {
			since = m.count
		}
		seen[who] = since
		tenants[h.Device] = append(tenants[h.Device], who)
	}
	m.seen = seen
	return slices.DeleteFunc(valid, func(h Holding) bool {
		if h.Claim != "" {
			return false
		}
		me := tenancyOf(&h)
		return slices.ContainsFunc(tenants[h.Device], func(other tenancy) bool { return m.newer(other, me) })
	})
}

// newer reports whether a is known to have got the device after b: by when the
// API server says the pods were made, else by when they were first listed.
func (m *Mapper) newer(a, b tenancy) bool {
	x, okX := m.opt.Pod(a.namespace, a.pod)
	y, okY := m.opt.Pod(b.namespace, b.pod)
	if okX && okY && !x.Created.Equal(y.Created) {
		return x.Created.After(y.Created)
	}
	return m.seen[a] > m.seen[b]
}

// match returns the rows of the entities that h holds, and whether it is known
// to be a GPU, so that no row means that something is missing.
func (m *Mapper) match(h *Holding) (rows []int, known bool) {
	id := h.ID()
	if id.Form != FormClaim {
		return m.resolver.Rows(id), id.ofNVIDIA() || strings.HasPrefix(h.Resource, "nvidia.com/") || slices.Contains(m.opt.Resources, h.Resource)
	}
	if m.opt.Device == nil {
		return nil, false
	}
	device, ok := m.opt.Device(id.Driver, id.Pool, id.Device)
	if !ok {
		return nil, id.Driver == claimDriver
	}
	return m.resolver.Rows(ParseID(device.UUID)), id.Driver == claimDriver
}

// named returns the id of the device that h holds, of a claim's that which its
// slice tells.
func (m *Mapper) named(h *Holding) ID {
	id := h.ID()
	if id.Form != FormClaim || m.opt.Device == nil {
		return id
	}
	device, _ := m.opt.Device(id.Driver, id.Pool, id.Device)
	return ParseID(device.UUID)
}

// claimLabels are the reference's labels of a device that a claim holds.
func (m *Mapper) claimLabels(h *Holding) []gpu.Label {
	labels := []gpu.Label{
		{Name: "dra_claim_name", Value: h.Claim},
		{Name: "dra_claim_namespace", Value: h.ClaimNamespace},
		{Name: "dra_device_name", Value: h.Device},
		{Name: "dra_driver_name", Value: h.Resource},
		{Name: "dra_pool_name", Value: h.Pool},
	}
	if device, ok := m.opt.Device(h.Resource, h.Pool, h.Device); ok && device.MIG {
		labels = append(labels,
			gpu.Label{Name: "dra_mig_profile", Value: device.Profile},
			gpu.Label{Name: "dra_mig_device_uuid", Value: device.UUID})
	}
	return labels
}

// labels are those of an entity's only owner, sorted by name and none blank.
func (m *Mapper) labels(owner *gpu.Owner) []gpu.Label {
	labels := []gpu.Label{
		{Name: "container", Value: owner.Container},
		{Name: "namespace", Value: owner.Namespace},
		{Name: "pod", Value: owner.Pod},
	}
	if m.opt.PodUID {
		labels = append(labels, gpu.Label{Name: "pod_uid", Value: owner.PodUID})
	}
	labels = append(labels, owner.Labels...)
	labels = slices.DeleteFunc(labels, func(l gpu.Label) bool { return l.Value == "" })
	slices.SortFunc(labels, func(a, b gpu.Label) int { return cmp.Compare(a.Name, b.Name) })
	return labels
}

func sameOwner(a, b *gpu.Owner) bool {
	return a.Namespace == b.Namespace && a.Pod == b.Pod && a.Container == b.Container
}
