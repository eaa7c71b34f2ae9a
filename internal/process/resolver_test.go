package process_test

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/process"
)

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

// one returns the only UID, or "" if there is not exactly one.
func one(uids []string, err error) (string, error) {
	if len(uids) != 1 {
		return "", err
	}
	return uids[0], err
}

func TestResolver(t *testing.T) {
	p := newProc()
	r := process.NewResolver(p)
	want := func(pid uint32, uid string, reason string) {
		t.Helper()
		got, err := one(r.PodOf(pid))
		if got != uid || gpu.Reason(err) != reason {
			t.Errorf("PodOf(%d) = %q, %v; want %q, %q", pid, got, err, uid, reason)
		}
	}
	p.put(70, 500, "/kubepods/pod"+pod+"/"+id)
	p.put(71, 500, "/user.slice")
	want(70, pod, "")
	want(71, "", "")
	want(72, "", "") // no such process

	want(70, pod, "")
	if n := p.reads["70/cgroup"]; n != 1 {
		t.Errorf("cgroup of a process was read %d times, want once", n)
	}
	p.put(70, 900, "/kubepods/pod"+pod+"/"+id) // the ID was reused in the same pod
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
	const other = "ffffffff-5b1c-4c8e-9d0a-3c1f2ab45678"
	for name, tt := range map[string]struct {
		between func(*testing.T, *proc, *process.Resolver)
		reason  string
	}{
		"reused within an interval": {func(*testing.T, *proc, *process.Resolver) {}, "unavailable"},
		"reused after a read without the process": {func(t *testing.T, p *proc, r *process.Resolver) {
			delete(p.MapFS, "70/stat")
			if uid, err := one(r.PodOf(70)); uid != pod || err != nil {
				t.Errorf("last read: UID = %q, error %v; want %q", uid, err, pod)
			}
			time.Sleep(10 * time.Second)
		}, ""},
		"reused long after the last query": {func(*testing.T, *proc, *process.Resolver) { time.Sleep(time.Hour) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProc()
				r := process.NewResolver(p)
				p.put(70, 500, "/kubepods/pod"+pod+"/"+id)
				if uid, err := one(r.PodOf(70)); uid != pod || err != nil {
					t.Fatalf("first read: UID = %q, error %v; want %q", uid, err, pod)
				}
				time.Sleep(10 * time.Second)
				tt.between(t, p, r)
				p.put(70, 900, "/kubepods/pod"+other+"/"+id)
				for range 2 { // two GPUs
					if uid, err := r.PodOf(70); gpu.Reason(err) != tt.reason || tt.reason != "" && uid != nil {
						t.Errorf("read after the reuse: UID = %q, error %v; want reason %q", uid, err, tt.reason)
					}
				}
				time.Sleep(10 * time.Second)
				if uid, err := one(r.PodOf(70)); uid != other || err != nil {
					t.Errorf("next read: UID = %q, error %v; want %q", uid, err, other)
				}
			})
		})
	}
}

// A driver reports what a process did since the last read, and the process may have exited since. It keeps its pod for
// that read, on every GPU that it used.
func TestProcessThatEnded(t *testing.T) {
	const other = "ffffffff-5b1c-4c8e-9d0a-3c1f2ab45678"
	for name, end := range map[string]func(p *proc){
		"exited before the lookup": func(p *proc) { delete(p.MapFS, "70/stat"); delete(p.MapFS, "70/cgroup") },
		"exits during the lookup":  func(p *proc) { p.fail["70/stat"] = syscall.ESRCH },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProc()
				r := process.NewResolver(p)
				want := func(pid uint32, uid string) {
					t.Helper()
					if got, err := one(r.PodOf(pid)); got != uid || err != nil {
						t.Errorf("PodOf(%d) = %q, %v; want %q", pid, got, err, uid)
					}
				}
				p.put(70, 500, "/kubepods/pod"+pod+"/"+id)
				want(70, pod)
				end(p)
				time.Sleep(30 * time.Second)
				for range 8 { // eight GPUs
					want(70, pod)
				}
				time.Sleep(30 * time.Second)
				want(70, "")
				want(70, "")
				want(71, "") // never seen

				// If the ID is reused, it belongs to the new process from the next lookup on.
				clear(p.fail)
				p.put(70, 900, "/kubepods/pod"+other+"/"+id)
				want(70, other)
				end(p)
				want(70, other)
				clear(p.fail)
				time.Sleep(10 * time.Second)
				p.put(70, 950, "/user.slice")
				want(70, "")
			})
		})
	}
}

