package sim

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

//go:embed data
var data embed.FS

// A Node is a simulated machine: its boards and how they are cut, its switches and CPUs, and the
// pods that use them. It is immutable.
type Node struct {
	spec     nodeSpec
	gpus     []nodeGPU
	switches []switchSpec
	cpus     []cpuSpec
	cards    []cardSpec
	pods     []nodePod
}

// Name returns the name under which the node is known.
func (n *Node) Name() string { return n.spec.Name }

// About says in a line what the node is.
func (n *Node) About() string { return n.spec.About }

type nodeSpec struct {
	Name     string       `yaml:"name"`
	About    string       `yaml:"about"`
	Driver   string       `yaml:"driver"`
	CUDA     int64        `yaml:"cuda"` // 12080 is 12.8
	GPUs     []gpuSpec    `yaml:"gpus"`
	Switches []switchSpec `yaml:"switches"`
	CPUs     []cpuSpec    `yaml:"cpus"`
	ConnectX []cardSpec   `yaml:"connectx"`
	Pods     []podSpec    `yaml:"pods"`
}

type gpuSpec struct {
	Line  text.Line
	Board string   `yaml:"board"`
	Count int      `yaml:"count"` // 0 means 1
	Limit float64  `yaml:"limit"` // the power limit in watts; 0 means the board's
	MIG   []string `yaml:"mig"`
	// Sharing is how pods share it, or each of its instances: time-slicing, mps or dra.
	Sharing  string `yaml:"sharing"`
	Replicas int    `yaml:"replicas"` // of time-slicing and mps
}

type switchSpec struct {
	Line  text.Line
	Count int   `yaml:"count"`
	Links int64 `yaml:"links"`
}

type cpuSpec struct {
	Line   text.Line
	Count  int     `yaml:"count"`
	Cores  int     `yaml:"cores"`
	Vendor string  `yaml:"vendor"`
	Model  string  `yaml:"model"`
	Clock  float64 `yaml:"clock"` // MHz
	Idle   float64 `yaml:"idle"`  // watts
	Limit  float64 `yaml:"limit"` // watts
}

// A cardSpec is a ConnectX network card.
type cardSpec struct {
	Line  text.Line
	Count int   `yaml:"count"`
	Width int64 `yaml:"width"` // PCIe lanes
	Speed int64 `yaml:"speed"` // GT/s of a lane
	// Active is how many lanes are in use, where not all are.
	Active int64 `yaml:"active"`
}

type podSpec struct {
	Line      text.Line
	Namespace string   `yaml:"namespace"`
	Pod       string   `yaml:"pod"`
	Container string   `yaml:"container"`
	Workload  string   `yaml:"workload"`
	Devices   []string `yaml:"devices"`
	Host      bool     `yaml:"host"` // a process of the machine, in no pod
	Job       string   `yaml:"job"`  // of an HPC scheduler, whose process of the machine it is
}

// nodeGPU is one GPU of a node.
type nodeGPU struct {
	board  *board
	limit  float64
	layout []placed // how MIG cuts it; nil where it is whole
	mig    bool

	sharing  gpu.Sharing
	replicas int
}

// nodePod is one pod of a node.
type nodePod struct {
	spec     *podSpec
	workload *workload
	devices  []deviceRef
}

// parts are the boards and workloads that nodes are made of.
type parts struct {
	Boards    []*board    `yaml:"boards"`
	Workloads []*workload `yaml:"workloads"`
}

func loadParts() (*parts, error) {
	var p parts
	for _, file := range []string{"data/boards.yaml", "data/workloads.yaml"} {
		f, err := data.Open(file)
		if err != nil {
			return nil, err
		}
		err = text.DecodeYAML(f, file, &p)
		f.Close()
		if err != nil {
			return nil, err
		}
	}
	return &p, nil
}

func (p *parts) board(name string) (*board, error) {
	names := make([]string, len(p.Boards))
	for i, b := range p.Boards {
		if b.Name == name {
			return b, nil
		}
		names[i] = b.Name
	}
	return nil, fmt.Errorf("unknown board %q, %s", name, text.Suggest(name, names))
}

