package process_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/process"
)

const (
	pod    = "0f3ad0e4-5b1c-4c8e-9d0a-3c1f2ab45678"
	static = "31d1f9b2c4aa4e0f8b3d7c6e5f4a3b2c"
)

var (
	id   = strings.Repeat("0123456789abcdef", 4)
	node = strings.Repeat("fedcba9876543210", 4)
)

// testdata/cgroups.txt has the name, text and pods of cgroup files.
func TestPods(t *testing.T) {
	file, err := os.ReadFile("testdata/cgroups.txt")
	if err != nil {
		t.Fatal(err)
	}
	for test := range strings.SplitSeq(strings.TrimSpace(string(file)), "\n\n") {
		name, rest, _ := strings.Cut(test, "\n")
		text, want, ok := strings.Cut(rest, "pods:")
		if got := strings.Join(process.Pods(text), " "); !ok || got != strings.TrimSpace(want) {
			t.Errorf("%s: UIDs = %q, want %q", name, got, want)
		}
	}
}

// A UID with any digit or dash changed is invalid.
func TestIsPodUID(t *testing.T) {
	for _, uid := range []string{pod, static} {
		if !process.IsPodUID(uid) || process.IsPodUID(uid+"0") || process.IsPodUID(uid[1:]) {
			t.Errorf("IsPodUID: want true for %s, and false if it is one character longer or shorter", uid)
		}
		for i := range uid {
			for _, other := range []string{"g", "A", "-", "0"} {
				changed := uid[:i] + other + uid[i+1:]
				if is := process.IsPodUID(changed); is != (other == uid[i:i+1] || other == "0" && uid[i] != '-') {
					t.Errorf("IsPodUID(%s) = %t, want %t", changed, is, !is)
				}
			}
		}
	}
}

// shape returns a pod's container cgroup by driver and runtime. The bits of choice nest it in another container and add
// other lines.
func shape(choice uint8, pod, id string) string {
	under := strings.ReplaceAll(pod, "-", "_")
	path := [...]string{
		"/kubepods/burstable/pod" + pod + "/" + id,
		"/kubepods.slice/kubepods-pod" + under + ".slice/cri-containerd-" + id + ".scope",
		"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + under + ".slice/crio-" + id + ".scope/x",
		"/system.slice/containerd.service/kubepods-burstable-pod" + under + ".slice:cri-containerd:" + id,
	}[choice%4]
	if choice&4 != 0 {
		path = "/docker/" + node + "/kubelet" + path
	}
	if choice&8 != 0 {
		return "3:cpu:/\n2:memory:" + path + "\n1:name=systemd:" + path + "\n0::/"
	}
	return "0::" + path
}

// Each UID found in any text is part of the text, and valid. A pod written in any shape is found, whatever surrounds
// it.
func FuzzPods(f *testing.F) {
	f.Add("0::/user.slice", uint64(1), uint64(2), uint8(0))
	f.Add("0::/kubepods/pod"+pod+"/"+id, uint64(3), uint64(4), uint8(13))
	f.Fuzz(func(t *testing.T, text string, a, b uint64, choice uint8) {
		for _, uid := range process.Pods(text) {
			if !strings.Contains(strings.ReplaceAll(text, "_", "-"), "pod"+uid) || len(uid) != 32 && len(uid) != 36 {
				t.Errorf("Pods(%q) returned %q, want a UID of the text", text, uid)
			}
		}
		uid := fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", uint32(a), uint16(a>>32), uint16(a>>48), uint16(b), b>>16)
		cid := fmt.Sprintf("%032x%032x", a, b)
		if got := process.Pods(shape(choice, uid, cid)); len(got) != 1 || got[0] != uid {
			t.Errorf("Pods(%q) = %q, want only %q", shape(choice, uid, cid), got, uid)
		}
	})
}

const kthreadd = "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 2 0 0 20 0 1 0 30 0 0 18446744073709551615 0"

// proc is a fake /proc that counts reads and can fail.
type proc struct {
	fstest.MapFS
	reads  map[string]int
	fail   map[string]error
	inodes map[string]uint64 // inodes of folders, if set
}

// folder is a process folder with an inode number.
type folder struct {
	fs.FileInfo
	inode uint64
}

func (f folder) Sys() any { return &syscall.Stat_t{Ino: f.inode} }

