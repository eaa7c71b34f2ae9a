package migchange_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/migchange"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/verdict"
)

var begun = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

var (
	slicesOf1g = map[string]int{"nvidia.com/mig-1g.10gb": 56}
	wholeGPUs  = map[string]int{"nvidia.com/gpu": 8}
)

const config = "all-1g.10gb"

// all the operands of a node, each with its pod.
var components = []string{"device-plugin", "gpu-feature-discovery", "dcgm-exporter", "dcgm"}

func running(state string, devices map[string]int) migchange.Observation {
	o := migchange.Observation{Exists: true, Ready: true, Config: config, State: state, Deploy: map[string]string{}, Resources: devices}
	for _, c := range components {
		o.Deploy[c] = "true"
		o.Pods = append(o.Pods, migchange.Pod{Component: c, Namespace: "gpu-operator", Name: c + "-x", Ready: true})
	}
	return o
}

// pausing is a node whose operands are to go, and of which the named ones have not gone.
func pausing(state string, left ...string) migchange.Observation {
	o := running(state, nil)
	for _, c := range components {
		o.Deploy[c] = "paused-for-mig-change"
	}
	o.Pods = slices.DeleteFunc(o.Pods, func(p migchange.Pod) bool { return !slices.Contains(left, p.Component) })
	return o
}

// pausedTwice is such a node whose driver pod has restarted meanwhile: the driver manager adds its own pause.
func pausedTwice(left ...string) migchange.Observation {
	o := pausing("pending", left...)
	for c := range o.Deploy {
		o.Deploy[c] += "_paused-for-driver-upgrade"
	}
	return o
}

func target() migchange.Target {
	return migchange.Target{Node: "gpu-1", Config: config, Resources: slicesOf1g, Begun: begun, Deadline: begun.Add(30 * time.Minute)}
}

// A step is an observation at a time after the label was written.
type step struct {
	after time.Duration
	migchange.Observation
}

func follow(t migchange.Target, steps []step) (*migchange.Machine, []string) {
	m := migchange.Follow(t)
	var said []string
	for _, s := range steps {
		s.At = begun.Add(s.after)
		for _, e := range m.Step(s.Observation) {
			said = append(said, e.What)
		}
	}
	return m, said
}

func changed(o migchange.Observation, change func(*migchange.Observation)) migchange.Observation {
	change(&o)
	return o
}

