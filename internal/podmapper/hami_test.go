package podmapper_test

import (
	"testing"
	"time"

	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
)

// inMain returns a pod whose container main has devices.
func inMain(pod string, ids ...string) *v1.PodResources {
	return kubelet.Pod(pod, kubelet.Container("main", "nvidia.com/gpu", ids...))
}

// HAMi's scheduler chooses the GPU, regardless of the id that the kubelet lists.
func TestHAMi(t *testing.T) {
	one := func(uuid string) string { return uuid + ",NVIDIA,3000,30:" }
	both := []string{gpu0 + "-3", gpu0 + "-4"}
	for name, tt := range map[string]struct {
		annotation string
		listed     []string // ids listed for the container main
		rows       []int
		unmatched  float64
	}{
		"annotation names another GPU":                    {one(gpu4) + ";;", []string{gpu0 + "-3"}, []int{4}, 0},
		"annotation names the listed GPU":                 {one(gpu0) + ";;", []string{gpu0 + "-0"}, []int{0}, 0},
		"annotation names two other GPUs":                 {one(gpu4) + one(gpu1) + ";;", both, []int{1, 4}, 0},
		"annotation names fewer GPUs than are listed":     {one(gpu4) + ";;", both, []int{4}, 1},
		"annotation for another container":                {";" + one(gpu4) + ";", []string{gpu0 + "-3"}, nil, 1},
		"annotation for more containers than the pod has": {one(gpu4) + ";;;", []string{gpu0 + "-3"}, nil, 1},
		"annotation with a device of another vendor":      {gpu4 + ",MLU,3000,30:;;", []string{gpu0 + "-3"}, nil, 1},
		"no annotation":       {"", []string{gpu0 + "-3"}, nil, 1},
		"invalid annotation":  {"x;y", []string{gpu0 + "-3"}, nil, 1},
		"NVIDIA's own plugin": {one(gpu4) + ";;", []string{gpu0}, []int{0}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			info := podmapper.PodInfo{UID: uidA, Containers: []string{"main", "beside"}, Allocated: tt.annotation}
			w := worldWith(t, newAPI(infos{"ml/a": info}).options(), inMain("ml/a", tt.listed...))
			o := w.attribute()
			var rows []int
			for row := range o.Uses {
				if len(o.UseOf(row).Owners) == 0 {
					continue
				}
				rows = append(rows, row)
				owner := o.UseOf(row).Owners[0]
				want(t, "owner", owner.Pod+"/"+owner.Container+" "+owner.PodUID, "a/main "+uidA)
				shared, hami := owner.Replica != "", name != "NVIDIA's own plugin"
				if sharing := o.UseOf(row).Sharing; shared != hami || (sharing == gpu.SharingTimeSlicing) != hami {
					t.Errorf("row %d: replica = %q, sharing = %v; want a replica and time-slicing: %t",
						row, owner.Replica, sharing, hami)
				}
			}
			want(t, "rows", rows, tt.rows)
			want(t, "unmatched", w.unmatched()["gpu_uuid nvidia.com/gpu "], tt.unmatched)
		})
	}
}

// Each container gets the devices from its own position in the annotation.
func TestHAMiContainers(t *testing.T) {
	a := newAPI(infos{"ml/a": {
		UID: uidA, Containers: []string{"main", "beside"}, Allocated: gpu4 + ",NVIDIA,1,1:;" + gpu1 + ",NVIDIA,1,1:;",
	}})
	w := worldWith(t, a.options(), kubelet.Pod("ml/a",
		kubelet.Container("beside", "nvidia.com/gpu", gpu0+"-1"),
		kubelet.Container("main", "nvidia.com/gpu", gpu0+"-2")))
	want(t, "labels", pods(w.attribute()), map[int]string{1: "ml/a/beside", 4: "ml/a/main"})
}

// Two pods that HAMi places on one GPU share it, regardless of the ids that the kubelet chose.
func TestHAMiShares(t *testing.T) {
	info := func(uid string) podmapper.PodInfo {
		return podmapper.PodInfo{UID: uid, Containers: []string{"main"}, Allocated: gpu4 + ",NVIDIA,3000,0:;"}
	}
	a := newAPI(infos{"ml/a": info(uidA), "ml/b": info(uidB)})
	w := worldWith(t, a.options(), inMain("ml/a", gpu0+"-1"), inMain("ml/b", gpu4+"-1"))
	o := w.attribute()
	want(t, "labels", pods(o), map[int]string{})
	want(t, "UIDs", uids(o), map[string]string{"a": uidA, "b": uidB})

	// An exporter that starts while the kubelet loads its pods reports the owners as unknown.
	w = worldWith(t, a.options(), inMain("ml/a", gpu0+"-1"))
	w.Born(time.Now())
	want(t, "owners while the list may be incomplete", len(w.attribute().UseOf(4).Owners), 0)
}
