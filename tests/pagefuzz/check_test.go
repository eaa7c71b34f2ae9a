package pagefuzz

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

// A rule is a property of every page.
type rule string

const (
	parses       rule = "parses"        // the parser of Prometheus accepts the page, and no series occurs twice
	finite       rule = "finite"        // there is no NaN and no Inf
	monotonic    rule = "monotonic"     // a counter does not fall while its series exists
	conserved    rule = "conserved"     // usage of pods and unattributed usage add up to the device's usage
	bounded      rule = "bounded"       // usage of pods and unattributed usage do not exceed the device's usage
	ownersRight  rule = "owners-right"  // pods on DCGM_FI_ series hold the device exclusively
	ownersThere  rule = "owners-there"  // all owners are on the page once the kubelet lists them
	sharersRight rule = "sharers-right" // pods on dcgm_pod_ series hold the device or a share of it
	copiesRight  rule = "copies-right"  // pods on series with the label vgpu hold the device or a share of it
	unknownEnds  rule = "unknown-ends"  // usage that is unknown for a pod is neither counted nor unattributed
	punctual     rule = "punctual"      // pages are on time, whatever the kubelet does
	healthOnly   rule = "health-only"   // entities that are down have no values; a page without data has no devices
	noPanic      rule = "no-panic"
	endsInTime   rule = "ends-in-time" // the loop ends in time, even if the engine hangs
	runs         rule = "runs"         // the loop ends without an error when it is canceled
)

// sample is one series of a page, with its value.
type sample struct {
	key    key
	pod    string // "namespace/name", or "" without an owner
	copied bool   // has the label vgpu
	labels string // all labels, sorted
	value  float64
}

type page struct {
	at, published time.Time
	text          string
	samples       map[string][]sample // samples by family
}

// counts reports whether a family is a counter.
func (p *page) counts(family string) bool {
	return strings.Contains(p.text, "# TYPE "+family+" counter\n")
}

// by returns the values of a family by device. If a device has several values, they are summed.
func (p *page) by(family string) map[key]float64 {
	all := map[key]float64{}
	for _, s := range p.samples[family] {
		all[s.key] += s.value
	}
	return all
}

// Families that the rules compare: those of pods, their unattributed counterparts, and those of devices.
const (
	podUtilization  = "dcgm_pod_gpu_utilization_ratio"
	podMemory       = "dcgm_pod_gpu_memory_used_bytes"
	podActive       = "dcgm_pod_gpu_active_seconds_total"
	podAllocated    = "dcgm_pod_gpu_allocated_seconds_total"
	podEnergy       = "dcgm_pod_gpu_energy_joules_total"
	podInfo         = "dcgm_pod_gpu_info"
	restUtilization = "dcgm_gpu_unattributed_utilization_ratio"
	restMemory      = "dcgm_gpu_unattributed_memory_used_bytes"
	restActive      = "dcgm_gpu_unattributed_active_seconds_total"
	restEnergy      = "dcgm_gpu_unattributed_energy_joules_total"

	deviceUtilization = "DCGM_FI_DEV_GPU_UTIL"
	deviceEngine      = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
	deviceMemory      = "DCGM_FI_DEV_FB_USED"
	deviceEnergy      = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
	entityUp          = "dcgm_exporter_entity_up"
)

// A checker checks the pages of one world.
type checker struct {
	t        *testing.T
	w        *world
	begin    time.Time
	interval time.Duration
	virtual  bool

	pages int

	counters map[string]seen  // last value of each counter by family and labels
	totals   map[string]total // latest totals by family and labels, including those of pods that have ended
	// energy counter of a GPU when it first appeared, minus the energy counted until then
	energy0  map[string]float64
	weights  map[key]float64 // fraction of a GPU by device
	seconds  map[key]float64 // elapsed seconds since the device appeared, times the fraction of a GPU
	at       time.Time       // time of the latest page with data
	unknown  map[key]bool    // devices with a pod of unknown utilization on the previous page
	last     *page           // previous page, if it had data
	topology *gpu.Topology   // topology of the latest page
	reopened bool            // the page is the first of its session
}

type seen struct {
	value float64
	at    time.Time
}

// A total is a counter of a device, for a pod or unattributed.
type total struct {
	family string
	of     key
	value  float64
}

func newChecker(t *testing.T, w *world, interval time.Duration, virtual bool) *checker {
	return &checker{
		t: t, w: w, begin: time.Now(), interval: interval, virtual: virtual, counters: map[string]seen{},
		totals: map[string]total{}, energy0: map[string]float64{}, weights: map[key]float64{},
		seconds: map[key]float64{},
	}
}