func (p *proc) Stat(name string) (fs.FileInfo, error) {
	info, err := p.MapFS.Stat(name)
	if inode := p.inodes[name]; err == nil && inode != 0 {
		return folder{info, inode}, nil
	}
	return info, err
}

func newProc() *proc {
	return &proc{
		MapFS: fstest.MapFS{"2/stat": {Data: []byte(kthreadd)}},
		reads: map[string]int{}, fail: map[string]error{},
	}
}

func (p *proc) Open(name string) (fs.File, error) {
	p.reads[name]++
	if err := p.fail[name]; err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return p.MapFS.Open(name)
}

func (p *proc) ReadFile(name string) ([]byte, error) {
	f, err := p.Open(name)
	if err != nil {
		return nil, err
	}
	f.Close()
	return p.MapFS[name].Data, nil
}

// put creates a process whose name contains text that looks like further fields.
func (p *proc) put(pid, start int, group string) {
	p.MapFS[fmt.Sprint(pid, "/stat")] = &fstest.MapFile{Data: fmt.Appendf(nil,
		"%d (a) R 9 (9) S 1 1 1 0 -1 4194304 1 0 0 0 5 6 0 0 20 0 1 0 %d 100 1 1", pid, start)}
	p.MapFS[fmt.Sprint(pid, "/cgroup")] = &fstest.MapFile{Data: []byte("0::" + group)}
}

// other is the UID of another pod.
const other = "ffffffff-5b1c-4c8e-9d0a-3c1f2ab45678"

// in returns a cgroup of a pod.
func in(pod string) string { return "/kubepods/pod" + pod + "/" + id }

// A check checks the pod of a process, "" for none, and the reason of the error.
type check func(pid uint32, uid, reason string)

func lookup(t *testing.T, find func(uint32) ([]string, error)) check {
	return func(pid uint32, uid, reason string) {
		t.Helper()
		uids, err := find(pid)
		if got := strings.Join(uids, " "); got != uid || gpu.Reason(err) != reason {
			t.Errorf("pods of process %d = %q, %v; want %q, %q", pid, got, err, uid, reason)
		}
	}
}

func TestResolver(t *testing.T) {
	p := newProc()
	want := lookup(t, process.NewResolver(p).PodOf)
	p.put(70, 500, in(pod))
	p.put(71, 500, "/user.slice")
	want(70, pod, "")
	want(71, "", "")
	want(72, "", "") // no such process

	want(70, pod, "")
	if n := p.reads["70/cgroup"]; n != 1 {
		t.Errorf("cgroup of a process was read %d times, want once", n)
	}
	p.put(70, 900, in(pod)) // the ID was reused in the same pod
	want(70, pod, "")

	p.fail["70/stat"] = fs.ErrPermission
	want(70, "", "permission")
	p.fail["70/stat"] = errors.New("input/output error")
	want(70, "", "unavailable")
	delete(p.fail, "70/stat")
	want(70, pod, "")
}

// If a process ID is reused in another pod within an interval, it belongs to neither pod in that read, on any GPU,
// because the driver adds up the use of both processes.
func TestReusedProcessID(t *testing.T) {
	for name, tt := range map[string]struct {
		between     func(p *proc, want check)
		uid, reason string // in the read after the reuse
	}{
		"reused within an interval": {func(*proc, check) {}, "", "unavailable"},
		"reused after a read without the process": {func(p *proc, want check) {
			delete(p.MapFS, "70/stat")
			want(70, pod, "") // its last read
			time.Sleep(10 * time.Second)
		}, other, ""},
		"reused long after the last query": {func(*proc, check) { time.Sleep(time.Hour) }, other, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProc()
				want := lookup(t, process.NewResolver(p).PodOf)
				p.put(70, 500, in(pod))
				want(70, pod, "")
				time.Sleep(10 * time.Second)
				tt.between(p, want)
				p.put(70, 900, in(other))
				want(70, tt.uid, tt.reason)
				want(70, tt.uid, tt.reason) // on another GPU
				time.Sleep(10 * time.Second)
				want(70, other, "")
			})
		})
	}
}

