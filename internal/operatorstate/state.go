package operatorstate

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/operand"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gauge"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

const (
	// fileEvery is how often the validator's files are read, nodeEvery how often the node is
	// requested: one get of one object, which the API server answers from its cache.
	fileEvery = 15 * time.Second
	nodeEvery = time.Minute
	// nodeLasts is how long an answer is good: a node that cannot be read says nothing of now.
	nodeLasts = 3 * time.Minute
)

// Options say what a State reads, and where its series go.
type Options struct {
	// Validations is the folder of the validator's files.
	Validations fs.FS
	// Node returns the node's object; nil where there is no API server or no name of the node.
	Node func(context.Context) (node.Node, error)
	// Registerer gets the series.
	Registerer prometheus.Registerer
	Log        *slog.Logger
}

// A State keeps the series up to date while Run runs.
type State struct {
	opt Options

	allocatable, expected, replicas, ready, mig *gauge.State

	node     *node.Node // the latest answer; nil where none is good
	nodeTime time.Time
	said     map[string]string // by subject, what the log has of it

	news     chan struct{} // another topology
	mu       sync.Mutex
	topology *gpu.Topology
	until    time.Time // how long the topology is good; zero is for good
}

// New returns a State and registers its series, of which there are none before Run.
func New(opt Options) *State {
	s := &State{
		opt: opt, said: map[string]string{}, news: make(chan struct{}, 1),
		allocatable: gauge.NewState("gpu_operator_resource_allocatable",
			"How many devices of an extended resource the node offers to pods, as its status says.", "resource"),
		expected: gauge.NewState("gpu_operator_resource_expected",
			"How many devices of an extended resource the node should offer to pods: predicted from the GPUs and MIG devices that the driver has, and the MIG strategy and the sharing that the node's labels say.", "resource"),
		replicas: gauge.NewState("gpu_operator_resource_replicas",
			"Among how many pods a device of an extended resource is shared, as the node's labels say.", "resource", "strategy"),
		ready: gauge.NewState("gpu_operator_operand_ready",
			"Whether the GPU Operator's validator has passed an operand on this node: 1 if the operand's validation file is there, 0 if the operand is enabled and its file is missing.", "operand"),
		mig: gauge.NewState("gpu_operator_mig_config_state",
			"The MIG config that the node is labeled with, and the state in which the MIG manager says it is; always 1.", "config", "state"),
	}
	opt.Registerer.MustRegister(s.allocatable, s.expected, s.replicas, s.ready, s.mig)
	return s
}

// Hardware gives the State what the driver has, or nil where that is not known. It is good for the
// time, for good if that is zero. It never waits for what Run does.
func (s *State) Hardware(t *gpu.Topology, validFor time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t != s.topology {
		select {
		case s.news <- struct{}{}:
		default: // Run has not seen the one before
		}
	}
	s.topology, s.until = t, time.Time{}
	if validFor > 0 {
		s.until = time.Now().Add(validFor)
	}
}

func (s *State) hardware() *gpu.Topology {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.until.IsZero() && time.Now().After(s.until) {
		return nil
	}
	return s.topology
}

// Run keeps the series up to date until ctx is done.
func (s *State) Run(ctx context.Context) {
	defer func() {
		for _, g := range []*gauge.State{s.allocatable, s.expected, s.replicas, s.ready, s.mig} {
			g.Set()
		}
	}()
	tick := time.NewTicker(fileEvery)
	defer tick.Stop()
	for {
		s.readNode(ctx)
		s.readFiles()
		s.judge()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.news:
		}
	}
}

// validatorLabel is the label by which the GPU Operator says that its validator belongs on a node
// (gpu-operator controllers/state_manager.go).
const validatorLabel = "nvidia.com/gpu.deploy.operator-validator"

// readFiles says which operands are ready. A folder that is not there says nothing: the validator
// has not run, or this is no node of the operator's.
func (s *State) readFiles() {
	reading, err := operand.Read(s.opt.Validations)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	s.note("validation files", err)
	validated := reading.DriverContainer || s.node != nil && s.node.Labels[validatorLabel] == "true"
	var series []gauge.Series
	for _, o := range reading.Operands {
		switch o.State {
		case operand.Ready:
			validated = true
			series = append(series, gauge.Series{Value: 1, Labels: []string{o.Name}})
		case operand.NotReady:
			series = append(series, gauge.Series{Value: 0, Labels: []string{o.Name}})
		}
	}
	if !validated { // an empty folder may be that of the mount
		series = nil
	}
	s.ready.Set(series...)
}

