package dashboards

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/value"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
)

// What the nodes of fleetNodes are by their descriptions (internal/source/sim/data/nodes) and
// scenarios, at the end of the play. t4 has lost its driver and mig8x7 is not scraped anymore.
var (
	gpusOf = map[string]float64{"gpu-a-01": 8, "gpu-a-02": 8, "gpu-b-01": 6, "gpu-b-02": 8, "gpu-d-01": 1}
	// Replicas count by their number, instances by their compute slices of 7.
	allocatedOf = map[string]float64{
		"gpu-a-01": 4 + 2./4 + (3+2+1)/7. + 6/7.,
		"gpu-a-02": 6 + 3/7. + 3/7. + 2/7., // GPU 5 is lost, and still assigned
		"gpu-b-01": 3./4 + 2./8 + 1 + 3/7./2 + 3/7. + 1,
		"gpu-b-02": 8,
		"gpu-d-01": 1,
	}
)

const lastMinutes = 5 * time.Minute

func sum(m map[string]float64) (total float64) {
	for _, v := range m {
		total += v
	}
	return total
}

// device is the key of a GPU, instance or link.
func device(r raw) string {
	return strings.Join([]string{r.Get("instance"), r.Get("gpu"), r.Get("GPU_I_ID"), r.Get("nvlink")}, "/")
}

func by(names ...string) func(raw) string {
	return func(r raw) string {
		var texts []string
		for _, n := range names {
			texts = append(texts, r.Get(n))
		}
		return strings.Join(texts, "/")
	}
}

// field returns the values of a DCGM field at a time: of the name that the node serves, times
// factor where that is the classic one.
func (w *world) field(at time.Time, classic string, factor float64) map[string]raw {
	named, _ := catalog.Lookup(classic)
	all := map[string]raw{}
	for _, r := range w.served(at, named.Entry.Current) {
		all[device(r)] = r
	}
	for _, r := range w.served(at, classic) {
		r.v *= factor
		all[device(r)] = r
	}
	return all
}

// whole leaves out instances and links.
func whole(m map[string]raw) map[string]raw {
	maps.DeleteFunc(m, func(_ string, r raw) bool { return r.Get("GPU_I_ID") != "" || r.Get("nvlink") != "" })
	return m
}

func group(m map[string]raw, key func(raw) string, into func(a, b float64) float64) map[string]float64 {
	all := map[string]float64{}
	for _, r := range m {
		k := key(r)
		if had, ok := all[k]; ok {
			all[k] = into(had, r.v)
		} else {
			all[k] = into(0, r.v)
		}
	}
	return all
}

func plus(a, b float64) float64 { return a + b }
func one(a, _ float64) float64  { return a + 1 }

// grown is what a counter grew by per second until the end, by series.
func (w *world) grown(name string, over time.Duration) map[string]raw {
	all := map[string]raw{}
	for _, p := range w.nodes {
		for _, h := range p.series {
			if h.metric.Get("__name__") != name {
				continue
			}
			last := h.samples[len(h.samples)-1]
			if value.IsStaleNaN(last.v) || last.at != w.end.UnixMilli() {
				continue
			}
			for _, s := range h.samples {
				if !value.IsStaleNaN(s.v) && s.at > w.asked().Add(-over).UnixMilli() {
					if d := float64(last.at-s.at) / 1000; d > 0 {
						r := raw{h.metric, (last.v - s.v) / d}
						all[device(r)+"/"+by("namespace", "pod", "container", "hpc_job")(r)] = r
					}
					break
				}
			}
		}
	}
	return all
}

// idle is what is allocated and not used, where both are known. Work beyond a share is no idle
// time.
func (w *world) idle(over time.Duration) map[string]raw {
	used := w.grown("dcgm_pod_gpu_active_seconds_total", over)
	all := map[string]raw{}
	for k, r := range w.grown("dcgm_pod_gpu_allocated_seconds_total", over) {
		if u, ok := used[k]; ok {
			all[k] = raw{r.Labels, max(0, r.v-u.v)}
		}
	}
	return all
}

func (w *world) host(instance string) string {
	for _, p := range w.nodes {
		if p.instance() == instance {
			return p.host
		}
	}
	return ""
}

// values makes a column of a table.
func (s shown) add(title string, values map[string]float64) shown {
	for k, v := range values {
		if s[k] == nil {
			s[k] = map[string]float64{}
		}
		if title != "" {
			s[k][title] = v
		}
	}
	return s
}

