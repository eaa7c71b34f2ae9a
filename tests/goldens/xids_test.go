package goldens

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

// xidNode is a node of four GPUs. GPUs 2 and 3 are partitioned by MIG.
var xidNode = []string{
	"library 4.6.0", "engine 4.6.0", "driver 580.95.05", "nvml 13.580.95.05",
	"gpu 0 uuid=GPU-0 name=H100 bus=00000000:1B:00.0 prof=none",
	"gpu 1 uuid=GPU-1 name=H100 bus=00000000:2B:00.0 index=1 minor=1 prof=none",
	"gpu 2 uuid=GPU-2 name=H100 bus=00000000:3B:00.0 index=2 minor=2 prof=none",
	"gpu 3 uuid=GPU-3 name=H100 bus=00000000:4B:00.0 index=3 minor=3 prof=none",
	"instance 7 gpu=2 nvml=1 profile=3g.40gb", "instance 8 gpu=2 nvml=2 profile=4g.40gb",
	"instance 9 gpu=3 nvml=1 profile=7g.80gb",
	"compute 7 instance=7 nvml=0", "compute 8 instance=7 nvml=1", "compute 9 instance=8 nvml=0",
	"compute 10 instance=9 nvml=0",
	"value gpu:* 150 int 45",
}

// An xidTarget is an entity of xidNode that can have XIDs, and the labels of its series.
type xidTarget struct{ entity, labels string }

var xidTargets = []xidTarget{
	{"gpu:0", "GPU-0"}, {"gpu:1", "GPU-1"}, {"gpu:2", "GPU-2"}, {"gpu:3", "GPU-3"},
	{"instance:7", "GPU-2/1"}, {"instance:8", "GPU-2/2"}, {"instance:9", "GPU-3/1"},
	{"compute:7", "GPU-2/1"}, {"compute:8", "GPU-2/1"}, {"compute:9", "GPU-2/2"}, {"compute:10", "GPU-3/1"},
}

// logged is an XID in the kernel log. An engine reads the log from the beginning when it starts.
type logged struct {
	entity string
	code   int64
	at     time.Time
}

// xidRig counts the XIDs of an engine like the collector does, and records the XIDs that happened.
type xidRig struct {
	t        *testing.T
	random   *rand.Rand
	engine   *fakedcgm.Engine
	plan     *gpu.Plan
	log      *events.Log
	session  *dcgm.Session
	builder  *snapshot.Builder
	sequence int
	kernel   []logged
	maxCode  int64 // highest XID code that happens
	// UUID of a GPU whose XIDs the engine does not keep, as if the session could not watch it; "" if none
	unwatched string
	dates     map[string][]time.Time // by labels and code
	want      map[string]int64
	got       map[string]int64
}

func newXIDRig(t *testing.T, seed uint64, maxCode int64) *xidRig {
	gpus := gpu.KindsOf(gpu.KindGPU)
	r := &xidRig{
		t: t, random: rand.New(rand.NewPCG(seed, 1)), engine: fakedcgm.New(t, xidNode...),
		want: map[string]int64{}, dates: map[string][]time.Time{}, maxCode: maxCode,
		plan: &gpu.Plan{
			Interval: pace, Devices: gpu.Selector{Flex: true},
			Fields: []gpu.Field{
				{ID: 150, Name: "DCGM_FI_DEV_GPU_TEMP", Levels: gpus},
				{ID: catalog.XIDErrors, Name: "DCGM_FI_DEV_XID_ERRORS", Levels: gpus},
			},
			Derived: []gpu.Derived{{Name: catalog.XIDErrorsTotal, Type: gpu.MetricCounter, HasField: true, Field: 1}},
		},
	}
	r.log = events.New(events.Options{Start: time.Now().Add(-time.Hour), Registerer: prometheus.NewRegistry()})
	r.open()
	t.Cleanup(func() { r.session.Close() })
	return r
}

// open opens a session, and binds the log to its topology.
func (r *xidRig) open() {
	r.t.Helper()
	s, err := dcgm.New(dcgm.Options{}).Open(r.t.Context(), r.plan)
	if err != nil {
		r.t.Fatal(err)
	}
	r.session, r.builder = s, snapshot.NewBuilder(s.Topology(), r.plan, []snapshot.Deriver{r.log})
	r.log.Bind(s.Topology(), r.plan)
}

// read reads the session and counts the XIDs. If the session has ended, it opens a new one.
func (r *xidRig) read() {
	r.t.Helper()
	begin, batch := time.Now(), &gpu.Batch{}
	if err := r.session.Read(r.t.Context(), gpu.ReadRequest{}, batch); err == nil {
		r.collect(r.builder.Build(snapshot.Reading{Batch: batch, Begin: begin, Now: time.Now()}))
	} else if r.session.Err() == nil {
		r.t.Fatal(err)
	}
	if r.session.Err() != nil {
		r.session.Close()
		r.open()
	}
}

// collect records the totals in a snapshot.
func (r *xidRig) collect(s *gpu.Snapshot) {
	r.got = map[string]int64{}
	for _, f := range s.Families {
		for i := range f.Series {
			x := &f.Series[i]
			labels, code := r.session.Topology().Devices[x.Row].UUID, ""
			for _, l := range x.Labels {
				if l.Name == "GPU_I_ID" {
					labels += "/" + l.Value
				} else {
					code = l.Value
				}
			}
			if n, _ := x.Value.Int64(); n > 0 {
				r.got[r.key(labels, code)] += n
			}
		}
	}
}

