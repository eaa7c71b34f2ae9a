package podmapper

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/process"
)

// maxLogFolders bounds the names that are read.
const maxLogFolders = 8192

// A podName names a pod.
type podName struct{ namespace, pod string }

// A logFolder is the folder of a pod's logs.
type logFolder struct {
	name, uid string
	changed   time.Time
}

// logFolders has the UIDs of pods from the folder of the pods' logs, which has a folder per pod,
// named NAMESPACE_NAME_UID (pkg/kubelet/kuberuntime, BuildPodLogsDirectory). A static pod has the
// hash of its manifest there, as its control group has. The zero value knows nothing.
type logFolders struct {
	path string // "" for none

	read, changed time.Time // when path was read, and when it had changed
	folders       map[podName]logFolder
}

// mtimeSlack is how much older than the reading the time of a folder must be: the kernel's clock is
// coarse, so that two changes can have one time.
const mtimeSlack = 2 * time.Second

// refresh reads the folder if it has changed since the last call. Content that cannot be read is
// unknown: not every node shows it.
func (f *logFolders) refresh(now time.Time) {
	info, err := os.Stat(f.path)
	if err != nil {
		f.folders, f.changed = nil, time.Time{}
		return
	}
	if info.ModTime().Equal(f.changed) && f.read.Sub(f.changed) > mtimeSlack {
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
		return // also io.EOF, of an empty one
	}
	f.folders = foldersByPod(names, func(name string) time.Time {
		info, err := os.Stat(filepath.Join(f.path, name))
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	})
}

// foldersByPod returns the folder of each pod. Of two folders of one pod the newer one counts: the
// other is an earlier pod's. Two of one age name no pod.
func foldersByPod(names []string, changed func(name string) time.Time) map[podName]logFolder {
	all := map[podName]logFolder{}
	for _, name := range names {
		parts := strings.Split(name, "_")
		if len(parts) != 3 || !process.IsPodUID(parts[2]) {
			continue
		}
		key := podName{parts[0], parts[1]}
		next, before := logFolder{name, parts[2], changed(name)}, all[key]
		switch {
		case before.name == "" || next.changed.After(before.changed):
			all[key] = next
		case next.changed.Equal(before.changed):
			before.uid = ""
			all[key] = before
		}
	}
	return all
}
