package jobmapper

import (
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/deviceid"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// names resolves the names of job files: a GPU's index (2) or UUID (GPU-…), optionally with a GPU instance id (2.7,
// GPU-….7), or a MIG device's UUID (MIG-…).
type names struct {
	resolver *deviceid.Resolver
	byIndex  map[string]int // rows by index, and by index and instance
}

func newNames(t *gpu.Topology) names {
	n := names{deviceid.NewResolver(t), map[string]int{}}
	for row := range t.Devices {
		d := &t.Devices[row]
		name := strconv.FormatUint(uint64(d.GPU), 10)
		switch d.Entity.Kind {
		case gpu.KindGPU:
			n.byIndex[name] = row
		case gpu.KindGPUInstance:
			n.byIndex[name+"."+strconv.FormatUint(uint64(d.InstanceID), 10)] = row
		}
	}
	return n
}

// row returns the row of the entity with this name.
func (n names) row(name string) (row int, ok bool) {
	if row, ok := n.byIndex[name]; ok {
		return row, true
	}
	device, instance, cut := strings.Cut(name, ".")
	id := deviceid.Parse(device)
	switch {
	case id.Replica != "":
		return 0, false
	case id.Form == deviceid.FormGPU && cut:
		number, err := strconv.ParseUint(instance, 10, 32)
		if err != nil || !deviceid.IsNumber(instance) {
			return 0, false
		}
		id = deviceid.ID{Form: deviceid.FormMIGPath, UUID: id.UUID, Instance: uint32(number)}
	case cut || id.Form != deviceid.FormGPU && id.Form != deviceid.FormMIG && id.Form != deviceid.FormBare:
		return 0, false
	}
	rows := n.resolver.Rows(id)
	if len(rows) != 1 {
		return 0, false
	}
	return rows[0], true
}