// breaks records that a page violates a rule.
func (c *checker) breaks(r rule, p *page, format string, args ...any) {
	if c.t.Failed() {
		return // report only the first violation
	}
	c.t.Errorf("page %d after %v violates rule %q: %s", c.pages, time.Since(c.begin), r, fmt.Sprintf(format, args...))
	if p != nil && testing.Verbose() {
		if c.last != nil {
			c.t.Logf("previous page, after %v:\n%s", c.last.at.Sub(c.begin), c.last.text)
		}
		c.t.Logf("page:\n%s", p.text)
	}
}

// see checks a page. The topology is nil if the page has no data.
func (c *checker) see(text string, at time.Time, topology *gpu.Topology) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.pages++
	p := c.parse(text, at)
	if p == nil {
		return
	}
	c.counterRules(p)
	c.reopened, c.topology = topology != c.topology, topology
	if topology == nil {
		for name := range p.samples {
			if !strings.HasPrefix(name, "dcgm_exporter_") {
				c.breaks(healthOnly, p, "%s is on a page without data, want only series about the exporter", name)
			}
		}
		c.last = nil
		return
	}
	c.healthRules(p)
	c.ownerRules(p)
	c.momentRules(p)
	c.totalRules(p)
	c.unknownRules(p)
	c.paceRules(p)
	c.last = p
}

func (c *checker) parse(text string, at time.Time) *page {
	p := &page{at: at, published: time.Now(), text: text, samples: map[string][]sample{}}
	families, err := prom.Read(text)
	if err != nil {
		c.breaks(parses, p, "%v", err)
		return nil
	}
	isName := func(label string) bool { return label == "__name__" }
	for name, samples := range families {
		for _, x := range samples {
			s := sample{
				key: key{x.Labels.Get("UUID"), x.Labels.Get("GPU_I_ID")}, copied: x.Labels.Has("vgpu"),
				labels: x.Labels.DropReserved(isName).String(), value: x.Value,
			}
			if pod := x.Labels.Get("pod"); pod != "" {
				s.pod = x.Labels.Get("namespace") + "/" + pod
			}
			if math.IsNaN(s.value) || math.IsInf(s.value, 0) {
				c.breaks(finite, p, "%s is %v", x.Series, s.value)
			}
			p.samples[name] = append(p.samples[name], s)
		}
	}
	return p
}

// forgotten is how long a series must be absent before its counter may start at zero again.
const forgotten = 15 * time.Minute

// counterRules checks that the exporter's own counters do not decrease, unless a series was absent for 15 minutes.
// Counters of the driver (DCGM_FI_) may decrease.
func (c *checker) counterRules(p *page) {
	for name, samples := range p.samples {
		if !p.counts(name) || strings.HasPrefix(name, "DCGM_FI_") {
			continue
		}
		for _, s := range samples {
			before, ok := c.counters[name+s.labels]
			if ok && s.value < before.value && p.at.Sub(before.at) < forgotten {
				c.breaks(monotonic, p, "%s%s fell from %v to %v", name, s.labels, before.value, s.value)
			}
			c.counters[name+s.labels] = seen{s.value, p.at}
		}
	}
}

// healthRules checks that an entity that is down has no DCGM_FI_ series, and neither pods' nor unattributed utilization
// and memory.
func (c *checker) healthRules(p *page) {
	up := p.by(entityUp)
	for name, samples := range p.samples {
		moment := slices.Contains([]string{podUtilization, podMemory, restUtilization, restMemory}, name)
		if !moment && !strings.HasPrefix(name, "DCGM_FI_") {
			continue
		}
		for _, s := range samples {
			if value, known := up[s.key]; known && value == 0 {
				c.breaks(healthOnly, p, "%s%s has a value, but its entity is down", name, s.labels)
			}
		}
	}
}

// lost reports whether the GPU of a device is lost.
func (c *checker) lost(k key) bool {
	return slices.ContainsFunc(c.w.cards, func(x *card) bool { return x.uuid == k.uuid && x.lost })
}

// window bounds how old an owner on a page may be. The exporter uses the kubelet's last answer for two intervals, at
// least for 30 s, and longer after a restart of the kubelet.
func (c *checker) window() time.Duration {
	return max(2*c.interval, 30*time.Second) + 10*time.Second + c.interval
}

// could reports whether is returns true for any moment that a page at the given time may show.
func (c *checker) could(at time.Time, is func(*moment) bool) bool {
	for i := len(c.w.history) - 1; i >= 0; i-- {
		m := &c.w.history[i]
		if is(m) {
			return true
		}
		if at.Sub(m.at) > c.window() {
			return false // this moment was current when the window began
		}
	}
	return false
}

