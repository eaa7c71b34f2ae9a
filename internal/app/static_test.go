package app

import (
	"log/slog"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
	"github.com/gpu-telemetry/dcgm-exporter/internal/process"
)

// An XID may end its process before the kernel log is read. Then the pod is the one that earlier reads found, with
// the API server's UID. Later reads keep finding it.
func TestPodOfProcessEndedByXID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hash = "a3f5c1d2e4b6978899aabbccddeeff00"
		stat := func(name, flags string) *fstest.MapFile {
			const more = " 0 0 0 0 0 0 0 0 20 0 1 0 77 0 0"
			return &fstest.MapFile{Data: []byte("1 (" + name + ") S 0 0 0 0 -1 " + flags + more)}
		}
		proc := fstest.MapFS{
			"2/stat": stat("kthreadd", "2129984"), "4711/stat": stat("python3", "4194304"),
			"4711/cgroup": {Data: []byte("0::/kubepods.slice/kubepods-pod" + hash + ".slice/cri-containerd-0.scope\n")},
		}
		s := newSources(time.Now(), prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		s.pods = process.NewResolver(proc)
		s.kubernetes.uidOf = func(uid string) string { return map[string]string{hash: "mirror"}[uid] }
		log := s.kernelLogOptions("/dev/kmsg")
		if uid, err := one(s.pods.PodOf(4711)); uid != hash || err != nil {
			t.Fatalf("pod UID for a Read = %q, error = %v; want %q and no error", uid, err, hash)
		}
		delete(proc, "4711/stat")
		delete(proc, "4711/cgroup")
		time.Sleep(10 * time.Second)
		if uid, err := one(log.PodOf(4711)); uid != "mirror" || err != nil {
			t.Errorf("pod UID for the kernel log = %q, error = %v; want mirror and no error", uid, err)
		}
		time.Sleep(20 * time.Second)
		if uid, err := one(s.pods.PodOf(4711)); uid != hash || err != nil {
			t.Errorf("pod UID for the last Read = %q, error = %v; want %q and no error", uid, err, hash)
		}
		time.Sleep(time.Second)
		if uid, err := one(log.PodOf(4711)); uid != "" || err != nil {
			t.Errorf("pod UID for the kernel log after the last Read = %q, error = %v; want neither", uid, err)
		}
	})
}

// one returns the only UID, or "" if there is not exactly one.
func one(uids []string, err error) (string, error) {
	if len(uids) != 1 {
		return "", err
	}
	return uids[0], err
}

// With Kubernetes enabled, the reads of a source recognize static pods too.
func TestSourceRecognizesStaticPods(t *testing.T) {
	s := newSources(time.Now(), prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	const cgroup = "0::/kubepods.slice/kubepods-poda3f5c1d2e4b6978899aabbccddeeff00.slice/cri-containerd-0.scope\n"
	s.pods = process.NewResolver(fstest.MapFS{
		"2/stat":   {Data: []byte("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 77 0 0")},
		"7/stat":   {Data: []byte("7 (x) S 0 0 0 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 78 0 0")},
		"7/cgroup": {Data: []byte(cgroup)},
	})
	s.kubernetes.mapper = podmapper.New(podmapper.Options{})
	s.kubernetes.uidOf = func(uid string) string { return "mirror of " + uid }
	cfg := &config.Config{Source: config.Source{Kind: config.SourceNVML}, Kubernetes: config.Kubernetes{Enabled: true}}
	chosen, err := s.backend(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	if uid, err := one(chosen.PodOf(7)); uid != "mirror of a3f5c1d2e4b6978899aabbccddeeff00" || err != nil {
		t.Errorf("pod UID = %q, error = %v; want that of the mirror pod and no error", uid, err)
	}
}