func (p *parts) workload(name string) (*workload, error) {
	names := make([]string, len(p.Workloads))
	for i, w := range p.Workloads {
		if w.Name == name {
			return w, nil
		}
		names[i] = w.Name
	}
	return nil, fmt.Errorf("unknown workload %q, %s", name, text.Suggest(name, names))
}

// Nodes returns the names of the node models that come with the program.
func Nodes() []string {
	files, err := fs.Glob(data, "data/nodes/*.yaml")
	if err != nil {
		return nil
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(path.Base(file), ".yaml")
	}
	return files
}

// LoadNode returns the node model of that name.
func LoadNode(name string) (*Node, error) {
	if !slices.Contains(Nodes(), name) {
		return nil, fmt.Errorf("unknown node %q, %s", name, text.Suggest(name, Nodes()))
	}
	file := "data/nodes/" + name + ".yaml"
	f, err := data.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ParseNode(f, file)
}

// ParseNode reads a node model. file names it in errors, which are of type *text.SyntaxError.
func ParseNode(r io.Reader, file string) (*Node, error) {
	p, err := loadParts()
	if err != nil {
		return nil, err
	}
	n := &Node{}
	if err := text.DecodeYAML(r, file, &n.spec); err != nil {
		return nil, err
	}
	at := func(line text.Line, err error) error {
		return &text.SyntaxError{File: file, Line: int(line), Msg: err.Error()}
	}
	if n.spec.Name == "" {
		return nil, at(0, errors.New("the node has no name"))
	}
	for i := range n.spec.GPUs {
		if err := n.addGPUs(p, &n.spec.GPUs[i]); err != nil {
			return nil, at(n.spec.GPUs[i].Line, err)
		}
	}
	for _, spec := range n.spec.Switches {
		if err := n.addSwitches(spec); err != nil {
			return nil, at(spec.Line, err)
		}
	}
	for _, spec := range n.spec.CPUs {
		if err := n.addCPUs(spec); err != nil {
			return nil, at(spec.Line, err)
		}
	}
	for _, spec := range n.spec.ConnectX {
		if err := n.addCards(spec); err != nil {
			return nil, at(spec.Line, err)
		}
	}
	for i := range n.spec.Pods {
		if err := n.addPod(p, &n.spec.Pods[i]); err != nil {
			return nil, at(n.spec.Pods[i].Line, err)
		}
	}
	if len(n.gpus)+len(n.cpus)+len(n.switches) == 0 {
		return nil, at(0, errors.New("the node has no device"))
	}
	return n, nil
}

func (n *Node) addGPUs(p *parts, spec *gpuSpec) error {
	b, err := p.board(spec.Board)
	if err != nil {
		return err
	}
	count, err := counted(spec.Count, maxGPUs-len(n.gpus))
	if err != nil {
		return err
	}
	g := nodeGPU{board: b, limit: b.Power.Limit, mig: spec.MIG != nil}
	if spec.Limit != 0 {
		if g.limit = spec.Limit; g.limit < b.Power.Min || g.limit > b.Power.Max {
			return fmt.Errorf("power limit %g W, a %s takes %g to %g", g.limit, b.Name, b.Power.Min, b.Power.Max)
		}
	}
	if g.mig {
		if g.layout, err = b.place(spec.MIG); err != nil {
			return err
		}
	}
	if err := g.share(spec); err != nil {
		return err
	}
	n.gpus = append(n.gpus, slices.Repeat([]nodeGPU{g}, count)...)
	return nil
}

// maxReplicas is far above what any node needs.
const maxReplicas = 1000

func (g *nodeGPU) share(spec *gpuSpec) error {
	ways := []gpu.Sharing{gpu.SharingTimeSlicing, gpu.SharingMPS, gpu.SharingDRA}
	at := slices.IndexFunc(ways, func(s gpu.Sharing) bool { return s.String() == spec.Sharing })
	switch {
	case spec.Sharing == "" && spec.Replicas == 0:
		return nil
	case at < 0:
		return fmt.Errorf("sharing %q, expected time-slicing, mps or dra", spec.Sharing)
	}
	g.sharing, g.replicas = ways[at], spec.Replicas
	switch {
	case g.sharing == gpu.SharingDRA && g.replicas != 0:
		return fmt.Errorf("%d replicas, a claim that pods share has none", g.replicas)
	case g.sharing != gpu.SharingDRA && (g.replicas < 2 || g.replicas > maxReplicas):
		return fmt.Errorf("%d replicas, %s takes 2 to %d", g.replicas, g.sharing, maxReplicas)
	}
	return nil
}

