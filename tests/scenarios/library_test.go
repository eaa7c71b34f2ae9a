package scenarios

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
)

func TestMain(m *testing.M) { os.Exit(fakedcgm.Main(m)) }

const (
	// pace is the interval of a collector of a test library.
	pace = 20 * time.Millisecond
	// patience bounds every wait; it is no claim about speed.
	patience = 60 * time.Second
	// lag is how many pages may show what was before a change: that of a cycle under way, the one that
	// finds the change, and the five intervals after which a session over DCGM looks for GPUs that
	// were added.
	lag = 2 + 5
)

// A cutting is a way in which MIG cuts a GPU of a test library.
type cutting struct{ profiles []string }

var cuttings = []cutting{
	{nil}, {[]string{}}, {[]string{"7g.40gb"}}, {[]string{"3g.20gb", "3g.20gb"}}, {[]string{"1g.5gb", "2g.10gb", "3g.20gb"}},
}

func (c cutting) String() string {
	if c.profiles == nil {
		return "whole"
	}
	return strings.TrimSpace("MIG " + strings.Join(c.profiles, " "))
}

// A bench is what GPUs of a test library look like; the last one stays whole.
type bench struct {
	cut        [befallen + 1]cutting
	lost, gone [befallen + 1]bool
}

func (b *bench) is(g int) string {
	switch {
	case b.gone[g]:
		return "gone"
	case b.lost[g]:
		return "lost"
	default:
		return b.cut[g].String()
	}
}

// change does something to one of the GPUs, or to two at once. Those in fixed are never unbound.
func (b *bench) change(rng *rand.Rand, fixed int) {
	for range 1 + rng.IntN(2) {
		g := rng.IntN(befallen)
		switch rng.IntN(4) {
		case 0:
			b.lost[g] = !b.lost[g]
		case 1:
			if g >= fixed {
				b.gone[g] = !b.gone[g]
			}
		default:
			b.cut[g] = cuttings[rng.IntN(len(cuttings))]
		}
	}
}

// dcgmScript is what an engine reports of the bench.
func (b *bench) dcgmScript() []string {
	lines := []string{
		"library 4.6.1", "engine 4.6.1", "driver 570.124.06", "nvml 12.570.124.06",
		"value gpu:* 150 int 45", "value gpu:* 155 double 71.5", "value gpu:* 203 int 30", "value any:* 252 int 1000",
	}
	for g := range b.cut {
		if b.gone[g] {
			continue
		}
		status := "ok"
		if b.lost[g] {
			status = "lost"
		}
		lines = append(lines, fmt.Sprintf("gpu %d uuid=GPU-%08d name=NVIDIA_A100 bus=00000000:%02X:00.0 index=%d minor=%d status=%s prof=none", g, g, 0x1b+g, g, g, status))
		if b.cut[g].profiles != nil {
			lines = append(lines, fmt.Sprintf("value gpu:%d 203 unsupported i", g))
		}
		for i, profile := range b.cut[g].profiles {
			lines = append(lines, fmt.Sprintf("instance %d gpu=%d nvml=%d profile=%s", 14*g+7+i, g, i+1, profile))
		}
	}
	return lines
}

// nvmlScript is what a driver reports of the bench. GPUs can only be gone from the end: NVML
// numbers them without gaps.
func (b *bench) nvmlScript() []string {
	lines := []string{fmt.Sprintf("gpus %d", len(b.cut))}
	for g := range b.cut {
		if b.cut[g].profiles != nil {
			lines = append(lines, fmt.Sprintf("gpu %d mig", g))
		}
		for i, profile := range b.cut[g].profiles {
			lines = append(lines, fmt.Sprintf("gpu %d instance %d 0 %s 4096", g, i+1, profile))
		}
		if b.lost[g] {
			lines = append(lines, fmt.Sprintf("gpu %d lost", g))
		}
	}
	return lines
}

// steps collects from a source in step with the test: a cycle waits until its page is taken.
func steps(t *testing.T, src collector.Source) func() page {
	t.Helper()
	const file = "DCGM_FI_DEV_GPU_TEMP,gauge,t\nDCGM_FI_DEV_POWER_USAGE,gauge,p\nDCGM_FI_DEV_GPU_UTIL,gauge,u\nDCGM_FI_DEV_FB_USED,gauge,m\n" +
		"DCGM_EXP_P2P_STATUS,gauge,s\nDCGM_EXP_GPU_PAIR_INFO,gauge,c\n"
	return stepsOf(t, src, file, gpu.Selector{Flex: true})
}

