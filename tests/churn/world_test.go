package churn

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
)

// A pod is one life of a name: a StatefulSet's pod comes again as another one.
type pod struct {
	name, uid      string
	row            int
	device         string
	created, ended time.Time // ended is zero while it lives
	processes      []*process
	work           map[int]float64 // row → seconds of work since the latest read
}

// A process works for its pod, or for the host where that is nil.
type process struct {
	pid   uint32
	pod   *pod
	row   int
	duty  float64
	read  bool // it was there at a read
	again bool // its id was another's
	start int
}

// A world is a node on which pods come and go, by a seed. The truth is here; the kubelet, the API
// server, the folder of logs and /proc show what they show.
type world struct {
	t   *testing.T
	rng *rand.Rand

	mu        sync.Mutex
	interval  time.Duration
	pods      []*pod // every one that ever was
	processes []*process
	freed     []uint32   // ids of processes that a read has seen
	unseen    [rows]bool // since the latest read a process ended that had such an id and that none saw
	count     int
	quiet     bool
	changed   time.Time // when anything last happened

	// Since the latest read, and the counters of energy in joules.
	work   [rows]map[uint32]float64
	energy [rows]float64

	// The kubelet.
	socket   string
	boot     time.Time // when it started
	down     time.Time // until when there is none
	server   *grpc.Server
	listener *bufconn.Listener
	v1.UnimplementedPodResourcesListerServer

	// The API server's view, which does not change while it is silent, and is known to be stale after
	// a while.
	view     map[string]podmapper.PodInfo
	revision uint64
	silent   time.Time // since when; zero while it answers
	logs     string    // the folder of logs; "" for none
}

const (
	rows = 4
	// detection is how long client-go takes to notice that a watch is dead.
	detection = 45 * time.Second
	filling   = 3 * time.Second // of a kubelet that has started
)

func uuid(row int) string { return fmt.Sprintf("GPU-%08d-0000-4000-8000-000000000000", row) }

func topology() *gpu.Topology {
	var list []gpu.Device
	for i := range uint32(rows) {
		list = append(list, gpu.Device{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: i}, GPU: i, NVMLIndex: i, Minor: i, UUID: uuid(int(i))})
	}
	return gpu.NewTopology(list)
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), view: map[string]podmapper.PodInfo{}, revision: 1,
		interval: []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, time.Minute}[seed%4], socket: filepath.Join(t.TempDir(), "kubelet.sock"),
	}
	if seed%3 == 0 {
		w.logs = t.TempDir()
		w.touch(w.logs)
	}
	for row := range w.work {
		w.work[row] = map[uint32]float64{}
	}
	if err := os.WriteFile(w.socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.listen(time.Now().Add(-time.Hour))
	for range 5 {
		w.begin()
	}
	w.host()
	return w
}

func (w *world) touch(path string) {
	if err := os.Chtimes(path, time.Now(), time.Now()); err != nil {
		w.t.Error(err)
	}
}

// A place is what a pod can have.
type place struct {
	row int
	id  string // of the plugin's device; blanks for a part of the claim that pods share
}

// places are a whole GPU, one of four replicas and one of two, and one of a claim of three pods.
func places() (all []place) {
	for row, n := range []int{1, 4, 2} {
		for i := range n {
			id := uuid(row)
			if n > 1 {
				id += fmt.Sprint("::", i)
			}
			all = append(all, place{row, id})
		}
	}
	return append(all, place{3, " "}, place{3, "  "}, place{3, "   "})
}

func (w *world) alive() (list []*pod) {
	for _, p := range w.pods {
		if p.ended.IsZero() {
			list = append(list, p)
		}
	}
	return list
}

// begin lets a pod begin where a device and a name are free.
func (w *world) begin() {
	taken, names := map[string]bool{}, map[string]bool{}
	for _, p := range w.alive() {
		taken[p.device], names[p.name] = true, true
	}
	all := places()
	w.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	name := fmt.Sprint("web-", w.rng.IntN(8))
	for _, d := range all {
		if taken[d.id] || names[name] {
			continue
		}
		w.count++
		p := &pod{name: name, uid: fmt.Sprintf("%08d-0000-4000-8000-000000000000", w.count), row: d.row, device: d.id, created: time.Now(), work: map[int]float64{}}
		w.pods = append(w.pods, p)
		for range 1 + w.rng.IntN(2) {
			w.spawn(p, d.row)
		}
		if w.logs != "" {
			path := filepath.Join(w.logs, "ml_"+name+"_"+p.uid)
			if err := os.Mkdir(path, 0o700); err != nil {
				w.t.Fatal(err)
			}
			w.touch(path)
			w.touch(w.logs)
		}
		w.tell(name, podmapper.PodInfo{UID: p.uid, Created: p.created})
		return
	}
}