func (n *Node) addSwitches(spec switchSpec) error {
	count, err := counted(spec.Count, maxSwitches-len(n.switches))
	if err != nil {
		return err
	}
	if spec.Links < 1 || spec.Links > maxLinks {
		return fmt.Errorf("%d links, a switch has 1 to %d", spec.Links, maxLinks)
	}
	n.switches = append(n.switches, slices.Repeat([]switchSpec{spec}, count)...)
	return nil
}

func (n *Node) addCPUs(spec cpuSpec) error {
	count, err := counted(spec.Count, maxCPUs-len(n.cpus))
	if err != nil {
		return err
	}
	if spec.Cores < 1 || spec.Cores > maxCores {
		return fmt.Errorf("%d cores, a CPU has 1 to %d", spec.Cores, maxCores)
	}
	if spec.Idle < 0 || spec.Limit <= spec.Idle {
		return fmt.Errorf("%g W idle and a limit of %g W, expected a limit above idle", spec.Idle, spec.Limit)
	}
	n.cpus = append(n.cpus, slices.Repeat([]cpuSpec{spec}, count)...)
	return nil
}

func (n *Node) addCards(spec cardSpec) error {
	count, err := counted(spec.Count, maxCards-len(n.cards))
	if err != nil {
		return err
	}
	if spec.Active == 0 {
		spec.Active = spec.Width
	}
	if spec.Width < 1 || spec.Width > 16 || spec.Speed < 1 || spec.Active < 1 || spec.Active > spec.Width {
		return fmt.Errorf("width %d with %d lanes active and %d GT/s, expected 1 to 16 lanes, no more active, and a speed",
			spec.Width, spec.Active, spec.Speed)
	}
	n.cards = append(n.cards, slices.Repeat([]cardSpec{spec}, count)...)
	return nil
}

// counted returns how many there shall be of a spec, 1 where it does not say.
func counted(count, room int) (int, error) {
	if count == 0 {
		count = 1
	}
	if count < 0 || count > room {
		return 0, fmt.Errorf("count is %d, there is room for %d", count, room)
	}
	return count, nil
}

// What a node can hold.
const (
	maxGPUs     = 32 // DCGM_MAX_NUM_DEVICES
	maxSwitches = 12 // DCGM_MAX_NUM_SWITCHES
	maxLinks    = 72 // of a fourth-generation NVSwitch
	maxCPUs     = 8  // DCGM_MAX_NUM_CPUS
	maxCores    = 1024
	maxCards    = 32
)

func (n *Node) addPod(p *parts, spec *podSpec) error {
	w, err := p.workload(spec.Workload)
	if err != nil {
		return err
	}
	if spec.Host && (spec.Namespace != "" || spec.Container != "") {
		return fmt.Errorf("%q is a process of the host, which has no namespace and no container", spec.Pod)
	}
	if spec.Pod == "" || !spec.Host && (spec.Namespace == "" || spec.Container == "") {
		return fmt.Errorf("a pod needs namespace, pod and container; this one has %q, %q and %q", spec.Namespace, spec.Pod, spec.Container)
	}
	if spec.Job != "" && !spec.Host {
		return fmt.Errorf("job %q is in a pod; a job is a process of the host", spec.Job)
	}
	pod := nodePod{spec: spec, workload: w}
	for _, text := range spec.Devices {
		ref, err := parseDevice(text)
		if err != nil {
			return err
		}
		if !n.has(ref) {
			return fmt.Errorf("pod %s is on device %s, which the node does not have%s", spec.Pod, text, n.instancesOf(ref))
		}
		pod.devices = append(pod.devices, ref)
		if g := &n.gpus[ref.id]; g.replicas > 0 && !spec.Host && n.podsOn(ref) >= g.replicas {
			return fmt.Errorf("pod %s is on device %s, whose %d replicas are taken", spec.Pod, text, g.replicas)
		}
	}
	n.pods = append(n.pods, pod)
	return nil
}

