package podmapper

import (
	"context"
	"fmt"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/deviceid"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A view is what one question to the kubelet came to. It is immutable.
type view struct {
	topology    *gpu.Topology
	at          time.Time
	allocations []Allocation
	listed      []Allocation // by the kubelet, also what it is not believed yet
	owners      *gpu.Owners
	err         error // that there are no allocations and owners
}

// Explain says in sentences how a device id, as a kubelet lists it, finds its entity in t and who
// holds that, or why not. It queries the kubelet once. Found is false if the id names no entity.
func (m *Mapper) Explain(ctx context.Context, t *gpu.Topology, text string) (steps []string, found bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	owners, err := m.attribute(ctx, t)
	return m.explain(&view{topology: t, allocations: m.inputs.allocations, listed: m.listed, owners: owners, err: err}, text)
}

// Recall says what Explain says, as of the latest answer to Attribute, and how old that is. It
// requests nothing and never waits.
func (m *Mapper) Recall(text string) (steps []string, found bool) {
	v := m.latest.Load()
	if v == nil {
		return []string{"Nothing is known yet: no collection has listed the pods of the kubelet."}, false
	}
	steps, found = m.explain(v, text)
	return append(steps, fmt.Sprintf("This is as of the collection %s ago.", time.Since(v.at).Round(time.Second))), found
}

// explain requests nothing.
func (m *Mapper) explain(v *view, text string) (steps []string, found bool) {
	say := func(format string, args ...any) { steps = append(steps, fmt.Sprintf(format, args...)) }

	// What the id says, and which entity that is.
	r := deviceid.NewResolver(v.topology)
	id := deviceid.Parse(text)
	steps = r.Explain(id)
	rows := r.Rows(id)
	if id.Form == deviceid.FormClaim {
		steps = steps[:1] // that it is a claim's device; the slice says which
		if m.opt.Device == nil {
			say("Claims are not followed: --kubernetes-enable-dra is off.")
		} else if device, ok := m.opt.Device(id.Driver, id.Pool, id.Device); !ok {
			say("No ResourceSlice of this node has it, or none with a UUID: slices can lag behind claims, and are seen only where the API server may be read.")
		} else {
			say("Its ResourceSlice says that it is %s.", device.UUID)
			steps = append(steps, r.Explain(deviceid.Parse(device.UUID))...)
			rows = r.Rows(deviceid.Parse(device.UUID))
		}
	}

	// Who holds it.
	if v.err != nil {
		say("The kubelet cannot be queried for its owner: %v.", v.err)
		return steps, rows != nil
	}
	listed := 0
	for _, h := range v.allocations {
		if h.ID() != id {
			continue
		}
		listed++
		as := "resource " + h.Resource
		if h.Claim != "" {
			as = fmt.Sprintf("claim %s/%s of driver %s", h.ClaimNamespace, h.Claim, h.Resource)
		}
		say("The kubelet lists it for container %s of pod %s/%s, as %s.", h.Container, h.Namespace, h.Pod, as)
		if m.admin(&h) {
			say("That claim has admin access: it sees the device and does not own it.")
		}
	}
	for i := range v.listed {
		if h := &v.listed[i]; listed == 0 && h.ID() == id {
			listed++
			say("The kubelet lists it for container %s of pod %s/%s, but it has just started and may not list all pods yet: who else has the device is known within %.0f s.",
				h.Container, h.Namespace, h.Pod, maxSettle.Seconds())
		}
	}
	if listed == 0 {
		say("The kubelet lists it for no container, among %d devices that containers have.", len(v.allocations))
	}

	// What becomes of it on the page.
	for _, row := range rows {
		entity := r.Describe(row)
		switch use := v.owners.UseOf(row); {
		case len(use.Owners) == 0:
			say("So %s has no owner, and its series carry no pod labels.", entity)
		case v.owners.Of(row) == nil:
			say("So %s is shared by %d owners (%s), and its series carry no pod labels.", entity, len(use.Owners), use.Sharing)
		default:
			o := use.Owners[0]
			say("So the series of %s carry the labels of container %s of pod %s/%s.", entity, o.Container, o.Namespace, o.Pod)
		}
	}
	if rows == nil {
		say("So it is counted in dcgm_exporter_unmatched_devices while a container holds it, and labels no series.")
	}
	return steps, rows != nil
}
