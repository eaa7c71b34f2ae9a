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
	uid     string // "" where it is not clear
	changed time.Time
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
	f.folders = map[podName]logFolder{}
	for _, name := range names {
		f.add(name)
	}
}

// add adds a folder. Of two folders of one pod the newer one counts: the other is an earlier pod's.
// Two of one age name no pod.
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
