package goldens

import (
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

const (
	simInterval = 30 * time.Second // the default
	simSeed     = 1                // the default
)

// troubles is a scenario with XIDs, a field without permission, and the loss of a GPU.
const troubles = `faults:
  - {fault: xid, at: 10s, devices: ["0"], xids: [62, 45]}
  - {fault: absent, reason: permission, at: 0s, devices: ["0"], fields: [DCGM_FI_PROF_DRAM_ACTIVE]}
  - {fault: gpu-lost, at: 40s, devices: ["1"]}
`

func TestSimulatedNodes(t *testing.T) {
	needRounding(t)
	for _, p := range []struct {
		node, faults string
		session
	}{
		{node: "shared"},
		{node: "a100-mig", session: session{virtual: true, args: []string{"-o", "--hostname-label=Hostname", "-rbmn"}}},
		{node: "everything", faults: troubles, session: session{own: true}},
		{node: "t4", session: session{args: []string{"-o", "-n"}}},
	} {
		t.Run(p.node, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				comparePage(t, "sim-"+p.node, p.play(t, newSim(t, p.node, p.faults), 3))
			})
		})
	}
}

// play returns the page of a cycle for a simulated node, with the node's own owners.
func (s *session) play(t *testing.T, source *sim.Source, cycle int) []byte {
	t.Helper()
	s.source, s.podOf, s.plan, s.cycle = collector.SourceOf(source.Open), source.PodOf,
		planOf(t, counters, simInterval), cycle
	s.attributors = []collector.Attributor{source}
	return s.page(t)
}

// TestPagesMatchExporter compares the pages of this package with those of package app for the same arguments.
func TestPagesMatchExporter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "few.csv")
	folder.Write(t, file, counters)
	for _, args := range [][]string{nil, {"-o", "-n"}, {"-o", "--hostname-label=Hostname", "-rbmn"},
		{"--hostname-label=both"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := parse(t, append([]string{"--source=sim", "--sim-node=t4", "--enable-exporter-metrics=false",
					"-f", file}, args...)...)
				want, err := app.Page(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				s := session{args: args}
				if diff := cmp.Diff(strings.Split(string(want), "\n"),
					strings.Split(string(s.play(t, newSim(t, "t4", ""), 1)), "\n")); diff != "" {
					t.Errorf("(-exporter +this package):\n%s", diff)
				}
			})
		})
	}
}

func newSim(t *testing.T, node, faults string) *sim.Source {
	t.Helper()
	o := sim.Options{Node: node, Seed: simSeed}
	if faults != "" {
		o.Scenario = simulated.Scenario(t, faults)
	}
	source, err := sim.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// needRounding skips a test unless the processor is amd64. On others, the compiler may use fused multiply-add, which
// changes the last digits of simulated values.
func needRounding(t *testing.T) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("SKIP architecture: golden pages are only valid on amd64")
	}
}