// tell has the API server know a pod, or that it is gone, unless it is silent.
func (w *world) tell(name string, info podmapper.PodInfo) {
	w.changed = time.Now()
	if !w.silent.IsZero() {
		return
	}
	w.revision++
	if w.view[name] = info; info.UID == "" {
		delete(w.view, name)
	}
}

// spawn starts a process, with the id of an earlier one where there is one that a read has seen.
func (w *world) spawn(p *pod, row int) {
	w.count++
	x := &process{pid: uint32(1000 + w.count), pod: p, row: row, duty: 0.02 + 0.1*w.rng.Float64(), start: w.count}
	if len(w.freed) > 0 && w.rng.IntN(2) == 0 {
		at := w.rng.IntN(len(w.freed))
		x.pid, x.again = w.freed[at], true
		w.freed = append(w.freed[:at], w.freed[at+1:]...)
	}
	w.processes = append(w.processes, x)
	if p != nil {
		p.processes = append(p.processes, x)
	}
}

func (w *world) host() { w.spawn(nil, w.rng.IntN(rows)) }

func (w *world) kill(x *process) {
	at := slices.Index(w.processes, x)
	if at < 0 {
		return // it ended before its pod
	}
	w.processes = slices.Delete(w.processes, at, at+1)
	if x.read {
		w.freed = append(w.freed, x.pid)
	}
	w.unseen[x.row] = w.unseen[x.row] || x.again && !x.read
}

func (w *world) end(p *pod) {
	p.ended = time.Now()
	for _, x := range p.processes {
		w.kill(x)
	}
	w.tell(p.name, podmapper.PodInfo{})
}

// second lets one pass, and perhaps something happen.
func (w *world) second() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.processes {
		w.work[x.row][x.pid] += x.duty
		if x.pod != nil {
			x.pod.work[x.row] += x.duty
		}
	}
	for row := range rows {
		util := 0.0
		for _, x := range w.processes {
			if x.row == row {
				util += x.duty
			}
		}
		w.energy[row] += 100 + 300*util
	}
	if !w.down.IsZero() && !time.Now().Before(w.down) {
		w.down = time.Time{}
		w.listen(time.Now())
	}
	if !w.quiet && w.rng.Float64() < min(0.3, 3/w.interval.Seconds()/2) {
		w.happen()
	}
}

func (w *world) happen() {
	alive := w.alive()
	settled := w.down.IsZero() && time.Since(w.boot) > filling
	switch w.rng.IntN(12) {
	case 0, 1, 2:
		if settled {
			w.begin()
		}
	case 3, 4:
		if len(alive) > 0 {
			w.end(alive[w.rng.IntN(len(alive))])
		}
	case 5: // another pod of the name, at once
		if len(alive) > 0 && settled {
			w.end(alive[w.rng.IntN(len(alive))])
			w.begin()
		}
	case 6:
		w.server.Stop()
		w.changed = time.Now()
		w.down = time.Now().Add(time.Duration(w.rng.IntN(40)) * time.Second)
	case 7: // the connection alone
		if w.down.IsZero() {
			w.server.Stop()
			boot := w.boot
			w.listen(boot)
		}
	case 8:
		if w.changed = time.Now(); w.silent.IsZero() && w.rng.IntN(2) == 0 {
			w.silent = time.Now()
		} else {
			w.hear()
		}
	default: // a process ends, and another begins
		if len(w.processes) > 0 {
			x := w.processes[w.rng.IntN(len(w.processes))]
			w.kill(x)
			w.spawn(x.pod, x.row)
		}
	}
}

// hear has the API server answer again, with what is so.
func (w *world) hear() {
	w.silent = time.Time{}
	w.view = map[string]podmapper.PodInfo{}
	w.revision++
	for _, p := range w.alive() {
		w.view[p.name] = podmapper.PodInfo{UID: p.uid, Created: p.created}
	}
}

// forget is a new watch: one of a silent API server lists nothing.
func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.silent.IsZero() {
		w.view = map[string]podmapper.PodInfo{}
		w.revision++
	}
}

// listen starts a kubelet that has been there since boot.
func (w *world) listen(boot time.Time) {
	w.boot, w.listener, w.server = boot, bufconn.Listen(1<<16), grpc.NewServer()
	if err := os.Chtimes(w.socket, boot, boot); err != nil {
		w.t.Error(err)
	}
	v1.RegisterPodResourcesListerServer(w.server, w)
	server, listener := w.server, w.listener
	go func() { _ = server.Serve(listener) }() // it returns when the server stops
}