// keyed renames the rows of a column.
func keyed(values map[string]float64, name func(string) string) map[string]float64 {
	all := map[string]float64{}
	for k, v := range values {
		all[name(k)] += v
	}
	return all
}

func divided(a, b map[string]float64) map[string]float64 {
	all := map[string]float64{}
	for k, v := range a {
		if _, ok := b[k]; ok {
			all[k] = v / b[k]
		}
	}
	return all
}

func filteredBy(m map[string]raw, keep func(raw) bool) map[string]raw {
	all := map[string]raw{}
	for k, r := range m {
		if keep(r) {
			all[k] = r
		}
	}
	return all
}

// instances are the MIG instances by device, from series that have their profile.
func (w *world) instances() map[string]raw {
	return filteredBy(w.field(w.end, "DCGM_FI_DEV_FB_FREE", 1<<20), func(r raw) bool { return r.Get("GPU_I_ID") != "" })
}

// owners are the owners of devices, by device.
func (w *world) owners() map[string][]raw {
	all := map[string][]raw{}
	for _, r := range w.served(w.end, "dcgm_pod_gpu_info") {
		all[device(r)] = append(all[device(r)], r)
	}
	return all
}

// mean is the mean of a gauge over the last samples.
func (w *world) mean(name string, over time.Duration) map[string]raw {
	total, n := map[string]raw{}, map[string]float64{}
	for at := w.end; at.After(w.end.Add(-over)); at = at.Add(-scrapeEvery) {
		for _, r := range w.served(at, name) {
			k := device(r) + "/" + by("namespace", "pod", "container", "hpc_job")(r)
			if _, now := total[k]; !now && !at.Equal(w.end) {
				continue // it is gone
			}
			total[k] = raw{r.Labels, total[k].v + r.v}
			n[k]++
		}
	}
	for k, r := range total {
		total[k] = raw{r.Labels, r.v / n[k]}
	}
	return total
}

// busy is the mean of the engine of a device.
func (w *world) busy(over time.Duration) map[string]raw {
	named, _ := catalog.Lookup("DCGM_FI_PROF_GR_ENGINE_ACTIVE")
	all := w.mean(named.Entry.Current, over)
	maps.Copy(all, w.mean(named.Entry.Classic, over))
	found := map[string]raw{}
	for _, r := range all {
		found[device(r)] = r
	}
	return found
}

// A truth is what a stat or a table must show. near is the relative error that it may have: rates
// are extrapolated by Prometheus, and computed here from the counters themselves.
type truth struct {
	stat  float64
	table shown
	near  float64
}

const extrapolated = 0.03

