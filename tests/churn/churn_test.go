// Package churn has pods come and go on shared GPUs, with an oracle of its own: kubelets restart,
// pods and process ids come again, the API server falls silent.
package churn

import (
	"cmp"
	"context"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
	proc "github.com/gpu-telemetry/dcgm-exporter/internal/process"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

const (
	utilization = "dcgm_pod_gpu_utilization_ratio"
	info        = "dcgm_pod_gpu_info"
	energy      = "dcgm_pod_gpu_energy_joules_total"
	restOfUtil  = "dcgm_gpu_unattributed_utilization_ratio"
	restEnergy  = "dcgm_gpu_unattributed_energy_joules_total"
	tolerance   = 1e-9
)

// An owner is a pod on a GPU, as a page names it.
type owner struct{ gpu, pod string }

// A page is what one cycle says: family → GPU and pod → value, and the UIDs.
type page struct {
	values map[string]map[owner]float64
	uids   map[owner]string
}

func pageOf(s *gpu.Snapshot) page {
	p := page{values: map[string]map[owner]float64{}, uids: map[owner]string{}}
	for _, f := range s.Families {
		if p.values[f.Name] == nil {
			p.values[f.Name] = map[owner]float64{}
		}
		for _, x := range f.Series {
			labels := map[string]string{}
			for _, l := range x.Labels {
				labels[l.Name] = l.Value
			}
			key := owner{labels["gpu"], labels["pod"]}
			if f.Name == info {
				p.uids[key] = labels["pod_uid"]
			}
			if v, ok := x.Value.Number(); ok {
				p.values[f.Name][key] = v
			}
		}
	}
	return p
}

// sum adds up a family over a GPU.
func (p *page) sum(family string, row int) (sum float64) {
	for key, v := range p.values[family] {
		if key.gpu == strconv.Itoa(row) {
			sum += v
		}
	}
	return sum
}

// A judge holds each page against the truth.
type judge struct {
	*world
	page, last page
	first      [rows]float64                 // joules
	total      map[string]map[string]float64 // family and GPU → owner and UID → its latest value
	shares     int                           // shares of shared GPUs that were compared
	owners     int                           // owners that were compared once all was quiet
	answered   time.Time                     // when the mapper last answered
}

// wrongUID is for how long after its end a pod may be named, at most: the kubelet's list and the
// collector's answer are each good for a while, and a dead watch shows after another.
func (j *judge) wrongUID() time.Duration {
	bound := 2 * max(2*j.interval, 30*time.Second)
	if j.logs == "" {
		bound += detection + 2*j.interval
	}
	return bound
}

func (j *judge) see(p page, began time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last, j.page = j.page, p
	for key, uid := range p.uids {
		j.mayOwn(key, uid)
	}
	passed := time.Since(began).Seconds()
	for row := range rows {
		j.utilization(row, began, passed)
		j.energyOf(row)
	}
	for family, series := range p.values {
		if len(family) < 6 || family[len(family)-6:] != "_total" {
			continue
		}
		for key, v := range series {
			if before, ok := j.last.values[family][key]; ok && v < before-tolerance && j.page.uids[key] == j.last.uids[key] {
				j.t.Errorf("%v: %s of %v fell from %v to %v", time.Now(), family, key, before, v)
			}
		}
	}
	if time.Since(j.changed) > j.wrongUID()+2*time.Minute {
		j.complete()
	}
}

// alone holds that no answer gives to one pod what several share. Those count that were there at the
// answer before, or when the exporter started: a kubelet that restarts just after a pod has begun need
// not list that pod yet.
func (j *judge) alone(answer *gpu.Owners) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var holders [rows]int
	for _, p := range j.alive() {
		if !p.created.After(j.answered) {
			holders[p.row]++
		}
	}
	j.answered = time.Now()
	for row, n := range holders {
		if owners := answer.UseOf(row).Owners; n > 1 && len(owners) == 1 {
			j.t.Errorf("%v: GPU %d is said to be %s's alone, and %d pods share it", time.Now(), row, owners[0].Pod, n)
		}
	}
}

// mayOwn holds that who is named as an owner is, or was just now.
func (j *judge) mayOwn(key owner, uid string) {
	var latest, named *pod
	for _, p := range j.pods {
		if p.name != key.pod {
			continue
		}
		if strconv.Itoa(p.row) == key.gpu && (uid == "" || p.uid == uid) {
			latest = p
		}
		if p.uid == uid {
			named = p
		}
	}
	if latest == nil && j.logs == "" {
		latest = named // the UID alone is an earlier one's, while the API server is silent
	}
	switch {
	case latest == nil:
		j.t.Errorf("%v: GPU %s is said to be of %s (%q), which never had it", time.Now(), key.gpu, key.pod, uid)
	case !latest.ended.IsZero() && time.Since(latest.ended) > j.wrongUID():
		j.t.Errorf("%v: GPU %s is said to be of %s (%q), %v after its end", time.Now(), key.gpu, key.pod, uid, time.Since(latest.ended))
	}
}