func (w *world) dial(ctx context.Context) (net.Conn, error) {
	w.mu.Lock()
	listener, down := w.listener, !w.down.IsZero()
	w.mu.Unlock()
	if down {
		return nil, &net.OpError{Op: "dial", Net: "unix", Err: syscall.ENOENT}
	}
	return listener.DialContext(ctx)
}

// List lists the pods, of a kubelet that has just started none for a second and then one after the
// other.
func (w *world) List(context.Context, *v1.ListPodResourcesRequest) (*v1.ListPodResourcesResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	alive := w.alive()
	w.rng.Shuffle(len(alive), func(i, j int) { alive[i], alive[j] = alive[j], alive[i] })
	if since := time.Since(w.boot); since < filling {
		alive = alive[:len(alive)*int(max(since-time.Second, 0))/int(filling-time.Second)]
	}
	var list []*v1.PodResources
	for _, p := range alive {
		container := kubelet.Container("main", "nvidia.com/gpu", p.device)
		if p.row == 3 {
			container = kubelet.Claiming("main", "ml", "ours", "gpu.nvidia.com", "node", "gpu-3", "")
		}
		list = append(list, kubelet.Pod("ml/"+p.name, container))
	}
	return &v1.ListPodResourcesResponse{PodResources: list}, nil
}

func (w *world) GetAllocatableResources(context.Context, *v1.AllocatableResourcesRequest) (*v1.AllocatableResourcesResponse, error) {
	r := &v1.AllocatableResourcesResponse{}
	for _, p := range places() {
		if p.row < 3 {
			r.Devices = append(r.Devices, kubelet.Device("nvidia.com/gpu", p.id))
		}
	}
	return r, nil
}

func (w *world) options() podmapper.Options {
	return podmapper.Options{
		Socket: w.socket, Dial: w.dial, PodUID: true, LogFolder: w.logs,
		Metrics: podmapper.NewMetrics(prometheus.NewRegistry()),
		Device: func(_, _, _ string) (podmapper.ClaimDevice, bool) {
			return podmapper.ClaimDevice{UUID: uuid(3)}, true
		},
		Pod: func(_, name string) (podmapper.PodInfo, bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			info, ok := w.view[name]
			return info, ok
		},
		Revision: func() uint64 {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.revision
		},
		Stale: func() (time.Time, bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.silent, !w.silent.IsZero() && time.Since(w.silent) > detection
		},
	}
}

// Open is /proc.
func (w *world) Open(name string) (fs.File, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	files := fstest.MapFS{"2/stat": {Data: []byte("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 2 0 0 20 0 1 0 30 0 0 0 0")}}
	for _, x := range w.processes {
		group := "/system.slice/x.service"
		if x.pod != nil {
			group = "/kubepods/burstable/pod" + x.pod.uid + "/0123"
		}
		files[fmt.Sprint(x.pid, "/stat")] = &fstest.MapFile{Data: fmt.Appendf(nil, "%d (p) R 9 9 9 0 -1 4194304 1 0 0 0 5 6 0 0 20 0 1 0 %d 100 1 1", x.pid, x.start)}
		files[fmt.Sprint(x.pid, "/cgroup")] = &fstest.MapFile{Data: []byte("0::" + group + "\n")}
	}
	return files.Open(name)
}

// read fills the batch as a driver does: what each process id did since the latest read.
func (w *world) read(b *gpu.Batch, plan *gpu.Plan, passed float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, x := range w.processes {
		w.work[x.row][x.pid] += 0 // also one that has just begun is listed
		x.read = true
	}
	for row := range rows {
		util := 0.0
		for _, seconds := range w.work[row] {
			util += seconds / passed
		}
		for i := range plan.Fields {
			switch plan.Fields[i].ID {
			case 203:
				b.Add(row, i, gpu.Float(100*util), now)
			case 252:
				b.Add(row, i, gpu.Int(10000), now)
			case 156:
				b.Add(row, i, gpu.Float(1e3*w.energy[row]), now)
			}
		}
		b.Utilizations = append(b.Utilizations, gpu.Utilization{Row: row, Busy: gpu.Float(util)})
		for pid, seconds := range w.work[row] {
			b.Processes = append(b.Processes, gpu.Process{Row: row, PID: pid, Busy: gpu.Float(seconds / passed), Memory: gpu.Int(1 << 20), Time: now.UnixNano()})
		}
	}
}

// begun forgets the work of the interval.
func (w *world) begun() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unseen = [rows]bool{}
	for row := range w.work {
		clear(w.work[row])
	}
	for _, p := range w.pods {
		clear(p.work)
	}
}