// truths are those of every stat and table, by file and title.
func (w *world) truths() map[string]truth {
	end := w.end
	stat := func(v float64) truth { return truth{stat: v} }
	rate := func(v float64) truth { return truth{stat: v, near: extrapolated} }
	pods := by("namespace", "pod", "hpc_job")
	spaces := by("namespace", "hpc_job")
	instance := by("instance")
	alloc := w.grown("dcgm_pod_gpu_allocated_seconds_total", lastMinutes)
	used := w.grown("dcgm_pod_gpu_active_seconds_total", lastMinutes)
	energy := w.grown("dcgm_pod_gpu_energy_joules_total", lastMinutes)
	idle := w.idle(lastMinutes)
	total := func(m map[string]raw) float64 { return sum(group(m, func(raw) string { return "" }, plus)) }
	power := whole(w.field(end, "DCGM_FI_DEV_POWER_USAGE", 1))
	temp := whole(w.field(end, "DCGM_FI_DEV_GPU_TEMP", 1))
	fbUsed, fbFree := w.field(end, "DCGM_FI_DEV_FB_USED", 1<<20), w.field(end, "DCGM_FI_DEV_FB_FREE", 1<<20)
	gpus := sum(gpusOf)
	models := map[string]string{}
	for _, r := range temp {
		models[by("instance", "gpu")(r)] = r.Get("modelName")
	}
	ofModel := func(m map[string]raw) map[string]float64 {
		m = filteredBy(m, func(r raw) bool { return models[by("instance", "gpu")(r)] != "" })
		return group(m, func(r raw) string { return models[by("instance", "gpu")(r)] }, plus)
	}
	node := func(m map[string]float64) map[string]float64 { return keyed(m, w.host) }
	memory := func(keep func(raw) bool) float64 {
		u := total(filteredBy(fbUsed, keep))
		return u / (u + total(filteredBy(fbFree, keep)))
	}
	every := func(raw) bool { return true }
	hottest := map[string]float64{}
	for _, r := range temp {
		hottest[w.host(r.Get("instance"))] = max(hottest[w.host(r.Get("instance"))], r.v)
	}

	all := map[string]truth{
		"fleet/GPUs":               stat(gpus),
		"fleet/Allocated":          rate(sum(allocatedOf)),
		"fleet/Used":               rate(total(used)),
		"fleet/Allocated and idle": rate(total(idle)),
		"fleet/Free":               rate(gpus - sum(allocatedOf)),
		"fleet/Power":              stat(total(power)),
		"fleet/GPUs down":          stat(1), // gpu-a-02 GPU 5
		"fleet/GPUs with an XID":   stat(2), // gpu-a-01 GPU 1, gpu-a-02 GPU 5; that of gpu-a-01 GPU 3 is older than an hour
		"fleet/Nodes without data": stat(1), // gpu-c-01
		"fleet/GPUs throttled":     stat(1), // gpu-a-01 GPU 2

		"node/GPUs up":                 stat(gpus - 1),
		"node/GPUs and instances down": stat(1),
		"node/Power":                   stat(total(power)),
		"node/Hottest GPU":             stat(slices.Max(slices.Collect(maps.Values(hottest)))),
		"node/Memory in use":           stat(memory(every)),
		"node/GPUs with an XID":        stat(2),

		"workload/Allocated":          rate(sum(allocatedOf)),
		"workload/Used":               rate(total(used)),
		"workload/Allocated and idle": rate(total(idle)),
		"workload/Power":              rate(total(energy)),
	}
	all["fleet/By model"] = truth{near: extrapolated, table: shown{}.
		add("GPUs", group(temp, by("modelName"), one)).add("Allocated", ofModel(alloc)).add("Used", ofModel(used)).
		add("Idle", ofModel(idle)).add("Power", group(power, by("modelName"), plus))}
	all["fleet/By namespace"] = truth{near: extrapolated, table: shown{}.
		add("Allocated", group(alloc, spaces, plus)).add("Used", group(used, spaces, plus)).add("Idle", group(idle, spaces, plus)).
		add("Power", group(energy, spaces, plus))}
	inUse := group(fbUsed, instance, plus)
	for k, v := range group(fbFree, instance, plus) {
		inUse[k] /= inUse[k] + v
	}
	all["fleet/By node"] = truth{near: extrapolated, table: shown{}.
		add("GPUs", node(group(temp, instance, one))).add("Down", map[string]float64{"gpu-a-01": 0, "gpu-a-02": 1, "gpu-b-01": 0, "gpu-b-02": 0, "gpu-d-01": 0}).
		add("Allocated", allocatedOf).add("Used", node(group(used, instance, plus))).add("Idle", node(group(idle, instance, plus))).
		add("Power", node(group(power, instance, plus))).add("Hottest", hottest).add("Memory in use", node(inUse))}
	all["fleet/Down"] = truth{table: shown{"gpu-a-02/5//lost": {}}}
	// GPU 2 of gpu-a-01 is busy for 21 % of the time, and the two others of its job as their own
	// series say.
	share := w.mean("dcgm_pod_gpu_utilization_ratio", 10*time.Minute)
	var job []float64
	var slow float64
	for _, r := range share {
		if r.Get("pod") == "llm-pretrain-0" {
			job = append(job, r.v)
			if r.Get("gpu") == "2" {
				slow = r.v
			}
		}
	}
	slices.Sort(job)
	straggler := truth{table: shown{"llm-pretrain/research/gpu-a-01/2/": {"Of the median": slow / job[1]}}}
	all["fleet/Stragglers"], all["workload/Stragglers"] = straggler, straggler

	all["node/Down"] = truth{table: shown{"gpu-a-02/5///lost": {}}}
	missing := shown{}
	for _, r := range w.served(end, "dcgm_exporter_field_unavailable") {
		// The rows of several compute instances or links are one.
		missing.add("", map[string]float64{w.host(r.Get("instance")) + "/" + by("gpu", "GPU_I_ID", "field", "reason")(r): 1})
	}
	all["node/Requested and not served"] = truth{table: missing}
	all["node/Who uses what"] = truth{table: w.usage()}

	allocAll, usedAll := w.increase("dcgm_pod_gpu_allocated_seconds_total"), w.increase("dcgm_pod_gpu_active_seconds_total")
	energyAll := w.increase("dcgm_pod_gpu_energy_joules_total")
	idleAll, knownAll := map[string]raw{}, map[string]raw{}
	for k, r := range allocAll {
		if u, ok := usedAll[k]; ok {
			idleAll[k], knownAll[k] = raw{r.Labels, max(0, r.v-u.v)}, r
		}
	}
	all["workload/GPU time"] = rate(total(allocAll))
	all["workload/Energy"] = rate(total(energyAll))
	all["workload/Pods"] = truth{near: extrapolated, table: shown{}.
		add("Allocated", group(allocAll, pods, plus)).add("Used", group(usedAll, pods, plus)).add("Idle", group(idleAll, pods, plus)).
		add("Of it used", divided(group(usedAll, pods, plus), group(knownAll, pods, plus))).add("Energy", group(energyAll, pods, plus)).
		add("Memory", group(w.mean("dcgm_pod_gpu_memory_used_bytes", scrapeEvery), pods, plus))}

	place := func(names ...string) func(raw) string {
		return func(r raw) string { return w.host(r.Get("instance")) + "/" + by(names...)(r) }
	}
	lazy := shown{}
	for _, r := range w.mean("dcgm_pod_gpu_utilization_ratio", 30*time.Minute) {
		if r.v < 0.05 {
			lazy.add("Busy", map[string]float64{pods(r) + "/" + place("gpu", "GPU_I_ID")(r): r.v})
		}
	}
	all["workload/Allocated and idle"+table] = truth{table: lazy}
	shared, sharer := shown{}, map[string]string{}
	owner := by("instance", "gpu", "GPU_I_ID", "namespace", "pod", "hpc_job")
	for _, owners := range w.owners() {
		for _, r := range owners {
			if len(owners) > 1 {
				sharer[owner(r)] = place("gpu", "GPU_I_ID", "sharing", "replicas", "namespace", "pod", "hpc_job")(r)
				shared.add("", map[string]float64{sharer[owner(r)]: 1})
			}
		}
	}
	for title, m := range map[string]map[string]raw{"Busy": w.mean("dcgm_pod_gpu_utilization_ratio", lastMinutes), "Memory": w.mean("dcgm_pod_gpu_memory_used_bytes", scrapeEvery)} {
		for _, r := range m {
			if row := sharer[owner(r)]; row != "" {
				shared.add(title, map[string]float64{row: r.v})
			}
		}
	}
	all["workload/Shared GPUs"] = truth{table: shared}

	instances, owners, busy := w.instances(), w.owners(), w.busy(lastMinutes)
	taken := func(r raw) bool { return len(owners[device(r)]) > 0 }
	idleInstances := 0.
	layout := shown{}
	for k, r := range instances {
		if taken(r) && busy[k].v < 0.05 {
			idleInstances++
		}
		rows := owners[k]
		if len(rows) == 0 {
			rows = []raw{{}}
		}
		for _, o := range rows {
			row := place("gpu", "GPU_I_ID", "GPU_I_PROFILE")(r) + "/" + by("namespace", "pod", "hpc_job")(o)
			layout.add("Busy", map[string]float64{row: busy[k].v}).add("Memory", map[string]float64{row: fbUsed[k].v})
		}
	}
	profile := by("GPU_I_PROFILE")
	all["mig/GPUs cut by MIG"] = stat(2 + 2 + 1)   // demo 6 and 7, h100x8 6 and 7, shared 3
	all["mig/Instances"] = stat(4 + 7 + 2 + 7 + 2) // as their descriptions list them
	all["mig/With an owner"] = stat(3 + 6 + 2 + 2 + 2)
	all["mig/Free"] = stat(1 + 1 + 0 + 5 + 0)
	all["mig/With an owner and idle"] = stat(idleInstances)
	all["mig/Memory in use"] = stat(memory(func(r raw) bool { return r.Get("GPU_I_ID") != "" }))
	all["mig/Instances"+table] = truth{table: layout}
	all["mig/Profiles"] = truth{table: shown{}.add("Instances", group(instances, profile, one)).
		add("With an owner", group(filteredBy(instances, taken), profile, one)).
		add("Free", group(filteredBy(instances, func(r raw) bool { return !taken(r) }), profile, one))}

	all["reliability/GPUs down"] = stat(1)
	all["reliability/GPUs with an XID"] = stat(2)
	all["reliability/GPUs to recover"] = stat(1) // gpu-b-02 GPU 1
	all["reliability/Rows to remap"] = stat(2)   // gpu-b-02 GPUs 1 and 6
	all["reliability/Links down"] = stat(2)      // gpu-b-02 GPU 0, links 4 and 5
	all["reliability/GPUs throttled"] = stat(1)
	all["reliability/What to look at"] = truth{table: shown{
		"gpu-b-02/1/the driver requests a recovery action//":                   {"Value": 1},
		"gpu-b-02/1/a row waits to be remapped//":                              {"Value": 1},
		"gpu-b-02/1/a page waits to be retired//":                              {"Value": 1},
		"gpu-b-02/1/double-bit ECC errors//":                                   {"Value": 2},
		"gpu-b-02/6/a row could not be remapped//":                             {"Value": 1},
		"gpu-b-02/0/a health watch found something/NVLINK/DCGM_FR_NVLINK_DOWN": {"Value": 20},
		"gpu-b-02/0/NVLinks not active//":                                      {"Value": 2},
		"gpu-b-02/4/fabric not ready//":                                        {"Value": 4},
		"gpu-b-02/4/fabric unhealthy//":                                        {"Value": 2},
		"gpu-b-02/3/PCIe lanes missing//":                                      {"Value": 8},
	}}
	struck := func(ago time.Duration) float64 { return float64(w.begin().Add(w.length - ago).UnixMilli()) }
	all["reliability/XIDs, latest"] = truth{table: shown{
		"gpu-a-01/3/31///48213":                  {"Seen": struck(95 * time.Minute)},
		"gpu-a-01/1/62/research/llm-pretrain-0/": {"Seen": struck(20*time.Minute + 20*time.Second)},
		"gpu-a-01/1/45/research/llm-pretrain-0/": {"Seen": struck(20*time.Minute + 20*time.Second)},
		"gpu-a-02/5/79/research/pretrain-0/":     {"Seen": struck(27*time.Minute + 10*time.Second)},
	}}
	errs := shown{}
	for title, field := range map[string]string{"Single-bit": "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "Double-bit": "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
		"Rows, correctable": "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "Rows, uncorrectable": "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"} {
		errs.add(title, group(filteredBy(w.field(end, field, 1), func(r raw) bool { return r.v > 0 }), place("gpu"), plus))
	}
	if want := map[string]float64{"Double-bit": 2, "Rows, uncorrectable": 3}; !maps.Equal(errs["gpu-b-02/1"], want) {
		w.t.Errorf("the scenario has %v, the page %v", want, errs["gpu-b-02/1"])
	}
	all["reliability/Memory errors"] = truth{table: errs}

	all["exporter/Exporters"] = stat(6)   // that of gpu-c-02 is not scraped anymore
	all["exporter/Not scraped"] = stat(1) // it
	all["exporter/Without data"] = stat(1)
	all["exporter/Reload failed"] = stat(0)
	all["exporter/Owners not known"] = stat(0)
	all["exporter/On the fallback"] = stat(0)
	away := shown{}
	for _, r := range w.served(end, "dcgm_exporter_collect_last_success_timestamp_seconds") {
		if w.host(r.Get("instance")) == "gpu-c-01" {
			away.add("Since", map[string]float64{r.Get("instance") + "/unavailable": float64(w.asked().Unix()) - r.v})
		}
	}
	all["exporter/Without data"+table] = truth{table: away}
	counted := func(name string, labels ...string) map[string]float64 {
		all := map[string]float64{}
		for _, r := range w.served(end, name) {
			all[by(labels...)(r)]++
		}
		return all
	}
	all["exporter/Not served, by field"] = truth{table: shown{}.add("Places", counted("dcgm_exporter_field_unavailable", "field", "reason"))}
	all["exporter/Attribution"] = truth{table: shown{}.add("Exporters", counted("dcgm_exporter_attribution_unavailable", "what", "reason"))}
	all["exporter/Versions"] = truth{table: shown{}.add("Exporters", keyed(counted("dcgm_exporter_source_info", "source", "driver", "library"), func(k string) string { return "v0.1.0/" + k }))}
	return all
}