// utilization holds that no pod has the work of another, and that the parts are the whole.
func (j *judge) utilization(row int, began time.Time, passed float64) {
	device := 0.0
	for _, seconds := range j.work[row] {
		device += seconds / passed
	}
	if rest, ok := j.page.values[restOfUtil][owner{gpu: strconv.Itoa(row)}]; ok {
		if sum := j.page.sum(utilization, row) + rest; math.Abs(sum-device) > tolerance {
			j.t.Errorf("%v: GPU %d: pods and the rest are %v, the device %v", time.Now(), row, sum, device)
		}
	}
	if row == 0 || j.unseen[row] {
		return // whole: the interval is of the owner at its end; else nothing tells two processes apart
	}
	shown := 0
	for key := range j.page.uids {
		if key.gpu == strconv.Itoa(row) {
			shown++
		}
	}
	for key, v := range j.page.values[utilization] {
		uid := j.page.uids[key]
		if key.gpu != strconv.Itoa(row) || uid == "" || shown < 2 {
			continue
		}
		at := slices.IndexFunc(j.pods, func(p *pod) bool { return p.uid == uid })
		if truth := j.pods[at].work[row] / passed; v > truth+tolerance {
			j.t.Errorf("%v: %s (%s) has %v of GPU %d, and did %v since %v", time.Now(), key.pod, uid, v, row, truth, began)
		}
		j.shares++
	}
}

// energyOf holds that no more is charged than was used.
func (j *judge) energyOf(row int) {
	sum := 0.0
	for _, family := range []string{energy, restEnergy} {
		id := family + strconv.Itoa(row)
		if j.total[id] == nil {
			j.total[id] = map[string]float64{}
		}
		for key, v := range j.page.values[family] {
			if key.gpu == strconv.Itoa(row) {
				life := key.pod + " " + j.page.uids[key]
				j.total[id][life] = max(j.total[id][life], v)
			}
		}
	}
	if j.logs == "" {
		return // whose UID comes late has one account under two UIDs
	}
	for _, family := range []string{energy, restEnergy} {
		for _, v := range j.total[family+strconv.Itoa(row)] {
			sum += v
		}
	}
	if used := j.energy[row] - j.first[row]; sum > used*(1+tolerance)+tolerance {
		j.t.Errorf("%v: GPU %d: %v J are charged, and it used %v", time.Now(), row, sum, used)
	}
}

// complete holds that once all is quiet every owner is named, and its share known.
func (j *judge) complete() {
	want := map[owner]string{}
	for _, p := range j.alive() {
		want[owner{strconv.Itoa(p.row), p.name}] = p.uid
	}
	if len(want) != len(j.page.uids) {
		j.t.Errorf("%v: the owners are %v, and the page has %v", time.Now(), want, j.page.uids)
	}
	for key, uid := range want {
		if j.page.uids[key] != uid {
			j.t.Errorf("%v: %v is %s, and the page has %q", time.Now(), key, uid, j.page.uids[key])
		}
		if _, ok := j.page.values[utilization][key]; !ok {
			j.t.Errorf("%v: the share of %v is not known", time.Now(), key)
		}
		j.owners++
	}
}

// play plays the world of a seed.
func play(t *testing.T, seed uint64) (shares, owners int) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed)
		defer func() {
			w.server.Stop()
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		}()
		var mapper *podmapper.Mapper
		restart := func() {
			if mapper != nil {
				mapper.Close()
			}
			mapper = podmapper.New(w.options())
			mapper.Every(w.interval)
		}
		restart()
		defer func() { mapper.Close() }()
		j := &judge{world: w, total: map[string]map[string]float64{}}
		accountant := accounting.New(accounting.Options{Registerer: prometheus.NewRegistry()})
		plan := accounting.Extend(&gpu.Plan{Interval: w.interval})
		top := topology()
		builder := snapshot.NewBuilder(top, plan, []snapshot.Deriver{accountant.Deriver(proc.NewResolver(w).PodOf)})
		var batch gpu.Batch
		var latest *gpu.Owners
		var at, began time.Time
		cycles := 60
		for cycle := range cycles + int((j.wrongUID()+4*time.Minute)/w.interval) {
			if w.quiet = cycle >= cycles; cycle == cycles {
				w.mu.Lock()
				w.hear()
				w.changed = time.Now()
				w.mu.Unlock()
			}
			for range int(w.interval / time.Second) {
				time.Sleep(time.Second)
				w.second()
			}
			if !w.quiet && w.rng.IntN(30) == 0 {
				restart() // the exporter
				w.forget()
				j.answered = time.Now()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			// As the collector does: the latest answer is good for a while.
			if got, err := mapper.Attribute(ctx, top); err == nil {
				latest, at = got, time.Now()
				j.alone(got)
			} else if time.Since(at) > max(2*w.interval, 30*time.Second) {
				latest = nil
			}
			cancel()
			if began.IsZero() {
				began = time.Now().Add(-w.interval)
				j.first = w.energy
			}
			batch.Reset()
			batch.RequestProcesses = top.ProcessRows()
			now := time.Now()
			w.read(&batch, plan, now.Sub(began).Seconds())
			s := builder.Build(snapshot.Reading{Kind: snapshot.Served, Batch: &batch, Owners: latest, Begin: now, Now: now})
			j.see(pageOf(s), began)
			w.begun()
			began = now
			if t.Failed() {
				return
			}
		}
		shares, owners = j.shares, j.owners
	})
	return shares, owners
}

// seeds is how many worlds are played.
func seeds(t *testing.T) uint64 {
	text := os.Getenv("CHURN_SEEDS")
	n, err := strconv.ParseUint(cmp.Or(text, "20"), 10, 32)
	if err != nil {
		t.Fatalf("CHURN_SEEDS: %v", err)
	}
	return n
}

// Whatever pods, kubelets, process ids and the API server do: no page names a wrong owner for
// longer than is documented, no pod has another's work, the parts are the whole, and counters do
// not fall. CHURN_SEEDS plays more worlds.
func TestChurn(t *testing.T) {
	shares, owners := 0, 0
	for seed := range seeds(t) {
		s, o := play(t, seed)
		shares, owners = shares+s, owners+o
	}
	if shares == 0 || owners == 0 {
		t.Errorf("%d shares and %d owners were compared", shares, owners)
	}
	t.Logf("%d shares and %d owners compared", shares, owners)
}
