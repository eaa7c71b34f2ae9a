package cli

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/migchange"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/progress"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/verdict"
)

// changeTimeout is the default time for a MIG change: the MIG manager waits five minutes for the pods of
// each of five components, and the operands come back after.
const changeTimeout = 30 * time.Minute

func newMIGWatchCommand(e *env) *cobra.Command {
	var deadline time.Duration
	cmd := &cobra.Command{
		Use:   "watch [NODE]",
		Short: "Follow a MIG change until it has succeeded, or failed for a named reason",
		Long: `watch follows the MIG change of a node, or of every node that requests a MIG config, and shows what is waited
for and what would end it. It believes "success" only when the predicted devices are allocatable and the operands are
back, and it knows when "pending" will stay for good. It only reads.

Exit codes: 0 every change has succeeded, 1 one has not (or the deadline has passed), 2 bad input, 3 the cluster cannot
be reached.`,
		Example: `  gpuop mig watch gpu-1
  gpuop mig watch --wait-timeout 10m`,
		Args: cobra.MaximumNArgs(1),
	}
	c := connect(cmd)
	changeFlags(cmd, &deadline)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := positive(deadline); err != nil {
			return err
		}
		client, err := e.live(c)
		if err != nil {
			return err
		}
		f := &following{env: e, namespace: c.namespace, deadline: deadline, begin: func(s *cluster.State) ([]migchange.Target, error) { return requesting(s, args) }}
		tree, err := f.follow(cmd.Context(), client)
		if err != nil {
			return err
		}
		return e.answer(answer{Tree: tree})
	}
	return cmd
}

func changeFlags(cmd *cobra.Command, deadline *time.Duration) {
	cmd.Flags().DurationVar(deadline, "wait-timeout", changeTimeout, "how long to follow the change at most; then the exit code is 1")
}

func positive(deadline time.Duration) error {
	if deadline <= 0 {
		return fmt.Errorf("%w: --wait-timeout %s: want more than 0", errUsage, deadline)
	}
	return nil
}

// requesting are the nodes that request a MIG config, or the named one.
func requesting(s *cluster.State, names []string) ([]migchange.Target, error) {
	var out []migchange.Target
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if len(names) > 0 && n.Name != names[0] || n.Labels[migchange.ConfigLabel] == "" {
			continue
		}
		out = append(out, migchange.Target{Node: n.Name, Resources: migchange.Expected(s, n.Name)})
	}
	if len(out) > 0 || len(names) == 0 && s.Lacks(cluster.Nodes) == nil {
		return out, nil
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: %s", migchange.ErrNode, s.Lacks(cluster.Nodes).Detail)
	}
	if _, err := migchange.Prepare(s, names[0], ""); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: the node %s has no label %s: there is no change to follow", errUsage, names[0], migchange.ConfigLabel)
}

// A watched cluster yields its state whenever it changes.
type watched interface {
	Watch(ctx context.Context, kinds ...cluster.Kind) iter.Seq2[*cluster.State, error]
}

// following follows MIG changes until all have ended.
type following struct {
	*env
	namespace string
	deadline  time.Duration
	// begin names the changes to follow, when the first state is there.
	begin func(*cluster.State) ([]migchange.Target, error)

	state    *cluster.State
	machines map[string]*migchange.Machine
	rows     []verdict.Verdict // the timeline
	begun    time.Time
	away     error // the API server is
}

// news is what a watch yields.
type news struct {
	state *cluster.State
	err   error
}

