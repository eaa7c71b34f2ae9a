package sim_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

// entities returns the names of the session's entities of some kinds.
func (r *rig) entities(kinds ...gpu.Kind) []string {
	var list []string
	for _, d := range r.s.Topology().Devices {
		if gpu.KindsOf(kinds...).Has(d.Entity.Kind) {
			list = append(list, d.Entity.String())
		}
	}
	return list
}

// Unbinding a GPU removes its instances and links and ends the session. After it is bound again, everything is back,
// and its energy counter has grown.
func TestGPUUnboundAndBound(t *testing.T) {
	const deviceCount, linkTx = 4, 780
	r := faults(t, "everything", simulated.Plan(energy, fbUsed, linkTx, deviceCount), `
faults: [{fault: unbound, at: 30s, for: 1m, devices: ["0", "2"]}]`)
	whole := r.entities(gpu.KindGPU, gpu.KindGPUInstance, gpu.KindNVLink)
	before := r.read().num(0, energy)
	r.At(30 * time.Second)
	r.ends(gpu.ErrTopology)
	r.open()
	if diff := cmp.Diff([]string{"GPU 1"}, r.entities(gpu.KindGPU, gpu.KindGPUInstance)); diff != "" {
		t.Errorf("entities without the unbound GPUs (-want +got):\n%s", diff)
	}
	for _, d := range r.s.Topology().Devices {
		if d.Entity.ParentKind == gpu.KindGPU && d.GPU != 1 {
			t.Errorf("%v is in the topology without its GPU, want it absent", d.Entity)
		}
	}
	if got := r.read().num(r.rows(gpu.KindNode)[0], deviceCount); got != 1 {
		t.Errorf("device count = %v, want 1", got)
	}
	r.At(91 * time.Second)
	r.ends(gpu.ErrTopology)
	r.open()
	if diff := cmp.Diff(whole, r.entities(gpu.KindGPU, gpu.KindGPUInstance, gpu.KindNVLink)); diff != "" {
		t.Errorf("entities after binding (-before +now):\n%s", diff)
	}
	if after := r.read().num(0, energy); after <= before {
		t.Errorf("energy went from %[2]v to %[1]v, want it to grow", after, before)
	}
}

// If a GPU is unbound and bound again between two reads, the session still ends.
func TestGPUUnboundBetweenTwoReads(t *testing.T) {
	r := faults(t, "t4", simulated.Plan(gpuTemp), `faults: [{fault: unbound, at: 3s, for: 1s, devices: ["1"]}]`)
	r.read()
	r.At(10 * time.Second)
	r.ends(gpu.ErrTopology)
	r.open()
	r.read()
}
