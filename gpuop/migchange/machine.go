package migchange

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/verdict"
)

// The times of a change.
const (
	// podWait is how long the MIG manager waits for the pods of one component to go away, from
	// mig-parted pkg/mig/reconfigure/reconfigure.go, with half a minute beside it for what is seen late.
	podWait = 5*time.Minute + 30*time.Second
	// reaction is how long an old state may stand after the label was written: the manager checks the
	// config against the GPUs before it writes pending.
	reaction = time.Minute
	// settle is how long the device plugin and the validator may need after success.
	settle = 5 * time.Minute
)

const (
	sourceManager = "mig-parted pkg/mig/reconfigure/reconfigure.go"
	sourceStuck   = "https://github.com/NVIDIA/mig-parted/issues/485"
	sourceLie     = "https://github.com/NVIDIA/gpu-operator/issues/603"
)

// An Outcome is how a change ended, as the ID of its verdict; empty while it goes on.
type Outcome string

// The outcomes.
const (
	Going Outcome = ""
	// Applied is the only success: the state says so, the predicted devices are allocatable, and the
	// operands are back.
	Applied Outcome = "mig-applied"
	// Failed is what the MIG manager says itself.
	Failed Outcome = "mig-failed"
	// Stuck is pending for good: the manager has stopped waiting for a pod.
	Stuck Outcome = "mig-stuck"
	// NoDevices is success without the predicted devices; Away is success with operands that stay away.
	NoDevices Outcome = "mig-no-devices"
	Away      Outcome = "mig-operands-away"
	// Ignored is a label that nothing reacted to by the deadline.
	Ignored Outcome = "mig-ignored"
	// Late is pending at the deadline, and Rebooting a node that had not come back by then.
	Late      Outcome = "mig-late"
	Rebooting Outcome = "mig-rebooting"
	// Replaced is another config requested meanwhile; Gone a node that was deleted.
	Replaced Outcome = "mig-replaced"
	Gone     Outcome = "mig-node-gone"
	// Unseen is a deadline without any observation.
	Unseen Outcome = "mig-unseen"
)

// A Target is what a change is to end in.
type Target struct {
	Node, Config string
	// Resources are the allocatable devices by resource; nil where they cannot be predicted: then any
	// device will do. A config that leaves no device wants none.
	Resources map[string]int
	// Begun is when the label was written; zero for a change that is followed without having been
	// begun, whose state is taken as it is.
	Begun time.Time
	// Deadline is when the change has ended, one way or another.
	Deadline time.Time
}

// An Event is one change that was seen.
type Event struct {
	At time.Time
	// What is what is happening, and Until what would end it.
	What, Until string
}

// A Machine follows one change. It is not safe for concurrent use. Observations and ticks come in the
// order of their times; one that is older counts as new as the last.
type Machine struct {
	target  Target
	outcome Outcome
	reason  string
	now     time.Time
	last    *Observation
	// seen says that the manager has reacted since the label was written.
	seen bool
	// before are the devices of the first observation, and wanted the components to come back.
	before map[string]int
	wanted []string
	// blocking is the pod that the manager waits for, since when.
	blocking      string
	blockingSince time.Time
	successSince  time.Time
	event         Event
}

// Follow begins to follow a change to a target.
func Follow(t Target) *Machine { return &Machine{target: t} }

// Target is what the change is to end in; where none was named, the config that was seen first.
func (m *Machine) Target() Target { return m.target }

// Outcome returns how the change ended, Going while it goes on.
func (m *Machine) Outcome() Outcome { return m.outcome }

// Step takes an observation, and returns what has changed since the one before.
func (m *Machine) Step(o Observation) []Event {
	if m.outcome != Going {
		return nil
	}
	if o.At.Before(m.now) {
		o.At = m.now
	}
	m.now = o.At
	if m.last == nil {
		m.before = o.Resources
		for _, operand := range operands {
			// what an administrator keeps away stays away, and what is not installed does not come
			if value, found := o.Deploy[operand[1]]; found && value != "false" && value != "" && !slices.Contains(o.Off, operand[1]) {
				m.wanted = append(m.wanted, operand[1])
			}
		}
		if m.target.Config == "" {
			m.target.Config = o.Config
		}
	}
	m.last = &o
	what, until := m.judge(o)
	if m.outcome == Going && !o.At.Before(m.target.Deadline) {
		m.late(o)
	}
	if m.outcome != Going {
		m.event = Event{At: o.At, What: m.reason}
		return []Event{m.event}
	}
	if what != m.event.What || until != m.event.Until {
		m.event = Event{o.At, what, until}
		return []Event{m.event}
	}
	return nil
}

// Last is what is happening since when, and what would end it; zero before the first observation.
func (m *Machine) Last() Event { return m.event }

// Tick says that time has passed without a new observation.
func (m *Machine) Tick(now time.Time) []Event {
	if m.outcome != Going {
		return nil
	}
	if m.last == nil {
		if now.Before(m.target.Deadline) {
			return nil
		}
		m.now = now
		m.end(Unseen, "nothing was read of the node %s until the deadline", m.target.Node)
		m.event = Event{At: now, What: m.reason}
		return []Event{m.event}
	}
	o := *m.last
	o.At = now
	return m.Step(o)
}