// follow returns the rows of the changes. The error is that of a cluster of which nothing could be read.
func (f *following) follow(ctx context.Context, from watched) (*verdict.Tree, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	updates := make(chan news)
	go func() {
		defer close(updates)
		for s, err := range from.Watch(ctx, migchange.Kinds()...) {
			select {
			case updates <- news{s, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	w := waiting{deadline: f.deadline}
	display := progress.NewDisplay(w.options(f.env))
	defer display.Close()
	f.begun = time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			if f.state == nil {
				return nil, ctx.Err()
			}
			display.Close()
			return f.tree("the watch was interrupted"), nil
		case u, open := <-updates:
			switch {
			case !open:
				updates = nil // only the deadline is left
				continue
			case u.err != nil && f.state == nil:
				return nil, u.err
			case u.err != nil:
				f.away = u.err
			default:
				if err := f.read(u.state); err != nil {
					return nil, err
				}
			}
		case now := <-tick.C:
			if f.state == nil && now.Sub(f.begun) >= f.deadline {
				return nil, fmt.Errorf("%w: nothing was read in %s", cluster.ErrUnreachable, f.deadline)
			}
			for _, m := range f.machines {
				f.note(m, m.Tick(now))
			}
		}
		if f.state == nil {
			continue
		}
		now := time.Now()
		display.Show(now, f.begun, f.steps(now))
		if f.done() {
			display.Close()
			return f.tree(""), nil
		}
	}
}

// read takes over a state.
func (f *following) read(s *cluster.State) error {
	if f.namespace != "" {
		s.Namespace = f.namespace
	}
	first := f.state == nil
	f.state, f.away = s, nil
	if first {
		targets, err := f.begin(s)
		if err != nil {
			return err
		}
		f.machines = map[string]*migchange.Machine{}
		for _, t := range targets {
			t.Deadline = f.begun.Add(f.deadline)
			f.machines[t.Node] = migchange.Follow(t)
		}
	}
	for name, m := range f.machines {
		if s.Lacks(cluster.Nodes) == nil { // a list that is away for a moment is no node that is gone
			f.note(m, m.Step(migchange.Observe(s, name)))
		}
	}
	return nil
}

// note adds events to the timeline. The end of a change is its row, and needs none.
func (f *following) note(m *migchange.Machine, events []migchange.Event) {
	if m.Outcome() != migchange.Going {
		return
	}
	for _, event := range events {
		f.rows = append(f.rows, verdict.Verdict{ID: "mig-timeline", State: verdict.Note, Node: m.Target().Node, Subject: event.At.UTC().Format("15:04:05Z"), Reason: event.What})
	}
}

func (f *following) done() bool {
	for _, m := range f.machines {
		if m.Outcome() == migchange.Going {
			return false
		}
	}
	return true
}

// steps are the changes as they stand.
func (f *following) steps(now time.Time) []progress.Step {
	var steps []progress.Step
	if f.away != nil {
		steps = append(steps, progress.Step{Key: "server", State: verdict.Failed, What: "the API server", Now: f.away.Error(), Ends: "the server answers"})
	}
	for _, name := range slices.Sorted(maps.Keys(f.machines)) {
		m := f.machines[name]
		v, last := m.Verdict(f.state.Namespace), m.Last()
		if v.State == verdict.OK {
			continue // shown once, when it becomes so
		}
		since := last.At
		if now.Sub(since) < time.Second {
			since = time.Time{} // it has just begun
		}
		steps = append(steps, progress.Step{Key: name, State: v.State, What: name + " " + m.Target().Config, Now: cmp.Or(last.What, v.Reason), Since: since, Ends: cmp.Or(last.Until, v.Next)})
	}
	return steps
}

// tree is the answer; interrupted says why it came early.
func (f *following) tree(interrupted string) *verdict.Tree {
	t := &verdict.Tree{Title: f.state.Title, At: f.state.At, Verdicts: f.rows}
	for _, name := range slices.Sorted(maps.Keys(f.machines)) {
		t.Add(f.machines[name].Verdict(f.state.Namespace))
	}
	if len(f.machines) == 0 {
		t.Add(verdict.Verdict{ID: "mig-change", State: verdict.Note, Subject: migchange.ConfigLabel, Reason: "no node requests a MIG config"})
	}
	if interrupted != "" {
		t.Add(verdict.Verdict{ID: "wait", State: verdict.Failed, Subject: "gpuop mig watch", Reason: interrupted + "; the change goes on without it", Next: "gpuop mig watch"})
	}
	return t
}