// table distinguishes a table from the stat of the same title.
const table = " (table)"

// asked is the time of instant queries: between two scrapes, so that a range of minutes holds as
// many.
func (w *world) asked() time.Time { return w.end.Add(10 * time.Second) }

// begin is when the play began.
func (w *world) begin() time.Time { return w.end.Add(-w.length - time.Second) }

// increase is what a counter grew by over the play, by series.
func (w *world) increase(name string) map[string]raw {
	all := map[string]raw{}
	for _, p := range w.nodes {
		for _, h := range p.series {
			if h.metric.Get("__name__") != name {
				continue
			}
			grown, last := 0., h.samples[0].v
			for _, s := range h.samples {
				if !value.IsStaleNaN(s.v) {
					grown, last = grown+s.v-last, s.v
				}
			}
			r := raw{h.metric, grown}
			all[device(r)+"/"+by("namespace", "pod", "container", "hpc_job")(r)] = r
		}
	}
	return all
}

// usage is who uses what: every owner of every device with its part, and devices without an owner.
func (w *world) usage() shown {
	key := func(r raw) string {
		return w.host(r.Get("instance")) + "/" + by("gpu", "GPU_I_ID", "namespace", "pod", "hpc_job", "sharing")(r)
	}
	all := shown{}
	sharing := map[string]string{}
	owned := map[string]bool{}
	owner := by("instance", "gpu", "GPU_I_ID", "namespace", "pod", "hpc_job")
	for _, r := range w.served(w.end, "dcgm_pod_gpu_allocated_seconds_total") {
		if r.Get("pod") == "" { // a job
			all.add("", map[string]float64{key(r): 1})
			owned[device(r)] = true
		}
	}
	for _, r := range w.served(w.end, "dcgm_pod_gpu_info") {
		all.add("", map[string]float64{key(r): 1})
		sharing[owner(r)] = r.Get("sharing")
		owned[device(r)] = true
	}
	cut := map[string]bool{}
	up := w.served(w.end, "dcgm_exporter_entity_up")
	for _, r := range up {
		if r.Get("GPU_I_ID") != "" {
			cut[by("instance", "gpu")(r)] = true
		}
	}
	for _, r := range up {
		if r.v == 1 && r.Get("UUID") != "" && !owned[device(r)] && (r.Get("GPU_I_ID") != "" || !cut[by("instance", "gpu")(r)]) {
			all.add("", map[string]float64{key(r): 1})
		}
	}
	with := func(title string, m map[string]raw) {
		for _, r := range m {
			all.add(title, map[string]float64{key(r) + sharing[owner(r)]: r.v})
		}
	}
	with("Busy", w.mean("dcgm_pod_gpu_utilization_ratio", lastMinutes))
	with("Memory", w.mean("dcgm_pod_gpu_memory_used_bytes", scrapeEvery))
	return all
}

