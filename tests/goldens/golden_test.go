package goldens

import (
	"bytes"
	"errors"
	"flag"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/pages"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

var update = flag.Bool("update", false, "rewrite the golden pages")

// comparePage compares a page with the golden page of that name. With -update, it writes the golden page instead.
func comparePage(t *testing.T, name string, page []byte) {
	t.Helper()
	path := filepath.Join("testdata", "pages", name+".txt")
	if *update {
		folder.Write(t, path, string(page))
		return
	}
	want := strings.Split(folder.Read(t, path), "\n")
	if diff := cmp.Diff(want, strings.Split(string(page), "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s\nIf the change is intended, run go test ./tests/goldens -update", path, diff)
	}
}

const nodeName = "node-17"

// noMetrics disables the exporter's own metrics.
const noMetrics = "--enable-exporter-metrics=false"

// counters is the counters file of the golden pages.
const counters = `DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in degrees C).
DCGM_FI_DEV_POWER_USAGE, gauge, Power draw of the board (in W).
DCGM_FI_DEV_GPU_UTIL, gauge, GPU utilization (in %).
DCGM_FI_DEV_FB_USED, gauge, Used frame buffer (in MiB).
DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, Fraction of time in which the engine was active.
DCGM_FI_DEV_XID_ERRORS, gauge, Last XID error (0 for none).
DCGM_EXP_XID_ERRORS_COUNT, gauge, XID errors within the window.
DCGM_FI_DRIVER_VERSION, label, Driver version.
`

// pageOf returns the page of a cycle of an exporter, without dcgm_exporter_build_info.
func pageOf(t *testing.T, run pages.Run, cycle int) (page []byte) {
	t.Helper()
	run.Host = nodeName
	run.Each(t, func(s *gpu.Snapshot, text []byte) bool {
		if s.Topology != nil {
			cycle--
			page = bytes.Clone(text)
		} else if !errors.Is(s.Health.Err, collector.ErrStarting) {
			t.Errorf("page has no data: %v", s.Health.Err)
		}
		return cycle > 0 && !t.Failed()
	})
	lines := slices.DeleteFunc(bytes.SplitAfter(page, []byte("\n")), func(line []byte) bool {
		return bytes.Contains(line, []byte("dcgm_exporter_build_info"))
	})
	return bytes.Join(lines, nil)
}

// play returns the page of a cycle of a simulated node with faults, for command-line arguments.
func play(t *testing.T, node, faults string, cycle int, args ...string) (page []byte) {
	t.Helper()
	const interval, seed = 30 * time.Second, 1 // the defaults
	synctest.Test(t, func(t *testing.T) {
		source, err := sim.New(sim.Options{Node: node, Seed: seed, Scenario: simulated.Scenario(t, "faults: "+faults)})
		if err != nil {
			t.Fatal(err)
		}
		run := pages.Run{Source: source, Args: args, Counters: []byte(counters), Interval: interval}
		page = pageOf(t, run, cycle)
	})
	return page
}

// troubles has XIDs, a field without permission, and the loss of a GPU.
const troubles = `
  - {fault: xid, at: 10s, devices: ["0"], xids: [62, 45]}
  - {fault: absent, reason: permission, at: 0s, devices: ["0"], fields: [DCGM_FI_PROF_DRAM_ACTIVE]}
  - {fault: gpu-lost, at: 40s, devices: ["1"]}
`

func TestSimulatedNodes(t *testing.T) {
	if runtime.GOARCH != "amd64" { // the compiler may use fused multiply-add, which changes the last digits
		t.Skip("SKIP architecture: golden pages are only valid on amd64")
	}
	for _, p := range []struct {
		node, faults string
		args         []string
	}{
		{"shared", "[]", []string{noMetrics}},
		{"a100-mig", "[]",
			[]string{noMetrics, "--kubernetes-virtual-gpus", "-o", "--hostname-label=Hostname", "-rbmn"}},
		{"everything", troubles, nil},
		{"t4", "[]", []string{noMetrics, "-o", "-n"}},
	} {
		t.Run(p.node, func(t *testing.T) { comparePage(t, "sim-"+p.node, play(t, p.node, p.faults, 3, p.args...)) })
	}
}

// TestPagesMatchExporter compares pages of package pages with those of package app for the same arguments.
func TestPagesMatchExporter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "few.csv")
	folder.Write(t, file, counters)
	for _, args := range [][]string{nil, {"-o", "-n"}, {"-o", "--hostname-label=Hostname", "-rbmn"},
		{"--hostname-label=both"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			args = append(args, noMetrics)
			env := func(name string) (string, bool) { return nodeName, name == "NODE_NAME" }
			cfg, err := config.Parse(append([]string{"--source=sim", "--sim-node=t4", "-f", file}, args...), env, nil)
			if err != nil {
				t.Fatal(err)
			}
			var want []byte
			synctest.Test(t, func(t *testing.T) {
				if want, err = app.Page(t.Context(), cfg); err != nil {
					t.Fatal(err)
				}
			})
			if diff := cmp.Diff(string(want), string(play(t, "t4", "[]", 1, args...))); diff != "" {
				t.Errorf("(-exporter +package pages):\n%s", diff)
			}
		})
	}
}

// TestLabelNames checks that each label of the series with a pod on the golden pages is reserved by the exporter. A pod
// label with the same name could otherwise replace it.
func TestLabelNames(t *testing.T) {
	name := regexp.MustCompile(`[{,]([a-zA-Z_][a-zA-Z0-9_]*)="`)
	seen := map[string]bool{}
	for _, page := range folder.Files(t, "testdata/pages/*.txt") {
		for line := range strings.Lines(folder.Read(t, page)) {
			if strings.HasPrefix(line, "#") || !regexp.MustCompile(`pod(_name)?="`).MatchString(line) {
				continue
			}
			for _, label := range name.FindAllStringSubmatch(line, -1) {
				seen[label[1]] = true
				if !catalog.IsOwnLabel(label[1]) {
					t.Errorf("%s: label %s is not reserved by the exporter: %s", page, label[1], line)
				}
			}
		}
	}
	for _, label := range []string{"gpu", "xid", "err_code", "sharing"} {
		if !seen[label] {
			t.Errorf("no series of an owned GPU has the reserved label %s", label)
		}
	}
}
