package advise

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/telemetry"
)

// Options narrow what is judged, and say what telemetry cannot.
type Options struct {
	// Nodes and Namespaces limit the GPUs to those of these nodes, and to those with a pod of these
	// namespaces; empty for all.
	Nodes, Namespaces []string
	// Trusted says that pods of different namespaces trust each other.
	Trusted bool
}

// Advice is the result. Callers own it.
type Advice struct {
	Source   string    `json:"source"`
	From     time.Time `json:"from,omitzero"`
	To       time.Time `json:"to,omitzero"`
	Covered  float64   `json:"covered"`
	Families []string  `json:"families"`
	Warnings []string  `json:"warnings,omitempty"`
	Models   []Model   `json:"models"`
}

// A Model is all GPUs of one model.
type Model struct {
	Product string `json:"product"`
	// Board is the MIG geometry's name; empty for a model without MIG, or one that is not known.
	Board string `json:"board,omitempty"`
	// GPUs is how many there are, Used how many had a pod within the window, Needed how many the
	// recommendations take, Freed the difference, 0 or more.
	GPUs   int      `json:"gpus"`
	Used   int      `json:"used"`
	Needed int      `json:"needed"`
	Freed  int      `json:"freed"`
	Nodes  []string `json:"nodes"`
	// Exposed are the devices that pods of several namespaces share now without isolation.
	Exposed []string `json:"exposed,omitempty"`
	// Recommendations are by mode; each workload is in one.
	Recommendations []Recommendation `json:"recommendations"`
}

// A Recommendation is one mode for some workloads of a model.
type Recommendation struct {
	Mode Mode `json:"mode"`
	// Change says that it differs from what the workloads have.
	Change bool `json:"change"`
	// Rules are the rows of the decision table that hold, Reasons what they say.
	Rules   []string `json:"rules"`
	Reasons []string `json:"reasons"`
	// Used are the GPUs that the workloads have, without those that workloads of other recommendations
	// have too if something is to change; Needed those that they need.
	Used   int `json:"used"`
	Needed int `json:"needed"`
	// Replicas is the number of pods for each GPU under time-slicing and MPS.
	Replicas int `json:"replicas,omitempty"`
	// Geometry is the MIG partition of each GPU, Layout where each instance goes.
	Geometry []string `json:"geometry,omitempty"`
	Layout   []string `json:"layout,omitempty"`
	// Slices is the MIG profile of each workload.
	Slices    map[string]string `json:"slices,omitempty"`
	Workloads []*Workload       `json:"workloads"`
	Risks     []Note            `json:"risks,omitempty"`
	NotChosen []Note            `json:"notChosen,omitempty"`
	// Confidence is high, medium or low, Missing what would raise it.
	Confidence string   `json:"confidence"`
	Samples    int      `json:"samples"`
	Missing    []string `json:"missing,omitempty"`

	// Nodes are those that get the configuration.
	Nodes []string `json:"nodes,omitempty"`
	// Sharing is the device plugin's config for Mode TimeSlicing and MPS, nil otherwise.
	Sharing *sharing.Wanted `json:"-"`
	// Partitions are the MIG manager's configs by node for Mode MIG.
	Partitions []Partition `json:"-"`

	requests []mig.Request
}

// A Note is a sentence with a stable name.
type Note struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

// A Partition is a MIG config and the nodes that get it.
type Partition struct {
	Named mig.Named
	Nodes []string
	// Strategy is the mig.strategy that the nodes need: single or mixed.
	Strategy string
}

// model is what is known of the GPUs of one model.
type model struct {
	Model
	gpu      mig.GPU
	board    *mig.Board
	capacity float64
	byNode   map[string]int // GPUs
	options  Options
	tried    map[string]bool // whether a partition fits the board
	taken    map[string]bool // nodes that a recommendation has
	devices  []device
}

// A device is a GPU of a node.
type device struct {
	node, uuid string
	index      int
}

