package scenarios

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
)

// machine has three GPUs that histories affect, one that MIG cuts from the start, and one that
// nothing happens to: a page is never empty.
const machine = `
name: machine
driver: 570.124.06
gpus:
  - {board: A100-PCIE-40GB, count: 3}
  - {board: A100-PCIE-40GB, mig: [3g.20gb, 2g.10gb, 1g.5gb]}
  - {board: T4}
pods:
  - {namespace: research, pod: train-0, container: trainer, workload: training, devices: ["0", "1"]}
  - {namespace: serving, pod: chat-0, container: vllm, workload: inference, devices: ["3/1"]}
  - {namespace: serving, pod: batch-0, container: worker, workload: batch, devices: ["4"]}
`

const (
	befallen = 4 // GPUs that something happens to
	cutFirst = 3 // the one that is cut at the start
	span     = 8 * time.Minute
)

// layouts are ways to cut a GPU, and the instances (profile and GPU_I_ID) that come of them; nil is
// a whole one.
var layouts = []struct {
	mig       []string
	instances string
}{
	{nil, ""},
	{[]string{}, "MIG"},
	{[]string{"7g.40gb"}, "MIG 7g.40gb"},
	{[]string{"3g.20gb", "3g.20gb"}, "MIG 3g.20gb 3g.20gb"},
	{[]string{"4g.20gb", "1g.5gb", "1g.5gb"}, "MIG 1g.5gb 1g.5gb 4g.20gb"},
	{[]string{"3g.20gb", "2g.10gb", "1g.5gb"}, "MIG 1g.5gb 2g.10gb 3g.20gb"},
}

// A history is what happens to the GPUs, and in which state each is from when on.
type history struct {
	faults []string
	states [befallen][]state
}

type state struct {
	at time.Duration
	is string // "whole", "MIG …", "lost" or "gone"
}

// invent makes a history up. GPUs are lost and unbound and come back, and are partitioned again
// whether or not they are there.
func invent(rng *rand.Rand) *history {
	h := &history{}
	moment := func(from, most time.Duration) time.Duration {
		return from + time.Duration(rng.Int64N(int64(most/time.Millisecond)))*time.Millisecond
	}
	for g := range befallen {
		type cut struct {
			at     time.Duration
			layout int
		}
		cuts := []cut{{0, 0}}
		if g == cutFirst {
			cuts[0].layout = len(layouts) - 1
		}
		for at := moment(5*time.Second, 2*time.Minute); at < span; at = moment(at+time.Second, 2*time.Minute) {
			c := cut{at, rng.IntN(len(layouts))}
			cuts = append(cuts, c)
			mig := ""
			if l := layouts[c.layout].mig; l != nil {
				mig = ", mig: [" + strings.Join(l, ", ") + "]"
			}
			h.faults = append(h.faults, fmt.Sprintf(`fault: repartition, at: %v, devices: ["%d"]%s`, at, g, mig))
		}
		type absence struct {
			at, until time.Duration
			is        string
		}
		var absences []absence
		for at := moment(5*time.Second, time.Minute); at < span; {
			a := absence{at, moment(at+time.Millisecond, time.Minute), "lost"}
			kind := "gpu-lost"
			if rng.IntN(2) == 0 {
				a.is, kind = "gone", "unbound"
			}
			absences = append(absences, a)
			h.faults = append(h.faults, fmt.Sprintf(`fault: %s, at: %v, for: %v, devices: ["%d"]`, kind, a.at, a.until-a.at, g))
			at = moment(a.until+time.Millisecond, 90*time.Second)
		}
		var edges []time.Duration
		for _, c := range cuts {
			edges = append(edges, c.at)
		}
		for _, a := range absences {
			edges = append(edges, a.at, a.until)
		}
		slices.Sort(edges)
		for _, at := range slices.Compact(edges) {
			is := ""
			for _, c := range cuts {
				if c.at <= at {
					is = layouts[c.layout].instances
				}
			}
			for _, a := range absences {
				if a.at <= at && at < a.until {
					is = a.is
				}
			}
			h.states[g] = append(h.states[g], state{at, orWhole(is)})
		}
	}
	rng.Shuffle(len(h.faults), func(i, j int) { h.faults[i], h.faults[j] = h.faults[j], h.faults[i] })
	return h
}

func orWhole(s string) string {
	if s == "" {
		return "whole"
	}
	return s
}

// yaml returns the scenario.
func (h *history) yaml() string { return "faults:\n  - {" + strings.Join(h.faults, "}\n  - {") + "}\n" }

// within returns the states of a GPU in a time that ends now.
func (h *history) within(g int, from, now time.Duration) []string {
	var list []string
	for i, s := range h.states[g] {
		last := i+1 == len(h.states[g])
		if s.at <= now && (last || h.states[g][i+1].at > from) {
			list = append(list, s.is)
		}
	}
	return list
}