func TestHowAChangeEnds(t *testing.T) {
	usual := []step{{0, running("success", wholeGPUs)}, {2 * time.Second, running("pending", wholeGPUs)}, {4 * time.Second, pausing("pending", "device-plugin")}, {30 * time.Second, pausing("pending")}}
	for _, c := range []struct {
		name  string
		steps []step
		want  migchange.Outcome
		says  string
		next  string
	}{
		{"as it should", append(slices.Clone(usual), step{50 * time.Second, running("success", nil)}, step{70 * time.Second, running("success", slicesOf1g)}), migchange.Applied, "56 nvidia.com/mig-1g.10gb, and the operands are back", ""},
		{"success of the change before", []step{{0, running("success", wholeGPUs)}, {30 * time.Second, running("success", wholeGPUs)}}, migchange.Going, "requested", ""},
		{"failed of the change before", []step{{0, running("failed", wholeGPUs)}, {30 * time.Second, running("failed", wholeGPUs)}}, migchange.Going, "requested", ""},
		{"failed at once: the config was refused", []step{{0, running("failed", wholeGPUs)}, {61 * time.Second, running("failed", wholeGPUs)}}, migchange.Failed, "not applied to every GPU", "kubectl logs"},
		{"failed", append(slices.Clone(usual), step{time.Minute, running("failed", wholeGPUs)}), migchange.Failed, "not applied to every GPU", "kubectl logs"},
		{"applied already", []step{{0, running("success", slicesOf1g)}, {61 * time.Second, running("success", slicesOf1g)}}, migchange.Applied, "is applied", ""},
		{"a pod that does not go", []step{{time.Second, pausing("pending", "dcgm")}, {3 * time.Minute, pausing("pending", "dcgm")}, {6 * time.Minute, pausing("pending", "dcgm")}}, migchange.Stuck, "gpu-operator/dcgm-x has not gone in 5m59s", "kubectl delete pod -n gpu-operator dcgm-x"},
		{"a pod that does not go, and the driver pod restarts", []step{{time.Second, pausedTwice("dcgm")}, {6 * time.Minute, pausedTwice("dcgm")}}, migchange.Stuck, "gpu-operator/dcgm-x has not gone in 5m59s", "kubectl delete pod -n gpu-operator dcgm-x"},
		{"pods that go one after the other", []step{{time.Second, pausing("pending", "device-plugin", "dcgm")}, {4 * time.Minute, pausing("pending", "dcgm")}, {8 * time.Minute, pausing("pending", "dcgm")}}, migchange.Going, "dcgm-x", ""},
		{"pending since an hour before", []step{{0, changed(pausing("pending", "dcgm"), func(o *migchange.Observation) { o.StateSince = begun.Add(-time.Hour) })}}, migchange.Stuck, "dcgm-x has not gone in 43m30s", "kubectl delete pod -n gpu-operator dcgm-x"},
		{"pending since ten minutes before, in its third wait", []step{{0, changed(pausing("pending", "dcgm"), func(o *migchange.Observation) { o.StateSince = begun.Add(-10 * time.Minute) })}}, migchange.Going, "dcgm-x", ""},
		{"operands that are started again before the state is written", []step{{0, pausing("pending")}, {time.Minute, running("pending", nil)}, {8 * time.Minute, running("pending", nil)}}, migchange.Going, "the state is pending", ""},
		{"success without devices", append(slices.Clone(usual), step{time.Minute, running("success", nil)}, step{6 * time.Minute, running("success", nil)}), migchange.NoDevices, "the node has no device, want 56 nvidia.com/mig-1g.10gb", "nvidia-device-plugin-daemonset"},
		{"success with the old devices", append(slices.Clone(usual), step{time.Minute, running("success", wholeGPUs)}, step{6 * time.Minute, running("success", wholeGPUs)}), migchange.NoDevices, "8 nvidia.com/gpu", ""},
		{"success, and an operand stays paused", append(slices.Clone(usual), step{time.Minute, changed(running("success", slicesOf1g), func(o *migchange.Observation) { o.Deploy["dcgm"] = "paused-for-mig-change" })},
			step{7 * time.Minute, changed(running("success", slicesOf1g), func(o *migchange.Observation) { o.Deploy["dcgm"] = "paused-for-mig-change" })}), migchange.Away, "dcgm did not come back", "kubectl get pods"},
		{"nothing reacts", []step{{0, running("", wholeGPUs)}, {30 * time.Minute, running("", wholeGPUs)}}, migchange.Ignored, "nothing has reacted", "nvidia-mig-manager"},
		{"pending at the deadline", []step{{0, pausing("pending")}, {30 * time.Minute, pausing("pending")}}, migchange.Late, "still pending", ""},
		{"pending, and the manager is away", []step{{0, changed(pausing("pending"), func(o *migchange.Observation) { o.Missing = "no pod of it" })}}, migchange.Going, "changes the GPUs, but no pod of it", ""},
		{"pending at the deadline without a manager", []step{{30 * time.Minute, changed(pausing("pending"), func(o *migchange.Observation) { o.Missing = "no pod of it" })}}, migchange.Late, "still pending at the deadline, but no pod of it", ""},
		{"nothing reacts without a manager", []step{{0, changed(running("", wholeGPUs), func(o *migchange.Observation) { o.Missing = "no pod of it" })}, {30 * time.Minute, changed(running("", wholeGPUs), func(o *migchange.Observation) { o.Missing = "no pod of it" })}}, migchange.Ignored, "by the deadline: no pod of it", "nvidia-mig-manager"},
		{"a restart", []step{{0, pausing("pending")}, {time.Minute, changed(running("rebooting", nil), func(o *migchange.Observation) { o.Ready = false })}, {4 * time.Minute, pausing("pending")}, {5 * time.Minute, running("success", slicesOf1g)}}, migchange.Applied, "is applied", ""},
		{"no return from a restart", []step{{time.Minute, changed(running("rebooting", nil), func(o *migchange.Observation) { o.Ready = false })}, {31 * time.Minute, changed(running("rebooting", nil), func(o *migchange.Observation) { o.Ready = false })}}, migchange.Rebooting, "not come back", "kubectl get node gpu-1"},
		{"another config", []step{{0, running("pending", wholeGPUs)}, {time.Second, changed(running("pending", wholeGPUs), func(o *migchange.Observation) { o.Config, o.ConfigBy = "all-disabled", "kubectl-label" })}}, migchange.Replaced, `kubectl-label wrote it`, "managed-fields"},
		{"the node goes", []step{{0, running("pending", wholeGPUs)}, {time.Second, migchange.Observation{}}}, migchange.Gone, "gone", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, said := follow(target(), c.steps)
			v := m.Verdict("gpu-operator")
			if m.Outcome() != c.want || !strings.Contains(v.Reason, c.says) || !strings.Contains(v.Next, c.next) {
				t.Errorf("outcome %q, want %q: %q (want %q), next %q (want %q)\n%q", m.Outcome(), c.want, v.Reason, c.says, v.Next, c.next, said)
			}
			if wantOK := c.want == migchange.Applied; (v.State == verdict.OK) != wantOK || (v.State == verdict.Waiting) != (c.want == migchange.Going) {
				t.Errorf("state %s for %q", v.State, c.want)
			}
			if len(said) != len(slices.Compact(slices.Clone(said))) {
				t.Errorf("the same is said twice: %q", said)
			}
		})
	}
}

// What an administrator keeps away does not have to come back.
func TestAnOperandThatIsKeptAway(t *testing.T) {
	off := func(o migchange.Observation) migchange.Observation {
		o.Deploy["dcgm"] = "false"
		o.Pods = slices.DeleteFunc(o.Pods, func(p migchange.Pod) bool { return p.Component == "dcgm" })
		return o
	}
	m, said := follow(target(), []step{{0, off(running("pending", wholeGPUs))}, {time.Minute, off(running("success", slicesOf1g))}})
	if m.Outcome() != migchange.Applied {
		t.Errorf("%q: %q", m.Outcome(), said)
	}
}

