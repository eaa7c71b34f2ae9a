package podmapper

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/attribution"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/deviceid"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/process"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

const (
	// DefaultPodLabels is the default maximum number of labels taken from a pod. Mimir rejects a series
	// with more than 30 labels: see docs/attribution.md.
	DefaultPodLabels = 16
	// maxLabelValue is the maximum length of a label's value in bytes. Kubernetes allows 63.
	maxLabelValue = 128
	// maxLogFolders is the maximum number of log folders that are read.
	maxLogFolders = 8192
)

// podName identifies a pod.
type podName struct{ Namespace, Pod string }

// PodInfo is the part of a pod in the API server that the Mapper uses.
type PodInfo struct {
	UID      string
	Hash     string // the UID of a static pod on the node; "" for other pods
	Labels   map[string]string
	Finished bool // the pod succeeded or failed, so it uses nothing any more
	Created  time.Time
	// Allocated is HAMi's annotation with the devices of the pod's containers. If it is set, Containers has the names
	// of the containers in the pod's order.
	Containers []string
	Allocated  string
}

// has reports whether the node may know the pod by this UID.
func (p *PodInfo) has(uid string) bool { return uid != "" && (uid == p.UID || uid == p.Hash) }

// isStale reports whether the API server has stopped answering.
func (m *Mapper) isStale() bool { return !m.since.IsZero() }

// pod returns the API server's information about a pod. After it has deleted the pod, the last information is used
// while the kubelet lists the pod and its log folder confirms the UID: the mirror of a static pod can be deleted.
func (m *Mapper) pod(key podName) (PodInfo, bool) {
	info, ok := m.opt.Pod(key.Namespace, key.Pod)
	if !ok {
		info = m.podInfo[key]
		ok = info.has(m.logs.folders[key].uid)
	}
	if ok && m.isAnother(key, &info) {
		return PodInfo{}, false
	}
	return info, ok
}

// isAnother reports whether the API server's information is about an earlier pod of the same name. It may be if the API
// server has stopped answering, and since then a newer log folder appeared or the pod left the list and returned.
func (m *Mapper) isAnother(key podName, info *PodInfo) bool {
	f := m.logs.folders[key]
	if f.uid != "" && !info.has(f.uid) && (m.isStale() || f.changed.After(info.Created)) {
		return true
	}
	return m.isStale() && m.left[key].After(m.since)
}

// noteLeft records which pods are no longer listed, or lost a plugin device. A pod that is replaced between two lists
// usually gets other devices.
func (m *Mapper) noteLeft(allocations []Allocation, now time.Time) {
	if len(m.left) > maxUnlisted {
		clear(m.left)
	}
	pods := make(map[podName]bool, len(allocations))
	for i := range allocations {
		pods[allocations[i].podName] = true
	}
	for _, alloc := range m.inputs.allocations {
		_, held := slices.BinarySearchFunc(allocations, alloc, Allocation.compare)
		if key := alloc.podName; !pods[key] || !held && alloc.Claim == "" {
			m.left[key] = now
		}
	}
}

// uidsOf returns the UIDs, from the log folders, of pods about which the API server has no information. An unlisted pod
// keeps its UID, because the newest folder of its name may belong to a later pod.
func (m *Mapper) uidsOf(allocations []Allocation) map[podName]string {
	uids := map[podName]string{}
	for i := range allocations {
		key := allocations[i].podName
		uid := m.logs.folders[key].uid
		if m.memory.seen[allocations[i]].Before(m.memory.at) {
			uid = m.inputs.uids[key]
		}
		if _, ok := m.pod(key); !ok && uid != "" {
			uids[key] = uid
		}
	}
	return uids
}

// knownPods returns what the API server reports about the pods of the allocations, or reported before they were
// deleted.
func (m *Mapper) knownPods(allocations []Allocation) map[podName]PodInfo {
	pods := map[podName]PodInfo{}
	for i := range allocations {
		key := allocations[i].podName
		if info, ok := m.pod(key); ok {
			pods[key] = info
		} else if _, other := m.opt.Pod(key.Namespace, key.Pod); !other && m.podInfo[key].UID != "" {
			pods[key] = m.podInfo[key]
		}
	}
	return pods
}

// podLabels returns the labels of a pod that become series labels, in the order of their keys, with valid Prometheus
// names. If two keys map to the same name, the first is used. The exporter's own label names are never used. It adds
// the dropped labels to lost, by reason.
func (m *Mapper) podLabels(pod map[string]string, lost map[string]int) (out []gpu.Label) {
	if !m.opt.PodLabels {
		return nil
	}
	taken := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(pod)) {
		matches := func(r *regexp.Regexp) bool { return r.MatchString(key) }
		if pod[key] == "" || len(m.opt.LabelsAllowed) > 0 && !slices.ContainsFunc(m.opt.LabelsAllowed, matches) {
			continue
		}
		name := text.LabelName(key)
		switch {
		case taken[name] || catalog.IsOwnLabel(name):
			lost[droppedCollision]++
		case len(pod[key]) > maxLabelValue:
			lost[droppedLength]++
		case len(out) == m.opt.MaxPodLabels:
			lost[droppedBudget]++
		default:
			taken[name] = true
			out = append(out, gpu.Label{Name: name, Value: pod[key]})
		}
	}
	return out
}