// ownerRules checks that each pod named on a page held the device within the window. For DCGM_FI_* series, it must have
// been the only owner of the device, or of all allocated instances of the GPU. For dcgm_pod_* series and for copies,
// which have the label vgpu, a share is enough.
func (c *checker) ownerRules(p *page) {
	for name, samples := range p.samples {
		for _, s := range samples {
			is := func(x *pod) bool { return x.String() == s.pod }
			holds := func(m *moment) bool {
				return slices.ContainsFunc(slices.Concat(m.held[s.key], m.held[key{uuid: s.key.uuid}]), is)
			}
			alone := func(m *moment) bool {
				x := m.sole[s.key]
				return x != nil && is(x) || s.key.instance == "" && m.ofInstances(s.key.uuid, is)
			}
			broken, right := sharersRight, holds
			switch {
			case s.pod == "" || strings.HasPrefix(name, "DCGM_EXP_XID"):
				continue // XIDs name the owner at the time of the event
			case s.copied:
				broken = copiesRight
			case strings.HasPrefix(name, "dcgm_pod_"):
			case strings.HasPrefix(name, "DCGM_FI_"):
				broken, right = ownersRight, alone
			default:
				continue
			}
			if !c.could(p.at, right) {
				c.breaks(broken, p, "%s%s: the pod was no such owner within the last %v", name, s.labels, c.window())
			}
		}
	}
	c.exactOwners(p)
}

// ofInstances reports whether a GPU had instances with owners, and all owners satisfy the predicate.
func (m *moment) ofInstances(uuid string, is func(*pod) bool) bool {
	found := false
	for k, pods := range m.held {
		if k.uuid != uuid || k.instance == "" {
			continue
		}
		for _, x := range pods {
			if !is(x) {
				return false
			}
			found = true
		}
	}
	return found
}

// exactOwners checks that the page lists all owners of each device, and that a device's memory series names its
// exclusive owner. It skips devices whose owners have changed within two windows. It checks nothing unless the kubelet
// has listed all pods for two windows.
func (c *checker) exactOwners(p *page) {
	if c.w.trusted.IsZero() || p.at.Sub(c.w.trusted) < 2*c.window() {
		return
	}
	infos, labels := map[key][]string{}, map[key]string{}
	for _, s := range p.samples[podInfo] {
		infos[s.key] = append(infos[s.key], s.pod)
	}
	for _, s := range p.samples[deviceMemory] {
		labels[s.key] = s.pod
	}
	distinct := func(pods []string) []string {
		slices.Sort(pods)
		return slices.Compact(pods)
	}
	for _, d := range c.w.devices() {
		if p.at.Sub(d.changed) < 2*c.window() {
			continue
		}
		var held []string
		for _, h := range d.held {
			held = append(held, h.pod.String())
		}
		held, shown := distinct(held), distinct(infos[d.key()])
		if !slices.Equal(held, shown) {
			c.breaks(ownersThere, p, "%v is held by %q, but its info series name %q", d.key(), held, shown)
		}
		label, there := labels[d.key()]
		sole, want := d.sole(), ""
		if sole != nil {
			want = sole.String()
		}
		if there && label != want && !c.virtual {
			c.breaks(ownersThere, p, "%v: exclusive owner = %q (empty if none), but its memory series names %q",
				d.key(), want, label)
		}
	}
}

// momentRules checks for utilization and memory that the shares of the pods and the unattributed remainder add up to
// the value of the device.
func (c *checker) momentRules(p *page) {
	if c.w.readAt != c.w.steps {
		return // the world has changed since the page was read
	}
	utils, engines, memory := p.by(deviceUtilization), p.by(deviceEngine), p.by(deviceMemory)
	for k, v := range engines {
		if _, ok := utils[k]; !ok { // instances, and GPUs whose utilization was not read
			utils[k] = 100 * v
		}
	}
	devices := map[key]*device{}
	for _, d := range c.w.devices() {
		devices[d.key()] = d
	}
	c.parts(p, podUtilization, restUtilization, func(k key) []float64 {
		v, there := utils[k]
		v = min(v/100, 1)
		several := len(p.list(func(x key) bool { return x == k }, podAllocated)) > 1
		if d := devices[k]; d != nil && d.instance == 0 && (several || len(d.held) > 1) {
			return d.shared(v, there)
		}
		if !there {
			return nil
		}
		return []float64{v}
	})
	c.parts(p, podMemory, restMemory, func(k key) []float64 {
		if v, ok := memory[k]; ok {
			return []float64{v * (1 << 20)}
		}
		return nil
	})
}

