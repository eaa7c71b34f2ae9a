package podmapper

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/attribution"
	"github.com/gpu-telemetry/dcgm-exporter/internal/process"
)

// maxLogFolders is the maximum number of log folders that are read.
const maxLogFolders = 8192

// podName identifies a pod.
type podName struct{ namespace, pod string }

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
// node has it.
func (f *logFolders) refresh(now time.Time) {
	info, err := os.Stat(f.path)
	if err != nil {
		f.folders, f.changed = nil, time.Time{}
		return
	}
	if info.ModTime().Equal(f.changed) && f.read.Sub(f.changed) > attribution.TimestampSlack {
		return
	}
	f.folders, f.changed, f.read = nil, info.ModTime(), now
	dir, err := os.Open(f.path)
	if err != nil {
		return
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxLogFolders)
	if err != nil {
		return // io.EOF if the folder is empty
	}
	f.folders = map[podName]logFolder{}
	for _, name := range names {
		f.add(name)
	}
}

// add adds a folder. If a pod has two folders, the newer one counts, because the other belongs to an earlier pod. If
// both have the same age, the UID is unknown.
func (f *logFolders) add(name string) {
	parts := strings.Split(name, "_")
	if len(parts) != 3 || !process.IsPodUID(parts[2]) {
		return
	}
	next := logFolder{uid: parts[2]}
	if info, err := os.Stat(filepath.Join(f.path, name)); err == nil {
		next.changed = info.ModTime()
	}
	key := podName{parts[0], parts[1]}
	switch before, twice := f.folders[key]; {
	case twice && next.changed.Equal(before.changed):
		f.folders[key] = logFolder{changed: before.changed}
	case !twice || next.changed.After(before.changed):
		f.folders[key] = next
	}
}
