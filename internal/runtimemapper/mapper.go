// Package runtimemapper finds the containers that use each GPU on hosts without Kubernetes. Its Mapper is an Attributor
// that queries the socket of Docker or Podman.
//
// It lists the running containers and inspects each once for its devices: device requests, CDI names, device nodes and
// NVIDIA_VISIBLE_DEVICES. It maps them to the GPUs and GPU instances of the topology. All requests are GETs. Every
// answer has a size limit and the caller's deadline.
//
// It never guesses. Names that it cannot resolve are counted, and a container that cannot compute on a GPU does not own
// it.
package runtimemapper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/gpu-telemetry/dcgm-exporter/internal/attribution"
	"github.com/gpu-telemetry/dcgm-exporter/internal/deviceid"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gauge"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Options configure a Mapper.
type Options struct {
	// Socket is the path of the runtime's socket, with or without unix://. "" means the first of DefaultSockets that
	// exists.
	Socket string
	// LabelAllowed lists the keys of container labels to add; none by default.
	LabelAllowed []*regexp.Regexp
	// Metrics are shared by all Mappers of the process. Required.
	Metrics *Metrics
	// Log receives a line when a container can no longer be inspected. Nil discards it.
	Log *slog.Logger
}

// Metrics holds the package's metrics. A process registers them once, and its Mappers share them. Only one Mapper is
// active at a time.
type Metrics struct {
	failed           *prometheus.CounterVec
	unmatched        *gauge.State
	dropped, omitted prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	auto := promauto.With(reg)
	m := &Metrics{
		failed: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "dcgm_exporter_container_inspect_failures_total",
			Help: "Failed inspections of containers, by reason. Meanwhile, no GPU is attributed to the container.",
		}, []string{"reason"}),
		unmatched: gauge.NewState("dcgm_exporter_container_devices_unmatched",
			"Devices of running containers that match no GPU or GPU instance of this node, by form of the name.",
			"form"),
		dropped: auto.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_container_labels_dropped",
			Help: "Allowed container labels currently dropped because they are too long or too many.",
		}),
		omitted: auto.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_containers_dropped",
			Help: "Containers currently dropped because their GPU has too many.",
		}),
	}
	reg.MustRegister(m.unmatched)
	return m
}

// The limits of one container.
const (
	maxLabels     = 32
	maxLabelValue = 512 // bytes
	maxName       = 253 // bytes
)

// Mapper is an Attributor that queries the socket of a container runtime. Its methods are safe for concurrent use.
type Mapper struct {
	sockets []string
	allowed []*regexp.Regexp
	log     *slog.Logger
	self    string // the id of the container that this process runs in
	metrics *Metrics

	mu            sync.Mutex               // guards the fields below
	grants        map[string][]deviceid.ID // running containers by container id
	uninspectable map[string]bool          // containers that cannot be inspected, by id
	noAPIVersion  bool                     // the runtime did not report its version
	topology      *gpu.Topology
	resolver      *deviceid.Resolver // resolves device ids to rows of topology
	owners        *gpu.Owners        // nil before the first answer
}

// New returns a Mapper without connecting.
func New(opt Options) *Mapper {
	mountinfo, _ := os.ReadFile("/proc/self/mountinfo") // without it, the process is in no known container
	m := &Mapper{
		sockets: DefaultSockets(), allowed: opt.LabelAllowed, self: containerOf(mountinfo), metrics: opt.Metrics,
		log:    cmp.Or(opt.Log, slog.New(slog.DiscardHandler)),
		grants: map[string][]deviceid.ID{}, uninspectable: map[string]bool{},
	}
	if opt.Socket != "" {
		m.sockets = []string{strings.TrimPrefix(opt.Socket, "unix://")}
	}
	return m
}

// Name returns "containers".
func (m *Mapper) Name() string { return "containers" }

// Attribute returns the running containers on the GPUs and GPU instances of t, with the label container and the allowed
// labels of each. The error wraps gpu.ErrUnavailable if no runtime listens, gpu.ErrPermission if the socket may not be
// used, or gpu.ErrTimeout. Containers that were inspected before the error are kept.
func (m *Mapper) Attribute(ctx context.Context, t *gpu.Topology) (*gpu.Owners, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t != m.topology {
		// Inspect the containers again: a CDI name may refer to other nodes now.
		m.topology, m.resolver, m.owners = t, deviceid.NewResolver(t), &gpu.Owners{}
		clear(m.grants)
	}
	conn, err := connect(ctx, m.sockets)
	if err != nil {
		return nil, err
	}
	if conn.versionErr != nil && !m.noAPIVersion {
		m.log.Warn("Container runtime does not report its API version; sending requests without one",
			"error", conn.versionErr)
	}
	m.noAPIVersion = conn.versionErr != nil
	var running []listed
	if _, err := conn.get(ctx, "/containers/json", maxList, &running); err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	running = ordered(running)
	if err := m.inspect(ctx, conn, running); err != nil {
		return nil, fmt.Errorf("inspect containers: %w", err)
	}
	uses := m.uses(running)
	labels := attribution.ExclusiveLabels(t, uses, (*gpu.Owner).AllLabels)
	m.owners = attribution.ReuseIfEqual(m.owners, &gpu.Owners{Labels: labels, Uses: uses})
	return m.owners, nil
}