// shared returns the possible totals of the utilization of a GPU that several pods share. These are the current sample,
// the mean over the interval of the process readings, and the sum of the processes if it exceeds the current sample.
func (d *device) shared(moment float64, there bool) []float64 {
	values := []float64{d.reported.mean}
	if there {
		values = append(values, moment, max(moment, min(d.reported.busy, 1)))
	}
	return values
}

// parts checks that the shares and the remainder of each device add up to one of its possible totals. If the remainder
// is unknown, the shares must not exceed the largest total. A device without a total must have no shares. With virtual
// GPUs, nothing is checked, because a shared device has no value on the page.
func (c *checker) parts(p *page, pods, rest string, device func(key) []float64) {
	parts, rests := p.by(pods), p.by(rest)
	for k := range union(parts, rests) {
		values := device(k)
		left, whole := rests[k]
		sum := parts[k] + left
		equals := func(v float64) bool { return math.Abs(sum-v) <= 1e-9*math.Max(1, v) }
		switch {
		case c.virtual:
		case len(values) == 0:
			c.breaks(conserved, p, "%s plus %s of %v = %v, but the device has no value", pods, rest, k, sum)
		case sum > slices.Max(values)*(1+1e-9)+1e-9:
			c.breaks(bounded, p, "%s plus %s of %v = %v, want at most the device's %v", pods, rest, k, sum, values)
		case whole && !slices.ContainsFunc(values, equals):
			c.breaks(conserved, p, "%s plus %s of %v = %v, want the device's %v", pods, rest, k, sum, values)
		}
	}
}

