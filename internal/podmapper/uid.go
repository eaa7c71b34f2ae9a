package podmapper

import (
	"encoding/json"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/process"
)

// The bounds of what is read of the node.
const (
	maxCheckpoint = 16 << 20 // bytes; 500 pods with a device each are 1 MiB
	maxLogFolders = 8192
)

// A podName names a pod.
type podName struct{ namespace, pod string }

// A nodeFiles knows the UIDs of pods from what the kubelet keeps on its node, for where the API
// server is not queried. A List of PodResources has none.
//
// The checkpoint of the kubelet's device manager has the UID of the pod that each device is
// allocated to (k8s.io/kubernetes, pkg/kubelet/cm/devicemanager/checkpoint). The folder of the
// pods' logs has a folder per pod, named NAMESPACE_NAME_UID (pkg/kubelet/kuberuntime,
// BuildPodLogsDirectory). Both have a static pod's UID as its control group does: the hash of its
// manifest. The zero value knows nothing.
type nodeFiles struct {
	checkpoint, logs string // paths; "" for one that is not looked at

	version fs.FileInfo // of the checkpoint that was read
	devices map[deviceName]string
	read    time.Time // when the folder of logs had read; its content is that of modified
	changed time.Time
	folders map[podName]string
}

// A deviceName names an allocation: a device of a resource in a container.
type deviceName struct{ container, resource, device string }

// refresh reads what has changed since the last call. What cannot be read is unknown: both are
// extras that a node may not give.
func (f *nodeFiles) refresh(now time.Time) {
	if f.checkpoint != "" {
		f.readCheckpoint()
	}
	if f.logs != "" {
		f.readLogs(now)
	}
}

// uid returns the UID of the pod of h, "" where it is not known.
func (f *nodeFiles) uid(h *Allocation) string {
	if uid := f.devices[deviceName{h.Container, h.Resource, h.Device}]; uid != "" && h.Claim == "" {
		return uid
	}
	return f.folders[podName{h.Namespace, h.Pod}]
}

func (f *nodeFiles) readCheckpoint() {
	info, err := os.Stat(f.checkpoint)
	if err != nil || !info.Mode().IsRegular() {
		f.version, f.devices = nil, nil
		return
	}
	if v := f.version; v != nil && v.Size() == info.Size() && v.ModTime().Equal(info.ModTime()) && os.SameFile(v, info) {
		return
	}
	f.version, f.devices = info, nil
	file, err := os.Open(f.checkpoint)
	if err != nil {
		return
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxCheckpoint+1))
	if err != nil || len(text) > maxCheckpoint {
		return
	}
	f.devices = parseCheckpoint(text)
}

// parseCheckpoint returns the UIDs of the pods that devices are allocated to. An allocation that
// two pods have in it names neither: one of them has ended, and the kubelet has not noticed.
func parseCheckpoint(text []byte) map[deviceName]string {
	var file struct {
		Data struct {
			PodDeviceEntries []struct {
				PodUID, ContainerName, ResourceName string
				DeviceIDs                           json.RawMessage // see checkpointIDs
			}
		}
	}
	if json.Unmarshal(text, &file) != nil {
		return nil
	}
	devices := map[deviceName]string{}
	for _, e := range file.Data.PodDeviceEntries {
		if !process.IsPodUID(e.PodUID) {
			continue
		}
		for _, id := range checkpointIDs(e.DeviceIDs) {
			key := deviceName{e.ContainerName, e.ResourceName, id}
			if other, twice := devices[key]; twice && other != e.PodUID {
				devices[key] = ""
				continue
			}
			devices[key] = e.PodUID
		}
	}
	return devices
}

// checkpointIDs returns the ids of an entry: lists by NUMA node, or one list before Kubernetes
// 1.20.
func checkpointIDs(text []byte) []string {
	nodes := map[string][]string{}
	if json.Unmarshal(text, &nodes) == nil {
		return slices.Concat(slices.Collect(maps.Values(nodes))...)
	}
	var list []string
	if json.Unmarshal(text, &list) != nil {
		return nil
	}
	return list
}

// settledFolder is how old the time of a folder must be, to say that its content is that of the
// time: the kernel's clock is coarse.
const settledFolder = 2 * time.Second

func (f *nodeFiles) readLogs(now time.Time) {
	info, err := os.Stat(f.logs)
	if err != nil {
		f.folders, f.changed = nil, time.Time{}
		return
	}
	if info.ModTime().Equal(f.changed) && f.read.Sub(f.changed) > settledFolder {
		return
	}
	f.folders, f.changed, f.read = nil, info.ModTime(), now
	dir, err := os.Open(f.logs)
	if err != nil {
		return
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxLogFolders)
	if err != nil {
		return // also io.EOF, of an empty one
	}
	f.folders = podsOfFolders(names, func(name string) time.Time {
		info, err := os.Stat(filepath.Join(f.logs, name))
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	})
}

// podsOfFolders returns the UIDs in the names of pods' folders. Of two of one pod the newer one
// counts: the other is that of an earlier pod of the name. Two of one age say nothing.
func podsOfFolders(names []string, modified func(name string) time.Time) map[podName]string {
	type folder struct{ name, uid string }
	all := map[podName]folder{}
	for _, name := range names {
		parts := strings.Split(name, "_")
		if len(parts) != 3 || !process.IsPodUID(parts[2]) {
			continue
		}
		key, next := podName{parts[0], parts[1]}, folder{name, parts[2]}
		before, twice := all[key]
		if !twice {
			all[key] = next
			continue
		}
		switch a, b := modified(before.name), modified(name); {
		case b.After(a):
			all[key] = next
		case b.Equal(a):
			all[key] = folder{name: name}
		}
	}
	uids := make(map[podName]string, len(all))
	for key, f := range all {
		uids[key] = f.uid
	}
	return uids
}