// shows returns in which state the page has a GPU, and what on it contradicts that.
func (p page) shows(g int) (is, wrong string) {
	id := fmt.Sprint(g)
	var profiles, instances []string
	var served labels.Labels
	up, seen := "", false
	for name, list := range p.series {
		if strings.HasPrefix(name, "DCGM_EXP_XID_") || strings.HasPrefix(name, "DCGM_EXP_CLOCK_") {
			continue // counts of events outlive a GPU
		}
		for _, s := range list {
			switch {
			case s.labels.Get("peer_gpu") == id && s.labels.Get("gpu") != id:
				seen = true
			case s.labels.Get("gpu") != id:
				continue
			}
			seen = true
			instance := s.labels.Get("GPU_I_ID")
			switch {
			case name == "dcgm_exporter_entity_up" && instance == "":
				up = "up"
				if s.value == 0 {
					up = s.labels.Get("reason")
				}
			case name == "DCGM_FI_DEV_FB_USED" && instance != "":
				profiles = append(profiles, s.labels.Get("GPU_I_PROFILE"))
				instances = append(instances, instance)
			}
			if strings.HasPrefix(name, "DCGM_FI_") {
				served = s.labels
			}
		}
	}
	slices.Sort(profiles)
	switch {
	case !seen:
		return "gone", ""
	case up != "up":
		if !served.IsEmpty() {
			wrong = "served of a GPU that is " + up + ": " + served.String()
		}
		return up, wrong
	}
	for _, list := range p.series {
		for _, s := range list {
			if instance := s.labels.Get("GPU_I_ID"); s.labels.Get("gpu") == id && instance != "" && !slices.Contains(instances, instance) {
				wrong = "left of an instance that is gone: " + s.labels.String()
			}
		}
	}
	if _, busy := p.by("DCGM_FI_DEV_GPU_UTIL", "gpu")[id]; busy {
		if len(instances) > 0 {
			wrong = "whole and cut at once"
		}
		return "whole", wrong
	}
	return strings.TrimSpace("MIG " + strings.Join(profiles, " ")), wrong
}

// Whatever happens to the GPUs, in whatever order, the page is that of a state not older than an
// interval, is never empty, and has nothing of what is gone. What was counted of events never
// falls.
func TestRandomHistories(t *testing.T) {
	node, err := sim.ParseNode(strings.NewReader(machine), "machine.yaml")
	if err != nil {
		t.Fatal(err)
	}
	histories := uint64(10)
	if testing.Short() {
		histories = 5
	}
	changes := 0
	for seed := range histories {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			h := invent(rand.New(rand.NewPCG(seed, 4)))
			for _, s := range h.states {
				changes += len(s)
			}
			synctest.Test(t, func(t *testing.T) {
				s := raise(t, sim.Options{Model: node, Seed: seed}, h.yaml())
				defer s.lower()
				s.follow(h)
			})
			if t.Failed() {
				t.Log(h.yaml())
			}
		})
	}
	if changes < int(histories)*20 {
		t.Errorf("%d changes in %d histories: too dull", changes, histories)
	}
}

// follow scrapes a history twice an interval, and more often beside that.
func (s *stage) follow(h *history) {
	over := make(chan struct{})
	defer func() { <-over }()
	go func() { // a slow reader, who holds each page for longer than an interval
		defer close(over)
		for time.Since(s.begin) < span {
			time.Sleep(interval/3 + time.Millisecond)
			p := s.pages.Acquire()
			before := string(p.Bytes())
			time.Sleep(2 * interval)
			if before != string(p.Bytes()) {
				s.t.Error("a page changed under its reader")
			}
			p.Release()
		}
	}()
	counted := map[string]float64{}
	for at := interval + time.Second; at < span; at += interval / 2 {
		p := s.at(at)
		for g := range befallen {
			is, wrong := p.shows(g)
			if want := h.within(g, at-interval, at); !slices.Contains(want, is) || wrong != "" {
				s.t.Fatalf("at %v the page has GPU %d %q (%s), which was %q", at, g, is, wrong, want)
			}
		}
		if is, wrong := p.shows(befallen); is != "whole" || wrong != "" {
			s.t.Fatalf("at %v the page has the GPU that nothing happened to %q (%s)", at, is, wrong)
		}
		for name, list := range p.series {
			if !strings.HasPrefix(name, "DCGM_EXP_") || !strings.HasSuffix(name, "_TOTAL") {
				continue
			}
			for _, x := range list {
				key := x.labels.String()
				if x.value < counted[key] {
					s.t.Fatalf("at %v %s fell from %v to %v", at, key, counted[key], x.value)
				}
				counted[key] = x.value
			}
		}
	}
}