// podsOn returns how many pods are on a device.
func (n *Node) podsOn(ref deviceRef) int {
	count := 0
	for i := range n.pods {
		if p := &n.pods[i]; !p.spec.Host && slices.Contains(p.devices, ref) {
			count++
		}
	}
	return count
}

// exists reports whether the node has, or could after a repartition have, the device.
func (n *Node) exists(ref deviceRef) bool {
	switch {
	case ref.kind == gpu.KindNVLink && ref.of == gpu.KindNVSwitch:
		return int(ref.id) < len(n.switches) && int64(ref.sub) < n.switches[ref.id].Links
	case ref.of != gpu.KindGPU:
		return int(ref.id) < n.count(ref.kind)
	case int(ref.id) >= len(n.gpus):
		return false
	case ref.kind == gpu.KindNVLink:
		return int64(ref.sub) < n.gpus[ref.id].board.NVLink.Links
	default:
		mig := n.gpus[ref.id].board.MIG
		return mig != nil && ref.sub < instancesPerGPU
	}
}

// count returns how many devices of a kind the node has that are part of no other, and cores.
func (n *Node) count(kind gpu.Kind) int {
	switch kind {
	case gpu.KindGPU:
		return len(n.gpus)
	case gpu.KindNVSwitch:
		return len(n.switches)
	case gpu.KindCPU:
		return len(n.cpus)
	case gpu.KindCPUCore:
		cores := 0
		for _, c := range n.cpus {
			cores += c.Cores
		}
		return cores
	case gpu.KindConnectX:
		return len(n.cards)
	default:
		return 0
	}
}

// noDevice says that the node has no such device, and what it has instead.
func (n *Node) noDevice(ref deviceRef) error {
	whole := ref
	if ref.of != gpu.KindNone {
		whole = deviceRef{kind: ref.of, id: ref.id}
	}
	has := ""
	switch count := n.count(whole.kind); {
	case count == 0:
		has = fmt.Sprintf("it has no %v", whole.kind)
	case int(ref.id) >= count:
		whole.id = 0
		has = fmt.Sprintf("it has %q", whole)
		if count > 1 {
			last := whole
			last.id = uint32(count - 1)
			has += fmt.Sprintf(" to %q", last)
		}
	case ref.kind == gpu.KindNVLink && ref.of == gpu.KindGPU:
		has = fmt.Sprintf("its GPU %d is a %s with %d links", ref.id, n.gpus[ref.id].board.Name, n.gpus[ref.id].board.NVLink.Links)
	case ref.kind == gpu.KindNVLink:
		has = fmt.Sprintf("its switch %d has %d links", ref.id, n.switches[ref.id].Links)
	case n.gpus[ref.id].board.MIG == nil:
		has = fmt.Sprintf("its GPU %d is a %s, which has no MIG", ref.id, n.gpus[ref.id].board.Name)
	default:
		has = fmt.Sprintf("a %s has no instance of that number", n.gpus[ref.id].board.Name)
	}
	return fmt.Errorf("node %s has no device %q: %s", n.spec.Name, ref, has)
}

// has reports whether the node has the GPU or instance and pods can be on it: a partitioned GPU has
// room in its instances only.
func (n *Node) has(ref deviceRef) bool {
	if int(ref.id) >= len(n.gpus) {
		return false
	}
	g := &n.gpus[ref.id]
	switch ref.kind {
	case gpu.KindGPU:
		return !g.mig
	case gpu.KindGPUInstance:
		return slices.ContainsFunc(g.layout, func(p placed) bool { return g.board.MIG.instanceID(p) == ref.sub })
	default:
		return false
	}
}

// instancesOf lists the instances of the GPU that ref speaks of, for errors.
func (n *Node) instancesOf(ref deviceRef) string {
	if int(ref.id) >= len(n.gpus) || !n.gpus[ref.id].mig {
		return ""
	}
	g := &n.gpus[ref.id]
	var b strings.Builder
	b.WriteString("; GPU " + strconv.FormatUint(uint64(ref.id), 10) + " has")
	for _, p := range g.layout {
		fmt.Fprintf(&b, " %d/%d (%s)", ref.id, g.board.MIG.instanceID(p), p.profile.Name)
	}
	return b.String()
}