// stepsOf is steps with a counters file and the devices to watch.
func stepsOf(t *testing.T, src collector.Source, file string, devices gpu.Selector) func() page {
	t.Helper()
	requests, _, err := counters.Parse(strings.NewReader(file), "file")
	if err != nil {
		t.Fatal(err)
	}
	pages := make(chan []byte)
	encoder := exposition.NewEncoder(exposition.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	begun := false // New publishes that nothing is known yet
	l := loop.New(loop.Options{Options: collector.Options{
		Source: src, Registerer: prometheus.NewRegistry(), MinBackoff: pace, MaxBackoff: pace, ReadTimeout: patience,
		Plan: counters.NewPlan(requests, counters.PlanOptions{Interval: pace, Devices: devices}),
		Publish: func(s *gpu.Snapshot) {
			if !begun {
				return
			}
			p := encoder.Encode(s)
			defer p.Release()
			select {
			case pages <- bytes.Clone(p.Bytes()):
			case <-ctx.Done():
			}
		},
	}})
	begun = true
	over := make(chan error, 1)
	go func() { over <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-over; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return func() page {
		t.Helper()
		select {
		case text := <-pages:
			return parse(t, text)
		case <-time.After(patience):
			t.Fatal("no page")
			return page{}
		}
	}
}

// follow changes the bench again and again, and expects the pages to follow.
func follow(t *testing.T, seed uint64, changes, fixed int, play func(*bench), take func() page) {
	rng := rand.New(rand.NewPCG(seed, 14))
	b := &bench{}
	shows := func(g int, p page) string {
		is, wrong := p.shows(g)
		if wrong != "" {
			t.Fatalf("GPU %d: %s", g, wrong)
		}
		return is
	}
	for p, begin := take(), time.Now(); shows(befallen, p) != "whole"; p = take() {
		if time.Since(begin) > patience {
			t.Fatalf("it never began:\n%s", p.text)
		}
	}
	for n := range changes {
		before := *b
		b.change(rng, fixed)
		play(b)
		for late := 0; ; late++ {
			p := take()
			behind := ""
			for g := range befallen + 1 {
				switch is := shows(g, p); {
				case is == b.is(g):
				case is == before.is(g), is == "MIG" && before.lost[g]:
					// A GPU that was cut while it was lost is seen before its instances are.
					behind += fmt.Sprintf(" GPU %d is %q, not %q;", g, is, b.is(g))
				default:
					t.Fatalf("change %d: GPU %d was %q and is %q; the page has it %q:\n%s", n, g, before.is(g), b.is(g), is, p.text)
				}
			}
			if behind == "" {
				break
			}
			if late == lag {
				t.Fatalf("change %d, page %d after it:%s\n%s", n, late+1, behind, p.text)
			}
		}
	}
}

func TestHistoriesOverDCGM(t *testing.T) {
	fakedcgm.Require(t)
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			engine := fakedcgm.New(t, (&bench{}).dcgmScript()...)
			t.Cleanup(func() {
				if open := engine.Open(); len(open) > 0 {
					t.Errorf("open at the end: %v", open)
				}
			})
			take := steps(t, collector.SourceOf(dcgm.New(dcgm.Options{}).Open))
			follow(t, seed, 60, 0, func(b *bench) { engine.Play(b.dcgmScript()...) }, take)
		})
	}
}

func TestHistoriesOverNVML(t *testing.T) {
	library, err := fakenvml.Build(t.TempDir())
	fakenvml.Need(t, err)
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			world := fakenvml.NewWorld(t, (&bench{}).nvmlScript()...)
			t.Cleanup(func() {
				if n := world.OpenHandles(t); n != 0 {
					t.Errorf("%d handles open at the end", n)
				}
			})
			take := steps(t, collector.SourceOf(nvml.New(nvml.Options{Library: library}).Open))
			follow(t, seed, 60, befallen, func(b *bench) { world.Play(t, b.nvmlScript()...) }, take)
		})
	}
}
