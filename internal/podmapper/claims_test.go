package podmapper_test

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
)

// While the kubelet restarts, a pod is recreated under its name with another device. Once the new pod is listed, the
// old pod's device is released.
func TestListedPodHasAllItsClaims(t *testing.T) {
	before := claims("ml/a", "a-x7k", "gpu-0")
	again := claims("ml/a", "a-p2q", "gpu-1")
	w := newAged(t, podmapper.Options{Device: claimed}, before)
	o := w.restarts(5*time.Second, again)
	want(t, "owners of gpu-1", named(o, 1), []string{"a"})
	want(t, "owners of gpu-0, which the ended pod had", named(o, 0), nil)
}

// While the kubelet restarts, a pod ends and a pod of the same name starts without a GPU. The first pod's device
// never gets the UID of the second pod.
func TestRememberedPodKeepsItsUID(t *testing.T) {
	n := newOnNode(t)
	n.log("ml_a_" + uidA)
	other := holds("ml/other", gpu3)
	a := holds("ml/a", gpu0)
	w := newAged(t, podmapper.Options{LogFolder: n.logs, PodUID: true}, a, other)
	if got := w.attribute().UseOf(0).Owners[0].PodUID; got != uidA {
		t.Fatalf("UID before the restart = %q, want %q", got, uidA)
	}
	n.log("ml_a_" + uidB) // the second pod with that name
	for _, x := range w.restarts(5*time.Second, other).UseOf(0).Owners {
		if x.PodUID != uidA {
			t.Errorf("owner of GPU 0 = pod %s with UID %s, want the first pod with UID %s", x.Pod, x.PodUID, uidA)
		}
	}
}

// A monitor has admin access to a free GPU and to a pod's GPU. Until its claim is read, it owns neither.
func TestUnreadClaimIsNoOwner(t *testing.T) {
	w := newWorld(t, podmapper.Options{Device: claimed, Claimed: func(_, claim, _, _, _, _ string) podmapper.Claimed {
		return podmapper.Claimed{} // not read yet; the API server answers later
	}}, kubelet.Lists(
		claims("ml/a", "mine", "gpu-0"),
		kubelet.Pod("ml/monitor",
			kubelet.Claiming("c", "ml", "watch", "gpu.nvidia.com", "e2e-node", "gpu-0", ""),
			kubelet.Claiming("c", "ml", "watch", "gpu.nvidia.com", "e2e-node", "gpu-1", ""))))
	o := w.attribute()
	if use := o.UseOf(1); len(use.Owners) > 0 && !use.Incomplete {
		t.Errorf("owners of the free GPU = %+v, want none", use)
	}
	if use := o.UseOf(0); len(use.Owners) > 1 && !use.Incomplete {
		t.Errorf("owners of the pod's GPU = %+v, want only the pod", use)
	}
}

// The shares of a GPU that is shared by capacity are unknown until the claims are read.
func TestUnreadSharesAreUnknown(t *testing.T) {
	w := newWorld(t, podmapper.Options{Device: func(driver, pool, name string) (podmapper.ClaimDevice, bool) {
		d, ok := claimed(driver, pool, name)
		d.Capacity = map[string]float64{"memory": 80 << 30}
		return d, ok
	}}, kubelet.Lists(kubelet.Captures(t)["list-dra-consumable-share-id"].PodResources...))
	if use := w.attribute().UseOf(4); len(use.Owners) == 2 && use.Owners[0].Part == 0 && !use.Incomplete {
		t.Errorf("unknown shares = %+v, want them not divided into halves", use)
	}
}

// The mirror of a static pod is deleted and recreated by the kubelet. The pod keeps its UID, so its counters continue
// and its processes stay attributed.
func TestStaticPodWithoutMirror(t *testing.T) {
	const hash = "31d1f9b2c4aa4e0f8b3d7c6e5f4a3b2c"
	n, server := newOnNode(t), &api{}
	n.log("ml_s_" + hash)
	known := infos{"ml/s": {UID: uidA, Hash: hash, Created: n.at.Add(-time.Hour)}}
	server.set(known)
	opt := server.options()
	opt.LogFolder = n.logs
	w := newAged(t, opt, holds("ml/s", gpu4+"::0"), holds("ml/b", gpu4+"::1"))
	uid := func() string {
		for _, x := range w.attribute().UseOf(4).Owners {
			if x.Pod == "s" {
				return x.PodUID
			}
		}
		return "none"
	}
	want(t, "UID with its mirror", uid(), uidA)
	server.set(nil)
	want(t, "UID while there is no mirror", uid(), uidA)
}

// Dynamic MIG: pod a ends while the kubelet restarts. Then the claim of pod b creates an instance in the same place.
// The instance belongs only to b.
func TestPlaceBelongsToTheListedClaim(t *testing.T) {
	made := func(driver, pool, name string) (podmapper.ClaimDevice, bool) {
		d := podmapper.ClaimDevice{MIG: true, Profile: "1g.10gb", Parent: gpu3, Start: 4}
		return d, name == "gpu-3-mig-1g10gb-19-4"
	}
	at := func(w *aged, id uint32, uuid string) {
		devices, start := slices.Clone(node().Devices), uint32(4)
		devices[5].InstanceID, devices[5].Start, devices[5].MIGUUID = id, &start, uuid
		w.topology = gpu.NewTopology(devices)
	}
	claims := func(pod, claim string) *v1.PodResources { return claims(pod, claim, "gpu-3-mig-1g10gb-19-4") }
	w := newAged(t, podmapper.Options{Device: made}, claims("ml/a", "a-x7k"))
	at(w, 7, migA)
	want(t, "owners of a's instance", named(w.attribute(), 5), []string{"a"})
	at(w, 9, "MIG-b0000000-0000-5000-8000-000000000001")
	want(t, "owners of b's instance", named(w.restarts(5*time.Second, claims("ml/b", "b-p2q")), 5), []string{"b"})
}