func (w *world) valuesAreTrue(t *testing.T) {
	w.t = t
	truths := w.truths()
	for file, d := range dashboards(t) {
		for _, p := range d.everyPanel() {
			if p.Type != "stat" && p.Type != "table" {
				continue
			}
			name := strings.TrimSuffix(file, ".json") + "/" + p.Title
			if _, two := truths[name+table]; two && p.Type == "table" {
				name += table
			}
			want, ok := truths[name]
			if !ok {
				t.Errorf("%s: a %s without a truth", name, p.Type)
				continue
			}
			delete(truths, name)
			if p.Type == "table" {
				compareTables(t, name, want, w.table(p, w.asked(), nil))
				continue
			}
			got := w.instant(w.filledFor(p.Targets[0].Expr, nil), w.asked())
			if len(got) != 1 {
				t.Errorf("%s: %d series, want one", name, len(got))
				continue
			}
			if v := got[0].value(t); !nearly(v, want.stat, want.near) {
				t.Errorf("%s shows %v; the simulator says %v", name, v, want.stat)
			}
		}
	}
	for name := range truths {
		t.Errorf("a truth for %s, which is no panel", name)
	}
}

func nearly(got, want, near float64) bool {
	return math.Abs(got-want) <= near*math.Abs(want)+1e-6*math.Max(1, math.Abs(want))
}

func compareTables(t *testing.T, name string, want truth, got shown) {
	t.Helper()
	for key, row := range want.table {
		had, ok := got[key]
		if !ok {
			t.Errorf("%s: no row %q", name, key)
			continue
		}
		for title, v := range row {
			if g, ok := had[title]; !ok || !nearly(g, v, want.near) && (title != "Idle" || math.Abs(g-v) > want.near*row["Allocated"]) {
				t.Errorf("%s: row %q: %s is %v (%v); the simulator says %v", name, key, title, g, ok, v)
			}
		}
		for title, v := range had {
			if _, ok := row[title]; !ok {
				t.Errorf("%s: row %q: %s is %v; the simulator knows none", name, key, title, v)
			}
		}
	}
	for key := range got {
		if _, ok := want.table[key]; !ok {
			t.Errorf("%s: a row %q that the simulator does not know", name, key)
		}
	}
}