// readNode requests the node when it is due.
func (s *State) readNode(ctx context.Context) {
	if s.opt.Node == nil {
		return
	}
	now := time.Now()
	if s.node != nil && now.Sub(s.nodeTime) < nodeEvery {
		return
	}
	n, err := s.opt.Node(ctx)
	switch {
	case err == nil:
		s.node, s.nodeTime = &n, now
	case s.node != nil && now.Sub(s.nodeTime) >= nodeLasts:
		s.node = nil
	}
}

// judge makes the series of the node's object.
func (s *State) judge() {
	if s.node == nil {
		for _, g := range []*gauge.State{s.allocatable, s.expected, s.replicas, s.mig} {
			g.Set()
		}
		return
	}
	allocatable := s.node.AllocatableGPUs()
	s.allocatable.Set(counts(allocatable)...)

	expected, err := s.expect()
	s.note("expected resources", err)
	if err == nil {
		for name := range allocatable { // what is offered and was not expected is expected not to be
			if _, known := expected[name]; !known {
				expected[name] = 0
			}
		}
	}
	s.expected.Set(counts(expected)...)

	var shared []gauge.Series
	if replication, err := s.node.Replication(); err == nil {
		for _, name := range slices.Sorted(maps.Keys(replication.Of)) {
			r := replication.Of[name]
			if r.Rename != "" {
				name = r.Rename
			}
			shared = append(shared, gauge.Series{Value: float64(r.Factor), Labels: []string{name, replication.Strategy}})
		}
	}
	s.replicas.Set(shared...)

	s.mig.Set()
	if state := s.node.Labels["nvidia.com/mig.config.state"]; state != "" {
		s.mig.Set(gauge.Series{Value: 1, Labels: []string{s.node.Labels["nvidia.com/mig.config"], state}})
	}
}

// errHardware says that it is not known which GPUs there are: the driver is released or gone.
var errHardware = errors.New("the GPUs are not known while the driver is not open")

func (s *State) expect() (map[string]int, error) {
	t := s.hardware()
	if t == nil {
		return nil, errHardware
	}
	gpus, err := gpusOf(t)
	if err != nil {
		return nil, err
	}
	return s.node.Expect(gpus)
}

// errDivided says that a GPU instance is divided further, of which the device plugin makes no
// resource.
var errDivided = errors.New("a GPU instance has several compute instances, which the device plugin does not serve")

// errPartial says that an instance has no profile by which to know its resource.
var errPartial = errors.New("a GPU instance has no profile, so that its resource is not known")

// gpusOf returns the GPUs of a topology that has all of the node's as predictions need them. A GPU
// with instances is in MIG mode; one in MIG mode without any counts as whole.
func gpusOf(t *gpu.Topology) ([]mig.GPU, error) {
	if len(t.ComputeInstances) > 0 {
		return nil, errDivided
	}
	var all []mig.GPU
	rows := map[string]int{} // by UUID: a GPU that is partitioned may have no row of its own
	for i := range t.Devices {
		d := &t.Devices[i]
		if d.Entity.Kind != gpu.KindGPU && d.Entity.Kind != gpu.KindGPUInstance {
			continue
		}
		row, known := rows[d.UUID]
		if !known {
			row = len(all)
			rows[d.UUID] = row
			all = append(all, mig.GPU{Product: strings.ReplaceAll(d.Model, " ", "-")})
		}
		if d.Entity.Kind == gpu.KindGPU {
			continue
		}
		profile, ok := mig.CanonicalProfile(d.Profile)
		if !ok {
			return nil, errPartial
		}
		g := &all[row]
		if g.Instances == nil {
			g.Enabled, g.Instances = true, mig.Request{}
		}
		g.Instances[profile]++
	}
	return all, nil
}

// note logs an error when it changes.
func (s *State) note(what string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == s.said[what] {
		return
	}
	s.said[what] = text
	switch {
	case err == nil:
		s.opt.Log.Info("The GPU Operator's state is known again", "what", what)
	case errors.Is(err, errHardware):
		s.opt.Log.Debug("A part of the GPU Operator's state is not known", "what", what, "error", err)
	default:
		s.opt.Log.Warn("A part of the GPU Operator's state is not known, and its series are absent", "what", what, "error", err)
	}
}

func counts(of map[string]int) []gauge.Series {
	var series []gauge.Series
	for _, name := range slices.Sorted(maps.Keys(of)) {
		series = append(series, gauge.Series{Value: float64(of[name]), Labels: []string{name}})
	}
	return series
}