func union[K comparable, V any](a, b map[K]V) map[K]V {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// totalRules checks the counted seconds and joules. They must not exceed the real ones. Between two pages with the same
// series, they must grow by the real amount.
func (c *checker) totalRules(p *page) {
	for _, name := range []string{podActive, podAllocated, podEnergy, restActive, restEnergy} {
		for _, s := range p.samples[name] {
			c.totals[name+s.labels] = total{name, s.key, s.value}
		}
	}
	c.energyRules(p)
	c.secondRules(p)
}

// counted returns the sum of the latest values of all counters seen so far, including those of pods that have ended.
// The function of selects the devices.
func (c *checker) counted(of func(key) bool, families ...string) (sum float64) {
	for _, t := range c.totals {
		if of(t.of) && slices.Contains(families, t.family) {
			sum += t.value
		}
	}
	return sum
}

// sum returns the sum of the families on a page. The function of selects the devices.
func (p *page) sum(of func(key) bool, families ...string) (sum float64) {
	for _, name := range families {
		for _, s := range p.samples[name] {
			if of(s.key) {
				sum += s.value
			}
		}
	}
	return sum
}

// energyRules compares the counted energy of a GPU and its instances with the GPU's own counter.
func (c *checker) energyRules(p *page) {
	for _, s := range p.samples[deviceEnergy] {
		uuid, now := s.key.uuid, s.value/1000
		ofGPU := func(k key) bool { return k.uuid == uuid }
		counted := c.counted(ofGPU, podEnergy, restEnergy)
		if _, ok := c.energy0[uuid]; !ok {
			c.energy0[uuid] = now - counted
		}
		if used := now - c.energy0[uuid]; counted > used+1e-3 {
			c.breaks(bounded, p, "counted energy is %v J for %s, want at most %v J", counted, uuid, used)
		}
		if c.virtual || c.lost(s.key) || len(p.list(ofGPU, restEnergy)) < c.entities(uuid) || !c.steady(p, ofGPU,
			podEnergy, restEnergy, deviceEnergy) || len(p.list(ofGPU, podEnergy)) != len(p.list(ofGPU, podAllocated)) {
			continue
		}
		grown := p.sum(ofGPU, podEnergy, restEnergy) - c.last.sum(ofGPU, podEnergy, restEnergy)
		if used := now - c.last.sum(ofGPU, deviceEnergy)/1000; math.Abs(grown-used) > 1e-3 {
			c.breaks(conserved, p, "counted energy since the previous page is %v J for %s, want %v J", grown, uuid,
				used)
		}
	}
}

// entities returns the number of entities of a GPU that have unattributed usage: itself and its instances.
func (c *checker) entities(uuid string) int {
	for _, x := range c.w.cards {
		if x.uuid == uuid && x.mode == cut {
			return 1 + len(x.devices)
		}
	}
	return 1
}

// list returns the sorted label sets of a family. The function of selects the devices.
func (p *page) list(of func(key) bool, family string) (list []string) {
	for _, s := range p.samples[family] {
		if of(s.key) {
			list = append(list, s.labels)
		}
	}
	slices.Sort(list)
	return list
}

// steady reports whether the families, podInfo and podAllocated have the same series of the selected devices as on the
// previous page. That page must be at most one and a half intervals old, and the last family must have series.
func (c *checker) steady(p *page, of func(key) bool, families ...string) bool {
	if c.last == nil || !p.at.After(c.last.at) || p.at.Sub(c.last.at) > c.interval+c.interval/2 {
		return false
	}
	for _, name := range append([]string{podInfo, podAllocated}, families...) {
		if !slices.Equal(c.last.list(of, name), p.list(of, name)) {
			return false
		}
	}
	return len(p.list(of, families[len(families)-1])) > 0
}

// secondRules checks that the seconds counted for a device are at most the elapsed time multiplied by the device's
// fraction of a GPU. The seconds of a GPU and its instances together are at most the elapsed time. Active seconds must
// match the utilization on the page if that is known for all pods.
func (c *checker) secondRules(p *page) {
	passed := p.at.Sub(c.at).Seconds()
	now := map[key]float64{}
	for _, d := range c.w.devices() {
		now[d.key()] = d.weight()
		now[key{uuid: d.gpu.uuid}] = 1 // include partitioned GPUs, which may be single devices on the next page
	}
	for k := range union(c.weights, now) { // for the time since the previous page, assume the larger weight
		if _, ok := c.weights[key{uuid: k.uuid}]; ok {
			c.seconds[k] += passed * max(c.weights[k], now[k])
		}
	}
	maps.Copy(c.weights, now)
	c.at = p.at
	for k := range c.weights {
		of := func(x key) bool { return x == k }
		within := of
		if k.instance == "" {
			within = func(x key) bool { return x.uuid == k.uuid }
		}
		for _, families := range [][]string{{podActive, restActive}, {podAllocated}} {
			if counted := c.counted(within, families...); counted > c.seconds[k]+1e-6 {
				c.breaks(bounded, p, "counted %v s in %v for %v, want at most %v s", counted, families, k,
					c.seconds[k])
			}
		}
		if !c.steady(p, of, podActive, podUtilization, restUtilization, restActive) ||
			len(p.list(of, podUtilization)) != len(p.list(of, podAllocated)) {
			continue
		}
		grown := p.sum(of, podActive, restActive) - c.last.sum(of, podActive, restActive)
		want := p.sum(of, podUtilization, restUtilization) * passed * c.weights[k]
		if math.Abs(grown-want) > 1e-6 {
			c.breaks(conserved, p, "counted active time since the previous page is %v s for %v, want %v s", grown, k,
				want)
		}
	}
}

// unknownRules checks devices on which some pod's utilization is unknown on two consecutive pages. The pod must have no
// active-seconds series, and the device no unattributed utilization.
func (c *checker) unknownRules(p *page) {
	devices, before := p.by(deviceUtilization), c.unknown
	if c.reopened {
		before = nil
	}
	c.unknown = map[key]bool{}
	for k := range devices {
		of := func(x key) bool { return x == k }
		known := p.list(of, podUtilization)
		for _, pod := range p.list(of, podAllocated) {
			if slices.Contains(known, pod) {
				continue
			}
			c.unknown[k] = true
			if !before[k] {
				continue
			}
			if slices.Contains(p.list(of, podActive), pod) || len(p.list(of, restUtilization)) > 0 {
				c.breaks(unknownEnds, p,
					"utilization of %s is unknown; want neither its active seconds nor unattributed utilization", pod)
			}
		}
	}
}

// firstAnswer is the longest time that the first page of a session waits for owners (attributeTimeout in package
// collector).
const firstAnswer = 2 * time.Second

// paceRules checks that a page follows shortly after its read began, and that reads are one interval apart. The first
// page of a session may wait for owners, and so may delay the next read.
func (c *checker) paceRules(p *page) {
	const most = 100 * time.Millisecond
	allowed := most
	if c.reopened {
		allowed = firstAnswer
	}
	if took := p.published.Sub(p.at); took > allowed {
		c.breaks(punctual, p, "page was published %v after its read started, want at most %v", took, allowed)
	}
	if c.last == nil || c.reopened {
		return
	}
	allowed = max(most, c.last.published.Sub(c.last.at)-c.interval)
	if late := p.at.Sub(c.last.at) - c.interval; late > allowed {
		c.breaks(punctual, p,
			"read started %v after the previous one, %v later than the interval; want at most %v later",
			p.at.Sub(c.last.at), late, allowed)
	}
}