func (m *Machine) end(o Outcome, format string, args ...any) {
	m.outcome, m.reason = o, fmt.Sprintf(format, args...)
}

// judge moves the machine, and returns what is happening and what would end it.
func (m *Machine) judge(o Observation) (what, until string) {
	switch {
	case !o.Exists:
		m.end(Gone, "the node %s is gone", m.target.Node)
		return "", ""
	case o.Config != m.target.Config:
		by := "another"
		if o.ConfigBy != "" {
			by = o.ConfigBy
		}
		m.end(Replaced, "%s is %q now, and %q was requested: %s wrote it", ConfigLabel, o.Config, m.target.Config, by)
		return "", ""
	}
	fresh := !m.target.Begun.IsZero() && !m.seen && o.At.Before(m.target.Begun.Add(reaction))
	if o.State != "success" {
		m.successSince = time.Time{}
	}
	switch o.State {
	case "pending":
		m.seen = true
		return m.pending(o)
	case "rebooting":
		m.seen = true
		if !o.Ready {
			return "the node restarts, to change the MIG mode", "the kubelet is ready again"
		}
		return "the node is to restart, to change the MIG mode", "the restart, and the state pending after it"
	case "failed":
		if fresh {
			return m.requested(o)
		}
		m.end(Failed, "the MIG manager says failed: %q was not applied to every GPU", m.target.Config)
		return "", ""
	case "success":
		return m.success(o, fresh)
	}
	return m.requested(o)
}

// requested is the time between the label and the manager's reaction.
func (m *Machine) requested(o Observation) (what, until string) {
	state := "without a state"
	if o.State != "" {
		state = fmt.Sprintf("in the state %q of the change before", o.State)
	}
	return fmt.Sprintf("%q is requested, and the node is %s%s", m.target.Config, state, but(o)), "the MIG manager reads the label and writes pending"
}

// pending is the time in which the manager takes operands away, and changes the GPUs.
func (m *Machine) pending(o Observation) (what, until string) {
	for _, p := range o.Pods {
		if !strings.HasPrefix(o.Deploy[p.Component], paused) { // the driver manager may have appended its pause
			continue // not to go yet, or started again already
		}
		name := p.Namespace + "/" + p.Name
		if m.blocking != name {
			m.blocking, m.blockingSince = name, o.At
		}
		// the manager has come to this component at the latest when all waits before it have run out
		if began := o.StateSince.Add(time.Duration(rank(p.Component)) * podWait); !o.StateSince.IsZero() && began.Before(m.blockingSince) {
			m.blockingSince = began
		}
		if o.At.Sub(m.blockingSince) >= podWait {
			m.end(Stuck, "the state is pending, and the pod %s has not gone in %s: the MIG manager has stopped waiting for it, and leaves pending and the paused labels as they are", name, o.At.Sub(m.blockingSince).Round(time.Second))
			return "", ""
		}
		return fmt.Sprintf("the manager waits until the pod %s is gone", name), "the pod ends; the manager waits 5 minutes for it"
	}
	m.blocking = ""
	if slices.ContainsFunc(m.wanted, func(c string) bool { return strings.HasPrefix(o.Deploy[c], paused) }) {
		return "the operands are away, and the manager changes the GPUs" + but(o), "the state success or failed"
	}
	return "the state is pending" + but(o), "the manager pauses the operands, changes the GPUs, and starts them again"
}

// but adds to what is happening what keeps the manager from it.
func but(o Observation) string {
	if o.Missing == "" {
		return ""
	}
	return ", but " + o.Missing
}

// rank is how many components the manager waits for before this one.
func rank(component string) int {
	i := slices.IndexFunc(operands, func(o [2]string) bool { return o[1] == component })
	if i < 0 {
		return len(operands) // a third party's
	}
	return i
}

// success is what the manager says before the device plugin offers anything.
func (m *Machine) success(o Observation, fresh bool) (what, until string) {
	matches := m.matches(o.Resources)
	// the state of the change before says the same, and so may the devices
	if fresh && (!matches || maps.Equal(m.before, o.Resources)) {
		return m.requested(o)
	}
	if m.successSince.IsZero() {
		m.successSince = o.At
	}
	away := m.away(o)
	over := o.At.Sub(m.successSince) >= settle
	switch {
	case matches && len(away) == 0:
		unsure := ""
		if m.target.Resources == nil {
			unsure = "; how many there should be was not predicted"
		}
		m.end(Applied, "%q is applied: %s, and the operands are back%s", m.target.Config, list(o.Resources), unsure)
	case over && !matches:
		m.end(NoDevices, "the state has been success for %s, and the node has %s, want %s", o.At.Sub(m.successSince).Round(time.Second), list(o.Resources), m.want())
	case over:
		m.end(Away, "the state has been success for %s and the devices are there, and %s did not come back", o.At.Sub(m.successSince).Round(time.Second), strings.Join(away, ", "))
	case !matches:
		return fmt.Sprintf("the state is success, and the node has %s, want %s", list(o.Resources), m.want()), "the device plugin registers the devices"
	default:
		return fmt.Sprintf("the devices are there, and not back are %s", strings.Join(away, ", ")), "its pod is ready"
	}
	return "", ""
}