// Judge makes the advice.
func Judge(u *telemetry.Usage, o Options) *Advice {
	a := &Advice{Source: u.Source, From: u.From, To: u.To, Covered: u.Covered, Families: u.Families, Warnings: u.Warnings}
	gpus := selected(u.GPUs, o)
	lists := workloads(gpus)
	models := map[string]*model{}
	seen := map[string]bool{}
	for i := range gpus {
		g := &gpus[i]
		m := models[g.Model]
		if m == nil {
			m = newModel(g.Model, o)
			models[g.Model] = m
		}
		if g.Instance == "" {
			m.capacity = max(m.capacity, g.MemoryBytes)
		}
		m.expose(g)
		if !seen[g.UUID] {
			seen[g.UUID] = true
			m.GPUs++
			m.byNode[g.Node]++
			index, _ := strconv.Atoi(g.Index) // exporters number them
			m.devices = append(m.devices, device{g.Node, g.UUID, index})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(models)) {
		m := models[name]
		if m.capacity == 0 {
			m.capacity = float64(m.gpu.MemoryMiB) * (1 << 20)
		}
		m.Nodes = slices.Sorted(maps.Keys(m.byNode))
		m.judge(lists[name], u)
		a.Models = append(a.Models, m.Model)
	}
	return a
}

func selected(all []telemetry.GPU, o Options) []telemetry.GPU {
	return slices.DeleteFunc(slices.Clone(all), func(g telemetry.GPU) bool {
		if len(o.Nodes) > 0 && !slices.Contains(o.Nodes, g.Node) {
			return true
		}
		return len(o.Namespaces) > 0 && !slices.ContainsFunc(g.Pods, func(p telemetry.Pod) bool { return slices.Contains(o.Namespaces, p.Namespace) })
	})
}

func newModel(product string, o Options) *model {
	m := &model{Model: Model{Product: product}, byNode: map[string]int{}, options: o, tried: map[string]bool{}, taken: map[string]bool{}}
	g, err := sharing.FindGPU(product)
	if err != nil {
		// a GPU that is not in the tables has no MIG that is known; its architecture is taken for a
		// recent one
		g = mig.GPU{Product: strings.ReplaceAll(product, " ", "-"), ComputeCapability: "8.0"}
	}
	m.gpu, m.board = g, g.Board
	if g.Board != nil {
		m.Board = g.Board.Name
	}
	return m
}

var noName = regexp.MustCompile(`[^a-z0-9]+`)

// short is the model's name as part of a config's: "h100-80gb-hbm3". It is cut so that the whole is
// fit for a label.
func (m *model) short() string {
	name := strings.TrimPrefix(strings.Trim(noName.ReplaceAllString(strings.ToLower(m.Product), "-"), "-"), "nvidia-")
	return strings.Trim(name[:min(len(name), 40)], "-")
}

// major is the first number of a compute capability, 0 where there is none.
func major(capability string) int {
	first, _, _ := strings.Cut(capability, ".")
	n, _ := strconv.Atoi(first)
	return n
}

// decide finds the first rule that holds.
func (m *model) decide(w *Workload, strangers bool) Rule {
	f := facts{capacity: m.capacity, mps: major(m.gpu.ComputeCapability) >= 7, strangers: strangers}
	for _, r := range Rules() {
		if !r.holds(w, f) {
			continue
		}
		if r.Mode == MIG && m.board == nil {
			if r.ID == "strangers" {
				continue // shared by namespace: the next rules say how
			}
			r.Mode = r.Otherwise
		}
		if r.Mode == MIG && m.slice(w) == nil {
			r.Mode, r.Because = None, r.Because+"; no slice of half a GPU or less holds it"
		}
		return r
	}
	return Rule{ID: "unknown", Mode: None}
}

func (m *model) judge(list []*Workload, u *telemetry.Usage) {
	rules, strangers := m.rules(list)
	pools := m.pools(list, rules, strangers)
	used, kept := map[string]bool{}, map[string]bool{}
	for _, p := range slices.SortedFunc(maps.Keys(pools), func(a, b pool) int {
		return cmp.Or(cmp.Compare(a.mode, b.mode), cmp.Compare(a.namespace, b.namespace))
	}) {
		others := map[string]bool{} // devices of the workloads of other pools
		for q, rest := range pools {
			if q != p {
				addDevices(others, rest)
			}
		}
		addDevices(used, pools[p])
		r := m.recommend(p.mode, pools[p], rules, others, u)
		if p.namespace != "" && r.Change {
			r.Risks = append(r.Risks, Note{"nodes-of-their-own", fmt.Sprintf("this GPU has no MIG: give the pods of %s nodes of their own (a taint and a node selector), or the scheduler mixes namespaces on one GPU", p.namespace)})
		}
		if shares(r.Mode) {
			m.Needed += r.Needed
		} else {
			addDevices(kept, r.Workloads)
		}
		m.Recommendations = append(m.Recommendations, r)
	}
	m.Needed += len(kept)
	m.Used = len(used)
	m.Freed = max(0, m.Used-m.Needed)
}

// rules decides for each workload, and reports whether those that would share GPUs are of several
// namespaces which do not trust each other.
func (m *model) rules(list []*Workload) (rules map[*Workload]Rule, strangers bool) {
	rules = map[*Workload]Rule{}
	namespaces := map[string]bool{}
	for _, w := range list {
		rules[w] = m.decide(w, false)
		if shares(rules[w].Mode) {
			namespaces[w.Namespace] = true
		}
	}
	strangers = len(namespaces) > 1 && !m.options.Trusted
	if strangers && m.board != nil {
		for _, w := range list {
			rules[w] = m.decide(w, true)
		}
	}
	return rules, strangers
}

// A pool is what shares GPUs in one way.
type pool struct {
	mode      Mode
	namespace string // the only one in it; empty for any
}

// pools groups workloads by what is recommended: namespaces that do not trust each other apart,
// where no MIG instance isolates them.
func (m *model) pools(list []*Workload, rules map[*Workload]Rule, strangers bool) map[pool][]*Workload {
	pools := map[pool][]*Workload{}
	for _, w := range list {
		p := pool{mode: rules[w].Mode}
		if strangers && m.board == nil && (p.mode == MPS || p.mode == TimeSlicing) {
			p.namespace = w.Namespace
		}
		pools[p] = append(pools[p], w)
	}
	return pools
}

// shares reports whether a mode puts several pods on one GPU.
func shares(mode Mode) bool { return mode == MPS || mode == TimeSlicing || mode == MIG }

// addDevices adds the devices of workloads to a set.
func addDevices(set map[string]bool, list []*Workload) {
	for _, w := range list {
		maps.Copy(set, w.devices)
	}
}

// recommend plans one mode, and gives up on it where it brings nothing.
func (m *model) recommend(mode Mode, list []*Workload, rules map[*Workload]Rule, others map[string]bool, u *telemetry.Usage) Recommendation {
	r := Recommendation{Mode: mode, Workloads: list}
	devices := map[string]bool{}
	pods := 0
	for _, w := range list {
		rule := rules[w]
		w.Rule, w.mode = rule.ID, mode
		maps.Copy(devices, w.devices)
		pods += w.Pods
		if !slices.Contains(r.Rules, rule.ID) {
			r.Rules, r.Reasons = append(r.Rules, rule.ID), append(r.Reasons, rule.Because)
		}
	}
	// What a device of others' too is freed of is not free.
	own := 0
	for uuid := range devices {
		if !others[uuid] {
			own++
		}
	}
	r.Used = own
	m.confidence(&r, u)
	switch mode {
	case TimeSlicing, MPS:
		m.share(&r, pods)
	case MIG:
		m.partition(&r)
	}
	exposed := m.exposed(list)
	if shares(mode) {
		r.Change = slices.ContainsFunc(list, func(w *Workload) bool { return w.Now != string(mode) }) || r.Needed < r.Used
		switch {
		case pods < 2:
			r.keep(len(devices), "alone", "it is the only pod that could share, so that sharing frees nothing until there is a second one")
		case r.Needed >= r.Used && r.Change && !exposed:
			r.keep(len(devices), "no-gain", fmt.Sprintf("%s would free no GPU: %d pods need %d, and have %d for themselves", mode, pods, r.Needed, r.Used))
		case r.Needed > r.Used:
			r.keep(len(devices), "no-gain", fmt.Sprintf("%s takes %s, and they have %d for themselves", mode, counted(r.Needed), r.Used))
		default:
			m.place(&r, others)
			m.risks(&r, pods)
			m.alternatives(&r, pods)
		}
	} else {
		r.Used, r.Needed = len(devices), len(devices)
	}
	return r
}

// keep turns r into a recommendation to leave things as they are, on so many GPUs.
func (r *Recommendation) keep(gpus int, rule, reason string) {
	r.Mode, r.Change, r.Used, r.Needed, r.Replicas = None, false, gpus, gpus, 0
	r.Geometry, r.Layout, r.Slices, r.Sharing, r.requests = nil, nil, nil, nil, nil
	r.Rules, r.Reasons = append(r.Rules, rule), append(r.Reasons, reason)
}

// exposed reports whether a workload shares a device with another namespace now.
func (m *model) exposed(list []*Workload) bool {
	return !m.options.Trusted && slices.ContainsFunc(list, func(w *Workload) bool {
		return slices.ContainsFunc(w.With, func(other string) bool {
			namespace, _, _ := strings.Cut(other, "/")
			return namespace != w.Namespace
		})
	})
}

// expose names a device that pods of several namespaces share now.
func (m *model) expose(g *telemetry.GPU) {
	var namespaces, pods []string
	for i := range g.Pods {
		p := &g.Pods[i]
		if !slices.ContainsFunc(g.Pods, func(q telemetry.Pod) bool { return q.Namespace != p.Namespace && p.Beside(&q) }) {
			continue
		}
		if !slices.Contains(namespaces, p.Namespace) {
			namespaces = append(namespaces, p.Namespace)
		}
		pods = append(pods, p.Namespace+"/"+p.Name)
	}
	if len(namespaces) < 2 || m.options.Trusted {
		return
	}
	if len(pods) > 4 {
		pods = append(pods[:3], fmt.Sprintf("%d more", len(pods)-3))
	}
	device := "GPU " + g.Index
	if g.Instance != "" {
		device = fmt.Sprintf("instance %s of GPU %s", g.Instance, g.Index)
	}
	m.Exposed = append(m.Exposed, fmt.Sprintf("%s of %s is shared by pods of %d namespaces (%s), without isolation of memory or errors", device, g.Node, len(namespaces), strings.Join(pods, ", ")))
}

// share finds the number of GPUs and of pods on each for time-slicing and MPS. The scheduler puts any
// of the pods on any replica, so each GPU has to hold any of them.
func (m *model) share(r *Recommendation, pods int) {
	largest := 0.0
	for _, w := range r.Workloads {
		largest = max(largest, w.Memory.Max)
	}
	most := 1000
	if largest > 0 {
		most = int(memoryFilled * m.capacity / largest)
	}
	if r.Mode == MPS {
		most = min(most, clients(m.gpu), m.threads(r.Workloads))
	}
	most = max(1, most)
	load := together(r.Workloads, r.Mode == MPS)
	n := max((pods+most-1)/most, int(math.Ceil(load.p95)), int(math.Ceil(load.mean/timeFilled)), 1)
	r.Needed, r.Replicas = n, (pods+n-1)/n
	if r.Replicas < 2 {
		return
	}
	r.Sharing = &sharing.Wanted{Name: fmt.Sprintf("%s-%s-%d", m.short(), r.Mode, r.Replicas), Sharing: sharing.Sharing{
		Strategy: string(r.Mode), Resources: []sharing.Resource{{Name: mig.WholeGPU, Replicas: r.Replicas}},
	}}
}

// clients is the most that the MPS control daemon of the device plugin takes.
func clients(g mig.GPU) int {
	if strings.HasPrefix(g.ComputeCapability, "7.0") || strings.HasPrefix(g.ComputeCapability, "7.2") {
		return 16
	}
	return sharing.MaxClients
}

// threads is the most clients for which the percentage of threads that each gets (100 over their
// number) is not below what any of the pods uses.
func (m *model) threads(list []*Workload) int {
	most := sharing.MaxClients
	for _, w := range list {
		if need := w.compute(); need > 0 {
			most = min(most, max(1, int(1/need)))
		}
	}
	return most
}

// compute is the part of the GPU's SMs that a pod needs: the 95th percentile of its SM activity, or,
// where that is not known, of the time in which it ran anything, which is at least as much.
func (w *Workload) compute() float64 {
	if w.SM.Known() {
		return w.SM.P95 * w.part
	}
	return w.Active.P95 * w.part
}

// slice is the smallest profile of at most half a GPU that holds a pod of the workload; nil without
// one. What bursts is given a slice for twice its mean: its bursts are then slower.
func (m *model) slice(w *Workload) *mig.Profile {
	need := w.compute()
	if w.bursty() || w.Shape == "idle" {
		need = min(need, 2*w.Active.Mean*w.part)
	}
	for _, p := range m.board.Profiles {
		memory := m.capacity * float64(p.Memory) / float64(m.board.MemorySlices)
		switch {
		case p.Synonym, strings.ContainsAny(p.Name, "+-"), float64(p.Memory) > float64(m.board.MemorySlices)/2:
		case memory*usable < w.Memory.Max*headroom:
		case float64(p.Compute)/float64(m.board.ComputeSlices) < need:
		case w.bandwidthBound() && float64(p.Memory)/float64(m.board.MemorySlices) < w.DRAM.P95*w.part:
		default:
			return &p
		}
	}
	return nil
}

// partition places an instance for each pod, large ones first, on as few GPUs as first fit finds.
func (m *model) partition(r *Recommendation) {
	r.Slices = map[string]string{}
	var wanted []mig.Profile
	for _, w := range r.Workloads {
		p := m.slice(w)
		if p == nil { // decide keeps those apart
			continue
		}
		r.Slices[w.id()] = p.Name
		wanted = append(wanted, slices.Repeat([]mig.Profile{*p}, w.Pods)...)
	}
	slices.SortStableFunc(wanted, func(a, b mig.Profile) int {
		return cmp.Or(cmp.Compare(b.Memory, a.Memory), cmp.Compare(b.Compute, a.Compute), cmp.Compare(a.Name, b.Name))
	})
	var gpus []mig.Request
	for _, p := range wanted {
		if !slices.ContainsFunc(gpus, func(g mig.Request) bool {
			g[p.Name]++
			if m.fits(g) {
				return true
			}
			if g[p.Name]--; g[p.Name] == 0 {
				delete(g, p.Name)
			}
			return false
		}) {
			gpus = append(gpus, mig.Request{p.Name: 1})
		}
	}
	r.Needed = len(gpus)
	for _, g := range gpus {
		layout, err := mig.Fit(*m.board, nil, g)
		if err != nil { // each was placed above
			continue
		}
		r.Geometry, r.Layout = append(r.Geometry, g.String()), append(r.Layout, layout.String())
	}
	r.requests = gpus
}

// place gives nodes to the recommendation, those without other pods first. Nodes that another
// recommendation has are used again only where there are no more.
func (m *model) place(r *Recommendation, others map[string]bool) {
	foreign := map[string]int{}
	for _, d := range m.devices {
		if others[d.uuid] {
			foreign[d.node]++
		}
	}
	var nodes []string
	for _, node := range m.Nodes {
		if !m.taken[node] {
			nodes = append(nodes, node)
		}
	}
	if len(nodes) == 0 {
		nodes = slices.Clone(m.Nodes)
		r.Risks = append(r.Risks, Note{"same-nodes", "another recommendation has these nodes too, and a node has one configuration: move the pods of one to other nodes"})
	}
	slices.SortStableFunc(nodes, func(a, b string) int { return cmp.Compare(foreign[a], foreign[b]) })
	if r.Mode == MIG {
		left := 0
		r.Partitions, left = m.assign(r.requests, nodes, others)
		for _, p := range r.Partitions {
			r.Nodes = append(r.Nodes, p.Nodes...)
		}
		if left > 0 {
			r.Risks = append(r.Risks, Note{"other-pods", fmt.Sprintf("%d of the partitions have no GPU without other pods: move these first, and advise again", left)})
		}
	} else {
		gpus := 0
		for _, node := range nodes {
			if gpus >= r.Needed {
				break
			}
			gpus += m.byNode[node]
			r.Nodes = append(r.Nodes, node)
		}
		if gpus > r.Needed && r.Change {
			r.Risks = append(r.Risks, Note{"whole-node", fmt.Sprintf("the device plugin's config is that of a node: all %d GPUs of %s are then shared, and %d would do; what is freed is replicas there", gpus, strings.Join(r.Nodes, ", "), r.Needed)})
		}
	}
	slices.Sort(r.Nodes)
	for _, node := range r.Nodes {
		m.taken[node] = true
	}
}

// fits is mig.Fit, remembered: of thousands of pods few combinations differ, and a refusal looks for
// what comes nearest.
func (m *model) fits(g mig.Request) bool {
	word := g.String()
	fits, known := m.tried[word]
	if !known {
		_, err := mig.Fit(*m.board, nil, g)
		fits = err == nil
		m.tried[word] = fits
	}
	return fits
}

// assign gives the partitions to GPUs without other pods, node by node, and makes a config for each kind
// of node. GPUs without a partition stay whole. left is how many partitions have no GPU.
func (m *model) assign(requests []mig.Request, nodes []string, others map[string]bool) (all []Partition, left int) {
	for _, node := range nodes {
		var indices, rest []int
		for _, d := range m.devices {
			switch {
			case d.node != node:
			case others[d.uuid] || len(indices) == len(requests):
				rest = append(rest, d.index)
			default:
				indices = append(indices, d.index)
			}
		}
		if len(indices) == 0 {
			continue
		}
		mine := requests[:len(indices)]
		requests = requests[len(indices):]
		p := Partition{Nodes: []string{node}, Strategy: mig.StrategySingle}
		kinds := map[string]bool{}
		same := len(rest) == 0
		for _, g := range mine {
			for name := range g {
				kinds[name] = true
			}
			same = same && g.String() == mine[0].String()
		}
		if len(kinds) > 1 || len(rest) > 0 {
			p.Strategy = mig.StrategyMixed
		}
		if same {
			p.Named.Entries = []mig.Entry{{All: true, Enabled: true, Devices: mine[0]}}
		} else {
			p.Named.Entries = entries(mine, indices, rest)
		}
		i := slices.IndexFunc(all, func(other Partition) bool { return fmt.Sprint(other.Named.Entries) == fmt.Sprint(p.Named.Entries) })
		if i >= 0 {
			all[i].Nodes = append(all[i].Nodes, node)
			continue
		}
		p.Named.Name = fmt.Sprintf("%s-%d", m.short(), len(all)+1)
		all = append(all, p)
	}
	return all, len(requests)
}

// entries give the GPUs with these indices their partitions, those that are alike together, and leave
// the rest whole.
func entries(mine []mig.Request, indices, rest []int) []mig.Entry {
	var all []mig.Entry
	for i, g := range mine {
		at := slices.IndexFunc(all, func(e mig.Entry) bool { return e.Devices.String() == g.String() })
		if at < 0 {
			at = len(all)
			all = append(all, mig.Entry{Enabled: true, Devices: g})
		}
		all[at].Indices = append(all[at].Indices, indices[i])
	}
	if len(rest) > 0 {
		all = append(all, mig.Entry{Indices: rest})
	}
	return all
}
