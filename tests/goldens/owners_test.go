package goldens

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/jobmapper"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
)

// A kubeletSetting is a way to read the kubelet.
type kubeletSetting struct {
	name    string
	options podmapper.Options
	claims  bool // --kubernetes-enable-dra
	virtual bool
}

var kubeletSettings = []kubeletSetting{
	{name: "kubelet"},
	{name: "kubelet-uid-labels", options: podmapper.Options{PodUID: true, PodLabels: true}, claims: true},
	{name: "kubelet-allowed", options: podmapper.Options{PodLabels: true, LabelsAllowed: []*regexp.Regexp{regexp.MustCompile("^app")}}},
	{name: "kubelet-virtual", options: podmapper.Options{PodUID: true, PodLabels: true}, claims: true, virtual: true},
}

// A roster is what a kubelet and an API server report of the pods of a node.
type roster struct {
	pods    []*v1.PodResources
	infos   map[string]podmapper.PodInfo     // by namespace/name
	devices map[string]podmapper.ClaimDevice // by name
}

// rosterOf gives the pods of a node their devices under the ids that kubelets list, and pods of its
// own to the GPUs that are free: by index, by a claim, and by an id that matches nothing.
func rosterOf(topology *gpu.Topology, owners *gpu.Owners) *roster {
	r := &roster{infos: map[string]podmapper.PodInfo{}, devices: map[string]podmapper.ClaimDevice{}}
	free := 0
	for row := range topology.Devices {
		d := &topology.Devices[row]
		id, resource := idOf(d)
		if id == "" {
			continue
		}
		use := owners.UseOf(row)
		held := false
		for i := range use.Owners {
			if o := &use.Owners[i]; o.Pod != "" {
				r.give(o, use.Sharing, id, resource)
				held = true
			}
		}
		if held || cut(topology, row) {
			continue
		}
		name := fmt.Sprintf("spare/pod-%d", free)
		switch free++; free % 3 {
		case 1:
			r.pod(name, kubelet.Container("by-index", resource, fmt.Sprintf("nvidia%d", d.Minor)))
		case 2:
			r.claim(name, id, d)
		default:
			r.pod(name, kubelet.Container("one", resource, id), kubelet.Container("two", resource, id))
		}
	}
	r.pod("spare/elsewhere", kubelet.Container("main", "nvidia.com/gpu", "GPU-ffffffff-ffff-4fff-8fff-ffffffffffff"))
	return r
}

// idOf returns the id under which a device plugin lists a device; none for what a plugin does not
// list.
func idOf(d *gpu.Device) (id, resource string) {
	switch d.Entity.Kind {
	case gpu.KindGPU:
		return d.UUID, "nvidia.com/gpu"
	case gpu.KindGPUInstance:
		return d.MIGUUID, "nvidia.com/mig-" + d.Profile
	default:
		return "", ""
	}
}

// cut reports whether the device is a GPU with instances.
func cut(t *gpu.Topology, row int) bool {
	for other := range t.Devices {
		if t.Devices[row].Entity.Kind == gpu.KindGPU && t.Devices[other].Entity.Kind == gpu.KindGPUInstance && t.ParentRow(other) == row {
			return true
		}
	}
	return false
}

func (r *roster) give(o *gpu.Owner, sharing gpu.Sharing, id, resource string) {
	name := o.Namespace + "/" + o.Pod
	switch {
	case sharing == gpu.SharingDRA:
		r.devices["shared-"+id[:12]] = podmapper.ClaimDevice{UUID: id}
		r.pod(name, kubelet.Claiming(o.Container, o.Namespace, "claim", "gpu.nvidia.com", nodeName, "shared-"+id[:12], ""))
	case o.Replica != "":
		r.pod(name, kubelet.Container(o.Container, resource, id+"::"+o.Replica))
	default:
		r.pod(name, kubelet.Container(o.Container, resource, id))
	}
	info := r.infos[name]
	info.UID = o.PodUID
	r.infos[name] = info
}

func (r *roster) claim(name, id string, d *gpu.Device) {
	device := "spare-" + id[:12]
	r.devices[device] = podmapper.ClaimDevice{UUID: id, MIG: d.Profile != "", Profile: d.Profile}
	r.pod(name, kubelet.Claiming("main", "spare", "claim", "gpu.nvidia.com", nodeName, device, ""))
}

func (r *roster) pod(name string, containers ...*v1.ContainerResources) {
	p := kubelet.Pod(name, containers...)
	r.pods = append(r.pods, p)
	r.infos[name] = podmapper.PodInfo{UID: "00000000-0000-4000-8000-" + fmt.Sprintf("%012d", len(r.pods)), Labels: map[string]string{
		"app": p.Name, "app.kubernetes.io/name": p.Namespace, "9-lives/ä b": "odd \"quoted\" \\ text\n", "pod": "of its own",
	}}
}

// attributor reads a kubelet that lists the roster.
func (r *roster) attributor(t *testing.T, topology *gpu.Topology, setting kubeletSetting) collector.Attributor {
	t.Helper()
	o := setting.options
	server := kubelet.Start(t, kubelet.Lists(r.pods...))
	o.Socket, o.Metrics = server.Socket(), podmapper.NewMetrics(prometheus.NewRegistry())
	if o.PodUID || o.PodLabels {
		o.Pod = func(namespace, name string) (podmapper.PodInfo, bool) {
			info, ok := r.infos[namespace+"/"+name]
			return info, ok
		}
	}
	if setting.claims {
		o.Device = func(_, _, name string) (podmapper.ClaimDevice, bool) { d, ok := r.devices[name]; return d, ok }
	}
	mapper := podmapper.New(o)
	defer mapper.Close()
	owners, err := mapper.Attribute(t.Context(), topology)
	if err != nil {
		t.Fatal(err)
	}
	return known{t: t, name: mapper.Name(), of: topology, owners: owners}
}

// jobsOf reads the files of two jobs on the first GPU and one on each other.
func jobsOf(t *testing.T, topology *gpu.Topology) collector.Attributor {
	t.Helper()
	dir := t.TempDir()
	for _, d := range topology.Devices {
		if d.Entity.Kind != gpu.KindGPU {
			continue
		}
		text := fmt.Sprintf("job-%d\n", d.GPU)
		if d.GPU == 0 {
			text += "job-too\n"
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(d.GPU)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mapper := jobmapper.New(jobmapper.Options{Dir: dir, Metrics: jobmapper.NewMetrics(prometheus.NewRegistry())})
	owners, err := mapper.Attribute(t.Context(), topology)
	if err != nil {
		t.Fatal(err)
	}
	return known{t: t, name: mapper.Name(), of: topology, owners: owners}
}