// A process that ends between the reads of its two files has no pod, even if a process of a pod had its ID before.
func TestProcessEndsDuringLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProc()
		r := process.NewResolver(p)
		p.put(70, 500, "/kubepods/pod"+pod+"/"+id)
		if uid, err := one(r.PodOf(70)); uid != pod || err != nil {
			t.Fatalf("first read: UID = %q, error %v; want %q", uid, err, pod)
		}
		time.Sleep(10 * time.Second)
		p.put(70, 900, "")
		delete(p.MapFS, "70/cgroup")
		if uids, err := r.PodOf(70); uids != nil || gpu.Reason(err) != "unavailable" {
			t.Errorf("ID reused: UIDs = %q, error %v; want unavailable", uids, err)
		}
		p.put(71, 900, "")
		delete(p.MapFS, "71/cgroup")
		if uids, err := r.PodOf(71); uids != nil || err != nil {
			t.Errorf("new ID: UIDs = %q, error %v; want none", uids, err)
		}
	})
}

// A process whose folder has the same inode is not read again. If the inode changes, it is.
func TestProcessIsReadOnce(t *testing.T) {
	const other = "ffffffff-5b1c-4c8e-9d0a-3c1f2ab45678"
	p := newProc()
	p.inodes = map[string]uint64{"70": 1}
	r := process.NewResolver(p)
	p.put(70, 500, "/kubepods/pod"+pod+"/"+id)
	for range 3 {
		if uid, err := one(r.PodOf(70)); uid != pod || err != nil {
			t.Errorf("PodOf(70) = %q, %v; want %q", uid, err, pod)
		}
	}
	if p.reads["70/stat"] != 1 || p.reads["70/cgroup"] != 1 {
		t.Errorf("reads = %v, want one of each file", p.reads)
	}
	p.inodes["70"] = 2 // the kernel created a new inode for the folder
	if uid, _ := one(r.PodOf(70)); uid != pod || p.reads["70/stat"] != 2 || p.reads["70/cgroup"] != 1 {
		t.Errorf("with a new inode: UID = %q, reads %v; want %q, two reads of stat and one of cgroup", uid, p.reads, pod)
	}
	p.inodes["70"] = 3
	p.put(70, 600, "/kubepods/pod"+other+"/"+id)
	if uid, _ := one(r.PodOf(70)); uid == pod {
		t.Errorf("ID of another process: UID = %q, want another one than before", uid)
	}
}

// In another PID namespace, every ID belongs to another process.
func TestOtherPIDNamespace(t *testing.T) {
	for name, stat := range map[string]string{
		"a process of the container": "2 (python3) S 1 1 1 0 -1 4194304 1 0 0 0 5 6 0 0 20 0 1 0 500 100 1 1",
		"a process named kthreadd":   "2 (kthreadd) S 0 0 0 0 -1 4194304 1 0 0 0 5 6 0 0 20 0 1 0 500 100 1 1",
		"an invalid file":            "2 kthreadd",
		"none":                       "",
	} {
		p := newProc()
		p.put(70, 500, "/kubepods/pod"+pod+"/"+id)
		if p.MapFS["2/stat"].Data = []byte(stat); stat == "" {
			delete(p.MapFS, "2/stat")
		}
		if uid, err := one(process.NewResolver(p).PodOf(70)); uid != "" || !errors.Is(err, gpu.ErrPIDNamespace) {
			t.Errorf("%s: UID = %q, error %v; want gpu.ErrPIDNamespace", name, uid, err)
		}
	}
}

func TestResolverIsBounded(t *testing.T) {
	p := newProc()
	r := process.NewResolver(p)
	p.put(5, 1, "/kubepods/pod"+pod)
	for pid := uint32(10); pid < 6000; pid++ {
		p.put(int(pid), 1, "/")
		if _, err := r.PodOf(pid); err != nil {
			t.Fatal(err)
		}
	}
	if uid, err := one(r.PodOf(5)); uid != pod || err != nil {
		t.Errorf("after about 6000 processes: UID = %q, error %v; want %q", uid, err, pod)
	}
	if n := process.Known(r); n > 4096 {
		t.Errorf("remembered processes = %d, want at most 4096", n)
	}
}

// A process that was not found for a long time does not determine the pod of a new process with its ID.
func TestCachedPodExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proc := fstest.MapFS{
			"2/stat":   {Data: []byte("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 77 0 0")},
			"7/stat":   {Data: []byte("7 (x) S 0 0 0 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 78 0 0")},
			"7/cgroup": {Data: []byte("0::/kubepods.slice/kubepods-poda3f5c1d2e4b6978899aabbccddeeff00.slice/cri-containerd-0.scope\n")},
		}
		r := process.NewResolver(proc)
		if uid, err := one(r.PodOf(7)); uid == "" || err != nil {
			t.Fatalf("first lookup: UID = %q, error %v; want a UID", uid, err)
		}
		delete(proc, "7/stat")
		delete(proc, "7/cgroup")
		time.Sleep(6 * time.Minute)
		if uid, err := one(r.CachedPodOf(7)); uid != "" || err != nil {
			t.Errorf("lookup after six minutes: UID = %q, error %v; want none", uid, err)
		}
	})
}