// key returns the key of a count. If maxCode is more than 8, the exporter counts some codes as "other", so the key is
// the GPU alone.
func (r *xidRig) key(labels, code string) string {
	if r.maxCode > 8 {
		return labels[:len("GPU-0")]
	}
	return labels + ": " + code
}

// isApart reserves a date for an XID. It returns false if another XID with the same labels and code has a date within 5
// s. A starting engine dates XIDs again, so the two could not be distinguished.
func (r *xidRig) isApart(target xidTarget, code int64, at time.Time) bool {
	key := fmt.Sprint(target.labels, code)
	for _, other := range r.dates[key] {
		if at.Sub(other).Abs() < 5*time.Second {
			return false
		}
	}
	r.dates[key] = append(r.dates[key], at)
	return true
}

// reload opens a new session before it closes the current one. The first Read of the new session returns all XIDs that
// the engine keeps.
func (r *xidRig) reload() {
	old := r.session
	r.open()
	old.Close()
	r.read()
}

// happen creates up to n XIDs with dates between four minutes ago and now, and returns how many it created. It skips
// XIDs that the engine does not keep, or that could not be distinguished from others.
func (r *xidRig) happen(n int) (made int) {
	r.engine.Remove("event")
	var lines []string
	for range n {
		target := xidTargets[r.random.IntN(len(xidTargets))]
		code, back := 1+r.random.Int64N(r.maxCode), time.Duration(0)
		if r.random.IntN(2) == 0 {
			back = time.Duration(r.random.Int64N(int64(4 * time.Minute)))
		}
		if r.unwatched != "" && strings.HasPrefix(target.labels, r.unwatched) {
			continue
		}
		if !r.isApart(target, code, time.Now().Add(-back)) {
			continue
		}
		r.sequence++
		lines = append(lines, fmt.Sprintf("event %d %s 230 %d %f", r.sequence, target.entity, code, back.Seconds()))
		r.want[r.key(target.labels, fmt.Sprint(code))]++
		if len(r.kernel) < 2000 && r.random.IntN(3) == 0 {
			r.kernel = append(r.kernel, logged{target.entity, code, time.Now().Add(-back)})
		}
	}
	r.engine.Add(lines...)
	return len(lines)
}

// restart restarts the engine. The engine drops its XIDs, reads the kernel log from the beginning, and dates the XIDs
// again.
func (r *xidRig) restart() {
	r.reload()
	r.engine.Remove("event")
	r.engine.Restart()
	r.read()
	var lines []string
	offset := time.Duration(r.random.Int64N(int64(time.Second)))
	for _, x := range r.kernel {
		r.sequence++
		back := time.Since(x.at) + offset + time.Duration(r.random.IntN(2000))
		lines = append(lines, fmt.Sprintf("event %d %s 230 %d %f", r.sequence, x.entity, x.code, back.Seconds()))
	}
	r.engine.Add(lines...)
	r.read()
}

// unbind unbinds a random GPU from the driver and binds it again, with a reload before and after.
func (r *xidRig) unbind() {
	uuid := fmt.Sprintf("uuid=GPU-%d ", r.random.IntN(4))
	r.reload()
	r.engine.Replace(uuid, "status=detached "+uuid)
	r.read()
	r.engine.Replace("status=detached ", "")
	r.read()
	r.reload()
}

// lose makes a GPU fall off the bus and return, with reloads in between. XIDs happen before the loss, during it, and
// after the return.
func (r *xidRig) lose() (made int) {
	lost := fmt.Sprintf("GPU-%d", r.random.IntN(4))
	uuid := fmt.Sprintf("uuid=%s ", lost)
	made = r.happen(5)
	r.reload()
	r.engine.Replace(uuid, "status=lost "+uuid)
	for range 1 + r.random.IntN(4) {
		made += r.happen(5)
		r.read()
	}
	if r.random.IntN(2) == 0 {
		r.reload()
	}
	r.engine.Replace("status=lost ", "")
	r.unwatched = lost
	made += r.happen(5)
	r.read()
	r.unwatched = ""
	r.reload()
	return made
}

// XIDs of GPUs, instances and compute instances are counted exactly once, in any order of their dates. Reloads, engine
// restarts, and lost and unbound GPUs do not change that. XID_STORM=1 plays 10,000 XIDs for each seed.
func TestRandomXIDsAreCountedOnce(t *testing.T) {
	total, maxCode := 600, int64(8)
	if os.Getenv("XID_STORM") != "" {
		total, maxCode = 10000, 150
	}
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { playXIDs(newXIDRig(t, seed, maxCode), total) })
	}
}

// playXIDs plays total XIDs, interleaved with reloads, engine restarts, and lost and unbound GPUs, and checks the
// counts.
func playXIDs(r *xidRig, total int) {
	r.read()
	made, done := 0, map[string]int{}
	for step := 0; made < total; step++ {
		made += r.happen(min(40, total-made))
		r.read()
		switch step % 8 {
		case 1:
			r.reload()
			done["reloads"]++
		case 3:
			r.restart()
			done["restarts"]++
		case 7:
			made += r.lose()
			done["lost"]++
		case 5:
			r.unbind()
			done["unbound"]++
		}
	}
	r.reload()
	r.read()
	if diff := cmp.Diff(r.want, r.got); diff != "" {
		r.t.Errorf("counts of %d XIDs over %v (-want +got):\n%s", made, done, diff)
	}
	r.t.Logf("%d XIDs over %v", made, done)
}