// A driver reports what a process did since the last read, and the process may have exited since. It keeps its pod for
// that read, on every GPU that it used.
func TestProcessThatEnded(t *testing.T) {
	for name, end := range map[string]func(p *proc){
		"exited before the lookup": func(p *proc) { delete(p.MapFS, "70/stat"); delete(p.MapFS, "70/cgroup") },
		"exits during the lookup":  func(p *proc) { p.fail["70/stat"] = syscall.ESRCH },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProc()
				want := lookup(t, process.NewResolver(p).PodOf)
				p.put(70, 500, in(pod))
				want(70, pod, "")
				end(p)
				time.Sleep(30 * time.Second)
				for range 8 { // eight GPUs
					want(70, pod, "")
				}
				time.Sleep(30 * time.Second)
				want(70, "", "")
				want(70, "", "")
				want(71, "", "") // never seen

				// If the ID is reused, it belongs to the new process from the next lookup on.
				clear(p.fail)
				p.put(70, 900, in(other))
				want(70, other, "")
				end(p)
				want(70, other, "")
				clear(p.fail)
				time.Sleep(10 * time.Second)
				p.put(70, 950, "/user.slice")
				want(70, "", "")
			})
		})
	}
}

// A process that ends between the reads of its two files has no pod, even if a process of a pod had its ID before.
func TestProcessEndsDuringLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProc()
		want := lookup(t, process.NewResolver(p).PodOf)
		p.put(70, 500, in(pod))
		want(70, pod, "")
		time.Sleep(10 * time.Second)
		p.put(70, 900, "")
		delete(p.MapFS, "70/cgroup")
		want(70, "", "unavailable") // the ID was reused
		p.put(71, 900, "")
		delete(p.MapFS, "71/cgroup")
		want(71, "", "")
	})
}

// A process whose folder has the same inode is not read again. If the inode changes, it is.
func TestProcessIsReadOnce(t *testing.T) {
	p := newProc()
	p.inodes = map[string]uint64{"70": 1}
	want := lookup(t, process.NewResolver(p).PodOf)
	p.put(70, 500, in(pod))
	for range 3 {
		want(70, pod, "")
	}
	if p.reads["70/stat"] != 1 || p.reads["70/cgroup"] != 1 {
		t.Errorf("reads = %v, want one of each file", p.reads)
	}
	p.inodes["70"] = 2 // the kernel created a new inode for the folder
	want(70, pod, "")
	if p.reads["70/stat"] != 2 || p.reads["70/cgroup"] != 1 {
		t.Errorf("reads with a new inode = %v, want two of stat and one of cgroup", p.reads)
	}
	p.inodes["70"] = 3
	p.put(70, 600, in(other))
	want(70, "", "unavailable") // the ID belongs to another process
}

// Every ID belongs to another process in another PID namespace.
func TestOtherPIDNamespace(t *testing.T) {
	for name, stat := range map[string]string{
		"a process of the container": "2 (python3) S 1 1 1 0 -1 4194304 1 0 0 0 5 6 0 0 20 0 1 0 500 100 1 1",
		"a process named kthreadd":   "2 (kthreadd) S 0 0 0 0 -1 4194304 1 0 0 0 5 6 0 0 20 0 1 0 500 100 1 1",
		"an invalid file":            "2 kthreadd",
		"none":                       "",
	} {
		p := newProc()
		p.put(70, 500, in(pod))
		if p.MapFS["2/stat"].Data = []byte(stat); stat == "" {
			delete(p.MapFS, "2/stat")
		}
		if uids, err := process.NewResolver(p).PodOf(70); uids != nil || !errors.Is(err, gpu.ErrPIDNamespace) {
			t.Errorf("%s: UIDs = %q, error %v; want gpu.ErrPIDNamespace", name, uids, err)
		}
	}
}

func TestResolverIsBounded(t *testing.T) {
	p := newProc()
	r := process.NewResolver(p)
	want := lookup(t, r.PodOf)
	p.put(5, 1, in(pod))
	for pid := uint32(10); pid < 6000; pid++ {
		p.put(int(pid), 1, "/")
		want(pid, "", "")
	}
	want(5, pod, "")
	if n := process.Known(r); n > 4096 {
		t.Errorf("remembered processes = %d, want at most 4096", n)
	}
}

// A process that was not found for a long time does not determine the pod of a new process with its ID.
func TestCachedPodExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProc()
		r := process.NewResolver(p)
		want, cached := lookup(t, r.PodOf), lookup(t, r.CachedPodOf)
		p.put(7, 78, in(pod))
		want(7, pod, "")
		delete(p.MapFS, "7/stat")
		delete(p.MapFS, "7/cgroup")
		cached(7, pod, "")
		time.Sleep(6 * time.Minute)
		cached(7, "", "")
	})
}