// matches reports whether the devices are those that are wanted.
func (m *Machine) matches(have map[string]int) bool {
	if m.target.Resources == nil {
		return len(positive(have)) > 0
	}
	return maps.Equal(positive(have), positive(m.target.Resources))
}

// want names the devices that are wanted.
func (m *Machine) want() string {
	if m.target.Resources == nil {
		return "any device"
	}
	return list(m.target.Resources)
}

// away are the operands that are not back: their label is paused, or no pod of them is ready.
func (m *Machine) away(o Observation) []string {
	var out []string
	for _, c := range m.wanted {
		ready := slices.ContainsFunc(o.Pods, func(p Pod) bool { return p.Component == c && p.Ready && !p.Ending })
		if o.Deploy[c] != "true" || !ready {
			out = append(out, c)
		}
	}
	return out
}

// late ends what goes on at the deadline.
func (m *Machine) late(o Observation) {
	switch o.State {
	case "pending":
		m.end(Late, "the state is still pending at the deadline%s", m.waiting(o))
	case "rebooting":
		m.end(Rebooting, "the node has not come back from its restart by the deadline")
	case "success":
		switch away := m.away(o); {
		case m.successSince.IsZero():
			m.end(Ignored, "nothing has reacted to the label by the deadline: the state is that of the change before%s", but(o))
		case !m.matches(o.Resources):
			m.end(NoDevices, "the state is success, and at the deadline the node has %s, want %s", list(o.Resources), m.want())
		default:
			m.end(Away, "the state is success and the devices are there, and at the deadline not back are %s", strings.Join(away, ", "))
		}
	default:
		why := o.Missing
		if why == "" {
			why = "the MIG manager's log says why"
		}
		m.end(Ignored, "nothing has reacted to the label by the deadline: %s", why)
	}
}

func (m *Machine) waiting(o Observation) string {
	if m.blocking == "" {
		return but(o)
	}
	return fmt.Sprintf(", and the manager waits for the pod %s since %s", m.blocking, o.At.Sub(m.blockingSince).Round(time.Second))
}

// list names resources: "7 nvidia.com/mig-1g.10gb".
func list(all map[string]int) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(positive(all))) {
		words = append(words, fmt.Sprintf("%d %s", all[name], name))
	}
	if len(words) == 0 {
		return "no device"
	}
	return strings.Join(words, ", ")
}

// Verdict is the row of the change as it stands; namespace is the operator's.
func (m *Machine) Verdict(namespace string) verdict.Verdict {
	node := m.target.Node
	log := fmt.Sprintf("kubectl logs -n %s -l app=nvidia-mig-manager -c nvidia-mig-manager --tail=100", namespace)
	again := fmt.Sprintf("kubectl label node %s %s- && kubectl label node %s %s=%s", node, ConfigLabel, node, ConfigLabel, m.target.Config)
	v := verdict.Verdict{ID: string(m.outcome), State: verdict.Failed, Node: node, Subject: stateLabel, Reason: m.reason, Next: log, Source: sourceManager}
	switch m.outcome {
	case Going:
		v.ID, v.State, v.Reason, v.Since = "mig-change", verdict.Waiting, "nothing was read yet", m.event.At
		if m.event.What != "" {
			v.Reason = m.event.What + "; what ends it: " + m.event.Until
		}
	case Applied:
		v.State, v.Next = verdict.OK, ""
	case Stuck:
		_, pod, _ := strings.Cut(m.blocking, "/")
		space, _, _ := strings.Cut(m.blocking, "/")
		v.Source, v.Since = sourceStuck, m.blockingSince
		v.Next = fmt.Sprintf("kubectl delete pod -n %s %s, and then request it again: %s", space, pod, again)
	case NoDevices:
		v.Source, v.Since = sourceLie, m.successSince
		v.Next = fmt.Sprintf("kubectl delete pod -n %s -l app=nvidia-device-plugin-daemonset --field-selector spec.nodeName=%s", namespace, node)
	case Away:
		v.Source, v.Since = sourceLie, m.successSince
		v.Next = fmt.Sprintf("kubectl get pods -n %s -o wide --field-selector spec.nodeName=%s", namespace, node)
	case Ignored:
		v.Next = fmt.Sprintf("kubectl get pods -n %s -l app=nvidia-mig-manager -o wide --field-selector spec.nodeName=%s", namespace, node)
	case Rebooting, Gone:
		v.Next = "kubectl get node " + node
	case Replaced:
		v.Next = fmt.Sprintf("kubectl get node %s -o yaml --show-managed-fields", node)
	}
	return v
}