// The operator labels nodes for dcgm, which it does not install by default: nothing comes back.
func TestAnOperandThatIsNotInstalled(t *testing.T) {
	off := func(o migchange.Observation) migchange.Observation {
		o.Off = []string{"dcgm"}
		o.Pods = slices.DeleteFunc(o.Pods, func(p migchange.Pod) bool { return p.Component == "dcgm" })
		return o
	}
	m, said := follow(target(), []step{{0, off(running("pending", wholeGPUs))}, {time.Minute, off(running("success", slicesOf1g))}})
	if m.Outcome() != migchange.Applied {
		t.Errorf("%q: %q", m.Outcome(), said)
	}
}

// A change that is followed without having been begun takes its state as it is.
func TestFollowingOnly(t *testing.T) {
	for state, want := range map[string]migchange.Outcome{"success": migchange.Applied, "failed": migchange.Failed, "pending": migchange.Going} {
		at := migchange.Target{Node: "gpu-1", Resources: slicesOf1g, Deadline: begun.Add(time.Hour)}
		if m, said := follow(at, []step{{0, running(state, slicesOf1g)}}); m.Outcome() != want {
			t.Errorf("%s: %q, want %q (%q)", state, m.Outcome(), want, said)
		}
	}
}

// Whatever is observed: success is never said without the devices that are wanted and without the
// operands, the change ends by its deadline, and what has ended stays as it is.
func TestRandomSequences(t *testing.T) {
	outcomes := map[migchange.Outcome]int{}
	for seed := range uint64(20000) {
		r := rand.New(rand.NewPCG(seed, 7))
		to := target()
		switch r.IntN(4) {
		case 0:
			to.Resources = nil
		case 1:
			to.Begun = time.Time{}
		}
		m := migchange.Follow(to)
		at, newest := begun, time.Time{}
		var last migchange.Observation
		for range 1 + r.IntN(12) {
			at = at.Add(time.Duration(r.IntN(200)) * time.Second)
			if r.IntN(4) == 0 {
				m.Tick(at)
				continue
			}
			before := m.Outcome()
			last = random(r)
			last.At = at
			if r.IntN(8) == 0 {
				last.At = at.Add(-time.Hour) // a clock that was set back
			}
			events := m.Step(last)
			for _, e := range events {
				if e.At.Before(newest) {
					t.Fatalf("seed %d: an event at %s after one at %s", seed, e.At, newest)
				}
				newest = e.At
			}
			if before != migchange.Going && (m.Outcome() != before || len(events) > 0) {
				t.Fatalf("seed %d: %q became %q after its end", seed, before, m.Outcome())
			}
			if m.Outcome() == migchange.Applied && before == migchange.Going {
				proper(t, seed, to, last)
			}
		}
		before := m.Outcome()
		if m.Tick(to.Deadline); m.Outcome() == migchange.Going {
			t.Fatalf("seed %d: it goes on after the deadline", seed)
		}
		if m.Outcome() == migchange.Applied && before == migchange.Going {
			proper(t, seed, to, last)
		}
		outcomes[m.Outcome()]++
	}
	for _, o := range []migchange.Outcome{migchange.Applied, migchange.Failed, migchange.Stuck, migchange.NoDevices, migchange.Away, migchange.Ignored, migchange.Late, migchange.Rebooting, migchange.Replaced, migchange.Gone, migchange.Unseen} {
		if outcomes[o] == 0 {
			t.Errorf("no sequence ended as %q: %v", o, outcomes)
		}
	}
}

// proper checks a success against the observation that led to it.
func proper(t *testing.T, seed uint64, to migchange.Target, o migchange.Observation) {
	t.Helper()
	devices := len(o.Resources) > 0 && (to.Resources == nil || maps.Equal(to.Resources, o.Resources))
	paused := slices.ContainsFunc(components, func(c string) bool { return o.Deploy[c] == "paused-for-mig-change" })
	if !devices || o.State != "success" || o.Config != config || paused || !o.Exists {
		t.Fatalf("seed %d: success with %+v", seed, o)
	}
}

func random(r *rand.Rand) migchange.Observation {
	states := []string{"pending", "pending", "success", "success", "failed", "rebooting", "", "odd"}
	devices := []map[string]int{nil, wholeGPUs, slicesOf1g, slicesOf1g}
	o := running(states[r.IntN(len(states))], devices[r.IntN(len(devices))])
	if r.IntN(4) == 0 {
		o.StateSince = begun.Add(time.Duration(r.IntN(4000)-2000) * time.Second)
	}
	if r.IntN(2) == 0 && o.State != "success" || r.IntN(6) == 0 {
		left := components[:r.IntN(3)]
		o = pausing(o.State, left...)
		o.Resources = devices[r.IntN(len(devices))]
	}
	switch r.IntN(40) {
	case 0:
		o.Config = fmt.Sprint("other-", r.IntN(2))
	case 1:
		o.Exists = false
	case 2:
		o.Pods = nil
	}
	return o
}