// ordered returns the containers of a list by name, without duplicates.
func ordered(list []listed) []listed {
	slices.SortStableFunc(list, func(a, b listed) int { return cmp.Compare(a.ID, b.ID) })
	list = slices.CompactFunc(list, func(a, b listed) bool { return a.ID == b.ID })
	slices.SortStableFunc(list, func(a, b listed) int { return cmp.Compare(nameOf(&a), nameOf(&b)) })
	return list
}

// inspect inspects new containers and forgets those that ended.
func (m *Mapper) inspect(ctx context.Context, conn *connection, running []listed) error {
	there := make(map[string]bool, len(running))
	for i := range running {
		id := running[i].ID
		there[id] = true
		if _, known := m.grants[id]; known || id == m.self || !isID(id) {
			continue
		}
		var one inspected
		_, err := conn.get(ctx, "/containers/"+id+"/json", maxInspect, &one)
		switch {
		case ctx.Err() != nil:
			return gpu.WrapFSError(ctx.Err())
		case errors.Is(err, errGone):
			continue // it ended since it was listed
		case err != nil:
			m.metrics.failed.WithLabelValues(gpu.Reason(err)).Inc()
			if !m.uninspectable[id] {
				m.log.Warn("Container cannot be inspected; no GPU is attributed to it",
					"container", nameOf(&running[i]), "error", err)
				m.uninspectable[id] = true
			}
			continue
		}
		m.grants[id] = grant(&one)
		delete(m.uninspectable, id)
	}
	maps.DeleteFunc(m.grants, func(id string, _ []deviceid.ID) bool { return !there[id] })
	maps.DeleteFunc(m.uninspectable, func(id string, _ bool) bool { return !there[id] })
	return nil
}

// uses returns the owners of each row, in the order of the containers' names.
func (m *Mapper) uses(running []listed) []gpu.Use {
	uses := make([]gpu.Use, len(m.topology.Devices))
	unmatched := map[deviceid.Form]int{}
	dropped, omitted := 0, 0
	for i := range running {
		c := &running[i]
		ids := m.grants[c.ID]
		if len(ids) == 0 {
			continue
		}
		labels, left := m.labelsOf(c)
		owner := gpu.Owner{Container: nameOf(c), Labels: labels}
		dropped += left
		added := map[int]bool{}
		for _, id := range ids {
			rows := m.resolver.Rows(id)
			if len(rows) == 0 {
				unmatched[id.Form]++
			}
			for _, row := range rows {
				if !added[row] {
					added[row] = true
					uses[row].Owners = append(uses[row].Owners, owner)
				}
			}
		}
	}
	for row := range uses {
		uses[row].Incomplete = len(m.uninspectable) > 0 && len(uses[row].Owners) == 0
		omitted += attribution.LimitOwners(&uses[row])
	}
	var series []gauge.Series
	for form, n := range unmatched {
		series = append(series, gauge.Series{Value: float64(n), Labels: []string{string(form)}})
	}
	m.metrics.unmatched.Set(series...)
	m.metrics.dropped.Set(float64(dropped))
	m.metrics.omitted.Set(float64(omitted))
	return uses
}

// labelsOf returns the allowed labels of a container, sorted by key, and how many were dropped because of the limit.
func (m *Mapper) labelsOf(c *listed) (allowed []gpu.Label, dropped int) {
	for key, value := range c.Labels {
		if value == "" || !slices.ContainsFunc(m.allowed, func(r *regexp.Regexp) bool { return r.MatchString(key) }) {
			continue
		}
		if len(value) > maxLabelValue {
			dropped++
			continue
		}
		allowed = append(allowed, gpu.Label{Name: key, Value: value})
	}
	slices.SortFunc(allowed, func(a, b gpu.Label) int { return strings.Compare(a.Name, b.Name) })
	if over := len(allowed) - maxLabels; over > 0 {
		allowed, dropped = allowed[:maxLabels], dropped+over
	}
	return allowed, dropped
}

// nameOf returns the name of a container, or its short id if the name is missing or too long. Docker prefixes names
// with a slash; names with a second slash are aliases from links.
func nameOf(c *listed) string {
	for _, name := range c.Names {
		if name = strings.TrimPrefix(name, "/"); name != "" && len(name) <= maxName && !strings.Contains(name, "/") {
			return name
		}
	}
	return c.ID[:min(len(c.ID), 12)]
}

// isID reports whether id is a container id, and so can safely be part of a path.
func isID(id string) bool { return id != "" && strings.Trim(id, "0123456789abcdef") == "" }