// logFolder is the folder of a pod's logs.
type logFolder struct {
	uid     string // "" if ambiguous
	changed time.Time
}

// logFolders finds the UIDs of pods in the pods' log folder. It has a folder per pod, named NAMESPACE_NAME_UID
// (pkg/kubelet/kuberuntime, BuildPodLogsDirectory). For a static pod the UID is the hash of its manifest, as in its
// cgroup. The zero value finds nothing.
type logFolders struct {
	path string // "" disables it

	read, changed time.Time // when path was read, and its modification time then
	folders       map[podName]logFolder
}

// refresh reads the folder if it has changed since the last call. If it cannot be read, all UIDs are unknown: not every
// node has it. If a pod has two folders, the newer one counts, because the other belongs to an earlier pod. If both
// have the same age, the UID is unknown.
func (f *logFolders) refresh(now time.Time) {
	info, err := os.Stat(f.path)
	if err == nil && info.ModTime().Equal(f.changed) && f.read.Sub(f.changed) > attribution.TimestampSlack {
		return
	}
	*f = logFolders{path: f.path}
	if err != nil {
		return
	}
	f.changed, f.read = info.ModTime(), now
	dir, err := os.Open(f.path)
	if err != nil {
		return
	}
	defer dir.Close()
	f.folders = map[podName]logFolder{}
	names, _ := dir.Readdirnames(maxLogFolders) // no names if there is an error
	for _, name := range names {
		parts := strings.Split(name, "_")
		if len(parts) != 3 || !process.IsPodUID(parts[2]) {
			continue
		}
		next := logFolder{uid: parts[2]}
		if info, err := os.Stat(filepath.Join(f.path, name)); err == nil {
			next.changed = info.ModTime()
		}
		key := podName{parts[0], parts[1]}
		before, twice := f.folders[key]
		if twice && next.changed.Equal(before.changed) {
			next.uid = ""
		}
		if !twice || !next.changed.Before(before.changed) {
			f.folders[key] = next
		}
	}
}

// HAMi's scheduler chooses the GPU of a container and records it in an annotation of the pod. The kubelet chooses any
// id of HAMi's plugin, GPU-<uuid>-<n>, which may name another GPU. The annotation is therefore the only source of a
// HAMi pod's devices (Project-HAMi/HAMi, docs/develop/protocol.md).

// allocated replaces the devices that the kubelet lists for HAMi's plugin by those that the annotations name. They
// become replicas, because HAMi shares GPUs. Without an annotation an allocation is unchanged and matches nothing.
func (m *Mapper) allocated(allocations []Allocation) []Allocation {
	if !slices.ContainsFunc(allocations, func(alloc Allocation) bool { return alloc.hami != "" }) {
		return allocations
	}
	out, next := slices.Clone(allocations), map[[3]string]int{}
	for i := range out {
		alloc := &out[i]
		if alloc.hami == "" {
			continue
		}
		info, _ := m.pod(alloc.podName)
		devices := hamiDevices(info.Allocated, info.Containers, alloc.Container)
		container := [3]string{alloc.Namespace, alloc.Pod, alloc.Container}
		if n := next[container]; n < len(devices) {
			alloc.Device, alloc.hami = devices[n]+"::"+alloc.hami, ""
			alloc.ID = deviceid.Parse(alloc.Device)
		}
		next[container]++
	}
	return out
}

// hamiReplica returns the replica number n of an id of HAMi's plugin, or "" for other ids.
func hamiReplica(id string) string {
	const prefix, whole = len("GPU-"), len("GPU-00000000-0000-0000-0000-000000000000")
	if len(id) <= whole || id[whole] != '-' || !strings.EqualFold(id[:prefix], "GPU-") ||
		!text.IsUUID(id[prefix:whole]) || !deviceid.IsNumber(id[whole+1:]) {
		return ""
	}
	return id[whole+1:]
}

// hamiDevices returns the UUIDs of the GPUs that an annotation assigns to a container. The annotation has
// "UUID,TYPE,MEMORY,CORES:" per device and ";" after each container, in the order of the pod's containers. It returns
// nil if the container's devices are not clear.
func hamiDevices(annotation string, containers []string, name string) (devices []string) {
	parts := strings.Split(strings.TrimSuffix(annotation, ";"), ";")
	at := slices.Index(containers, name)
	if len(parts) != len(containers) || at < 0 {
		return nil
	}
	for device := range strings.SplitSeq(parts[at], ":") {
		uuid, rest, _ := strings.Cut(device, ",")
		if strings.HasPrefix(rest, "NVIDIA") && deviceid.Parse(uuid).Form == deviceid.FormGPU {
			devices = append(devices, uuid)
		}
	}
	return devices
}
