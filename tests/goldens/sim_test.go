package goldens

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
)

const (
	simInterval = 30 * time.Second // the default
	simCycle    = 3
	simSeed     = 1 // the default
)

// What happens to a node: XIDs, a field that may not be read, and where there is a second GPU, its
// loss.
const (
	troubles = `faults:
  - {fault: xid, at: 10s, devices: ["0"], xids: [62, 45]}
  - {fault: absent, reason: permission, at: 0s, devices: ["0"], fields: [DCGM_FI_PROF_DRAM_ACTIVE]}
`
	loss = `  - {fault: gpu-lost, at: 40s, devices: ["1"]}
`
)

// A simCase is a session over a simulated node.
type simCase struct {
	file, vocabulary, owners string
}

func (c simCase) String() string { return c.file + "/" + c.vocabulary + "/" + c.owners }

// simCases are those of every node.
func simCases() []simCase {
	var all []simCase
	for _, file := range files {
		for _, vocabulary := range vocabularies {
			for _, owners := range []string{"none", "pods", "virtual"} {
				all = append(all, simCase{file, vocabulary, owners})
			}
		}
	}
	return append(all, simCase{"default", "classic", "troubled"}, simCase{"fleet", "both", "troubled"})
}

func newSim(t *testing.T, node, faults string) *sim.Source {
	t.Helper()
	o := sim.Options{Node: node, Seed: simSeed}
	if faults != "" {
		scenario, err := sim.ParseScenario(strings.NewReader(faults), "faults.yaml")
		if err != nil {
			t.Fatal(err)
		}
		o.Scenario = scenario
	}
	source, err := sim.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// play plays a case on the clock of a bubble.
func (c simCase) play(t *testing.T, node string) (pages [][]byte) {
	t.Helper()
	plan := planOf(t, c.file, c.vocabulary, simInterval)
	synctest.Test(t, func(t *testing.T) {
		faults := ""
		if c.owners == "troubled" {
			faults = troubles
			if node != "single" && node != "gb10" { // which have one GPU
				faults += loss
			}
		}
		source := newSim(t, node, faults)
		s := session{
			name: node + "/" + c.String(), cycle: simCycle,
			source: collector.SourceOf(source.Open), plan: plan, podOf: source.PodOf,
			attributors: []collector.Attributor{source}, virtual: c.owners == "virtual",
		}
		if c.owners == "none" {
			s.attributors = nil
		}
		pages = s.pages(t)
	})
	return pages
}

// With -dump the pages of all cases are written, to be compared with those of another commit: make golden-diff.
func TestSimulatedNodes(t *testing.T) {
	if *dump == "" {
		t.Skip("SKIP no-dump: the pages of all cases are written on request")
	}
	for _, node := range sim.Nodes() {
		t.Run(node, func(t *testing.T) {
			t.Parallel()
			for _, c := range simCases() {
				dumpPages(t, "sim-"+node+"/"+c.String(), c.play(t, node))
			}
		})
	}
}

// needRounding skips a test on processors that round otherwise: a compiler may join a product and a
// sum there, and the values of the model differ in their last digit.
func needRounding(t *testing.T) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("SKIP architecture: the golden pages are those of amd64")
	}
}

// The pages that encoders make of one session are those that app makes of the settings.
func TestFlagsAreTheOnesOfApp(t *testing.T) {
	for _, node := range []string{"t4", "everything"} {
		for i, f := range flags {
			if f.name == own {
				continue // app.Page leaves those of the runtime out
			}
			t.Run(node+"/"+f.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cfg := parse(t, append([]string{"--source=sim", "--sim-node=" + node, "--enable-exporter-metrics=false"}, f.args...)...)
					got, err := app.Page(t.Context(), cfg)
					if err != nil {
						t.Fatal(err)
					}
					source := newSim(t, node, "")
					s := session{
						name: node, source: collector.SourceOf(source.Open), podOf: source.PodOf,
						attributors: []collector.Attributor{source}, plan: planOf(t, "default", "classic", simInterval),
					}
					page := s.pages(t)[i]
					if diff := cmp.Diff(strings.Split(string(got), "\n"), strings.Split(string(page), "\n")); diff != "" {
						t.Errorf("the page of app (-) differs from the encoder's (+):\n%s", diff)
					}
				})
			})
		}
	}
}

// A few pages are there to read.
func TestPagesToRead(t *testing.T) {
	needRounding(t)
	for _, p := range []struct {
		node   string
		owners string
		flags  string
	}{
		{"shared", "pods", "plain"},
		{"a100-mig", "virtual", "old-namespace-upper-blanks"},
		{"everything", "troubled", own},
		{"t4", "pods", "old-namespace-no-hostname"},
	} {
		t.Run(p.node, func(t *testing.T) {
			i := slices.IndexFunc(flags, func(f labelFlags) bool { return f.name == p.flags })
			comparePage(t, "sim-"+p.node, simCase{few, "classic", p.owners}.play(t, p.node)[i])
		})
	}
}
