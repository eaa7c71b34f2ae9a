package runtimemapper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Options configure a Mapper.
type Options struct {
	// Socket is the path of the runtime's socket, with or without unix://; ""
	// means the first of DefaultSockets that is there.
	Socket string
	// LabelAllowed are the labels of containers to add, by key; none by default.
	LabelAllowed []*regexp.Regexp
	// Metrics are the Mapper's own series, which one that takes its place goes
	// on with. Required.
	Metrics *Metrics
	// Log gets a line when a container begins to withhold what it was given.
	// Nil discards.
	Log *slog.Logger
}

// The budgets of one container.
const (
	maxLabels     = 32
	maxLabelValue = 512 // bytes
)

// A Mapper is an Attributor over the socket of a container runtime. Its
// methods may be called from any goroutine; one look is under way at a time.
type Mapper struct {
	client  client
	allowed []*regexp.Regexp
	log     *slog.Logger
	self    string // the id of the container that this process runs in
	metrics *Metrics

	turn chan struct{} // holds a token while nobody looks

	// Owned by whoever has the token.
	grants     map[string][]string // what running containers were given, by id
	silent     map[string]bool     // containers that cannot be inspected, by id
	mute       bool                // the runtime did not say its version
	topology   *gpu.Topology
	owners     *gpu.Owners // for topology; nil before the first
	generation uint64
}

// New returns a Mapper. It connects to nothing yet.
func New(opt Options) *Mapper {
	m := &Mapper{
		client: client{sockets: DefaultSockets()}, allowed: opt.LabelAllowed, log: opt.Log, self: self(), metrics: opt.Metrics,
		turn: make(chan struct{}, 1), grants: map[string][]string{}, silent: map[string]bool{},
	}
	if opt.Socket != "" {
		m.client.sockets = []string{strings.TrimPrefix(opt.Socket, "unix://")}
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	m.turn <- struct{}{}
	return m
}

// Name returns "containers".
func (m *Mapper) Name() string { return "containers" }

// Attribute returns the running containers on the GPUs and GPU instances of t,
// by the label container and those of their own labels that are allowed. The
// error wraps gpu.ErrUnavailable where no runtime listens, gpu.ErrPermission
// where its socket may not be used, and gpu.ErrTimeout; what was learnt of
// single containers until then is kept.
func (m *Mapper) Attribute(ctx context.Context, t *gpu.Topology) (*gpu.Owners, error) {
	select {
	case <-m.turn:
		defer func() { m.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if t != m.topology {
		// What a container was given is asked anew: the nodes behind a CDI name
		// may be others than before.
		m.topology, m.owners = t, nil
		clear(m.grants)
	}
	conn, err := m.client.connect(ctx)
	if err != nil {
		return nil, err
	}
	if conn.mute != nil && !m.mute {
		m.log.Warn("The container runtime does not say which version it speaks; it is asked without one", "error", conn.mute)
	}
	m.mute = conn.mute != nil
	running, err := conn.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	if err := m.inspect(ctx, conn, running); err != nil {
		return nil, fmt.Errorf("inspect containers: %w", err)
	}
	uses := m.uses(t, running)
	if m.owners != nil && reflect.DeepEqual(m.owners.Uses, uses) {
		return m.owners, nil
	}
	m.generation++
	m.owners = &gpu.Owners{Generation: m.generation, Labels: gpu.ExclusiveLabels(t, uses, labels), Uses: uses}
	return m.owners, nil
}

// inspect learns what the containers were given that are new, and forgets
// those that are gone.
func (m *Mapper) inspect(ctx context.Context, conn *connection, running []listed) error {
	there := make(map[string]bool, len(running))
	for i := range running {
		id := running[i].ID
		there[id] = true
		if _, known := m.grants[id]; known || id == m.self || !isID(id) {
			continue
		}
		one, err := conn.inspect(ctx, id)
		switch {
		case ctx.Err() != nil:
			return typed(ctx.Err())
		case errors.Is(err, errGone):
			continue // it ended since it was listed
		case err != nil:
			m.metrics.failed.WithLabelValues(gpu.Reason(err)).Inc()
			if !m.silent[id] {
				m.log.Warn("Container cannot be inspected; it owns no GPU", "container", nameOf(&running[i]), "error", err)
				m.silent[id] = true
			}
			continue
		}
		m.grants[id] = grant(&one)
		delete(m.silent, id)
	}
	for id := range m.grants {
		if !there[id] {
			delete(m.grants, id)
		}
	}
	for id := range m.silent {
		if !there[id] {
			delete(m.silent, id)
		}
	}
	return nil
}

// uses returns who holds which rows, in the order of the containers' names.
func (m *Mapper) uses(t *gpu.Topology, running []listed) []gpu.Use {
	uses := make([]gpu.Use, len(t.Devices))
	unmatched := map[form]int{}
	dropped := 0
	for i := range running {
		c := &running[i]
		words := m.grants[c.ID]
		if len(words) == 0 {
			continue
		}
		owner := gpu.Owner{Container: nameOf(c)}
		var left int
		owner.Labels, left = m.labelsOf(c)
		dropped += left
		held := map[int]bool{}
		for _, word := range words {
			rows, f := resolve(t, word)
			if len(rows) == 0 {
				unmatched[f]++
			}
			for _, row := range rows {
				if held[row] { // this container's owner is the last
					last := &uses[row].Owners[len(uses[row].Owners)-1]
					last.Part = bothParts(last.Part, heldOf(t, row, word))
					continue
				}
				held[row] = true
				owner.Part = heldOf(t, row, word)
				uses[row].Owners = append(uses[row].Owners, owner)
			}
		}
	}
	for row := range uses {
		slices.SortStableFunc(uses[row].Owners, func(a, b gpu.Owner) int { return strings.Compare(a.Container, b.Container) })
	}
	for _, f := range forms() {
		m.metrics.unmatched.WithLabelValues(string(f)).Set(float64(unmatched[f]))
	}
	m.metrics.dropped.Set(float64(dropped))
	return uses
}

// heldOf returns which part of a divided GPU instance a word names, 0 where it
// names something else.
func heldOf(t *gpu.Topology, row int, word string) float64 {
	if i := partOf(t, word); i >= 0 && t.Divided[i].Instance == row {
		return t.Part(i)
	}
	return 0
}

// bothParts returns which part two words name together, 0 where one of them
// names the whole.
func bothParts(a, b float64) float64 {
	if a == 0 || b == 0 {
		return 0
	}
	return min(a+b, 1)
}

// labelsOf returns the labels of a container that are allowed, sorted by key,
// and how many of them its budget left out.
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

// labels returns the labels of a series whose device o has to itself.
func labels(o *gpu.Owner) []gpu.Label {
	return append([]gpu.Label{{Name: "container", Value: o.Container}}, o.Labels...)
}

// nameOf returns the name of a container, and the short form of its id where
// it has none. Docker puts a slash before it; names with another slash are
// aliases that links give.
func nameOf(c *listed) string {
	for _, name := range c.Names {
		if name = strings.TrimPrefix(name, "/"); name != "" && !strings.Contains(name, "/") {
			return name
		}
	}
	return c.ID[:min(len(c.ID), 12)]
}

// isID reports whether id is one, and may thus be part of a path.
func isID(id string) bool { return id != "" && strings.Trim(id, "0123456789abcdef") == "" }
