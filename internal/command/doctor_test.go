package command_test

import (
	stdcmp "cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
)

// doctorCase is a case of testdata/doctor.yaml, which describes the fields.
type doctorCase struct {
	Name, Args, Counters, Answers string
	Remove                        []string
	Env, Files                    map[string]string
	DialError                     string `yaml:"dialError"`
	Refuses, Lacks, Row, Advice   string
}

// doctorCases returns the files of a machine without problems, and the cases.
func doctorCases(t *testing.T) (healthy map[string]string, cases []doctorCase) {
	var file struct {
		Healthy map[string]string
		Cases   []doctorCase
	}
	readYAML(t, "testdata/doctor.yaml", &file)
	return file.Healthy, file.Cases
}

// rootOf returns a folder with these files.
func rootOf(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// line is a row of the output, with its advice.
type line struct{ State, Check, Found, Advice string }

// lines parses the output of doctor.
func lines(out string) (all []line) {
	for text := range strings.Lines(out) {
		text = strings.TrimSuffix(text, "\n")
		if advice, ok := strings.CutPrefix(text, strings.Repeat(" ", 22)+"> "); ok {
			all[len(all)-1].Advice = advice
			continue
		}
		all = append(all, line{strings.TrimSpace(text[:4]), strings.TrimSpace(text[6:20]), text[22:], ""})
	}
	return all
}

// examine runs doctor on a machine whose files are in root. Every device id of a container matches.
func examine(t *testing.T, w *world, root, answers string, dialError error, args ...string) []line {
	t.Helper()
	p := w.process(args...)
	p.Root, p.Dial = root, dialer(answers, dialError)
	p.Unmatched = func(context.Context, *config.Config, *gpu.Topology) ([]podmapper.Unmatched, error) { return nil, nil }
	if code := run(t, "doctor", p); code == command.Unable {
		t.Fatal(&w.Err)
	}
	return lines(w.Out.String())
}

// lacking opens a simulated node whose profiling fields have no values for the given reason.
func lacking(reason string) opener {
	return func(_ context.Context, _ *config.Config, _ *gpu.Plan) (app.Backend, error) {
		faults := "faults:\n  - {fault: absent, at: 0s, reason: " + reason + ", fields: [DCGM_FI_PROF_DRAM_ACTIVE]}\n"
		scenario, err := sim.ParseScenario([]byte(faults), "faults.yaml")
		if err != nil {
			return app.Backend{}, err
		}
		source, err := sim.New(sim.Options{Node: "h100x8", Scenario: scenario})
		if err != nil {
			return app.Backend{}, err
		}
		return app.Backend{Source: collector.SourceOf(source.Open)}, nil
	}
}

// states formats rows briefly, without advice.
func states(rows []line) []string {
	var list []string
	for _, r := range rows {
		list = append(list, fmt.Sprintf("%s %s: %s", r.State, r.Check, r.Found))
	}
	return list
}

func TestEverythingIsRight(t *testing.T) {
	const csv = "DCGM_FI_DEV_GPU_TEMP, gauge, T\nDCGM_FI_PROF_DRAM_ACTIVE, gauge, D\n"
	w := &world{Files: map[string]string{"/my.csv": csv}, Env: map[string]string{"NODE_NAME": "node-1"}}
	healthy, _ := doctorCases(t)
	healthy["/run/kubelet.sock"] = ""
	rows := examine(t, w, rootOf(t, healthy), "unix /run/kubelet.sock", syscall.ECONNREFUSED,
		"-f=/my.csv", "-k", "--pod-resources-kubelet-socket=/run/kubelet.sock")
	want := []string{
		"ok counters: /my.csv lists 2 metrics",
		"ok driver: NVIDIA kernel module 570.86.15",
		"ok device files: /dev/nvidiactl and 2 GPUs",
		"ok NVML: /usr/lib64/libnvidia-ml.so.1",
		"ok DCGM: /opt/dcgm/lib/libdcgm.so.4",
		"ok host engine: embedded; no other host engine answers on port 5555",
		"ok profiling: 1 profiling metric configured; CAP_SYS_ADMIN is present",
		"ok kubelet: /run/kubelet.sock answers",
		"ok node name: node-1",
		"ok source: sim: 8 GPUs, 11 GPU instances, driver 570.124.06",
		"ok device ids: every container's GPU is known to the source",
	}
	if diff := cmp.Diff(want, states(rows)); diff != "" {
		t.Errorf("rows differ (-want +got):\n%s", diff)
	}
}

func TestOneThingIsWrong(t *testing.T) {
	healthy, cases := doctorCases(t)
	dialErrors := map[string]error{}
	for _, err := range []syscall.Errno{syscall.ECONNREFUSED, syscall.EACCES, syscall.ENOENT, syscall.ENOTSOCK} {
		dialErrors[err.Error()] = err
	}
	for _, tt := range cases {
		t.Run(tt.Name, func(t *testing.T) {
			files := maps.Clone(healthy)
			maps.Copy(files, tt.Files)
			for _, path := range tt.Remove {
				delete(files, path)
			}
			w := &world{Env: tt.Env, Open: refuse(tt.Refuses)}
			if tt.Lacks != "" {
				w.Open = lacking(tt.Lacks)
			}
			if tt.Counters != "" {
				w.Files = map[string]string{"/etc/dcgm-exporter/default-counters.csv": tt.Counters}
			}
			err := dialErrors[stdcmp.Or(tt.DialError, "connection refused")]
			rows := examine(t, w, rootOf(t, files), tt.Answers, err, strings.Fields(tt.Args)...)
			for i, row := range states(rows) {
				advice := rows[i].Advice
				if row == tt.Row && strings.Contains(advice, tt.Advice) && (advice == "") == (tt.Advice == "") {
					return
				}
			}
			t.Errorf("want row %q with advice %q; got:\n%s", tt.Row, tt.Advice, strings.Join(states(rows), "\n"))
		})
	}
}

// Every row has advice unless its state is ok. Only problems that follow from a missing driver have no advice of
// their own.
func TestFaultsComeWithAdvice(t *testing.T) {
	rows := examine(t, &world{Open: refuse("unavailable")}, t.TempDir(), "", syscall.ECONNREFUSED)
	want := map[string]bool{"driver": true, "device files": false, "NVML": false, "DCGM": true, "source": true}
	for _, r := range rows {
		advised, ok := want[r.Check]
		if !ok {
			advised = r.State != "ok"
		} else if r.State == "ok" {
			t.Errorf("check %s on an empty machine = ok, want warn or fail", r.Check)
		}
		if advised != (r.Advice != "") {
			t.Errorf("%s %s: advice = %q, want advice: %t", r.State, r.Check, r.Advice, advised)
		}
	}
}

// Up to 20 unmatched ids are listed with their reasons.
func TestUnmatchedIDs(t *testing.T) {
	ids := []string{"nvidia0", "MIG-99999999-0000-5000-8000-000000000000", "garbage", "nvidia77"}
	for i := range 20 {
		ids = append(ids, fmt.Sprintf("nvidia%d", 100+i))
	}
	k := kubelet.Start(t, kubelet.Lists(kubelet.Pod("ml/a", kubelet.Container("main", "nvidia.com/gpu", ids...))))
	var w world
	command.Run(t.Context(), "doctor", w.process("--source=sim", "-k", "--pod-resources-kubelet-socket="+k.Socket()))
	var got []string
	for _, r := range lines(w.Out.String()) {
		if r.Check == "device ids" {
			got = append(got, r.State+" "+r.Found+": "+r.Advice)
		}
	}
	if len(got) != 21 || got[20] != "warn 3 more: Fix those above first." {
		t.Errorf("rows = %d, want 21 with a summary: %q", len(got), got)
	}
	for _, want := range []string{
		"warn nvidia100 (nvidia.com/gpu) of container main in pod ml/a matches no device: The GPU is excluded by --devices, lost, or assigned to a virtual machine.",
		"warn garbage (nvidia.com/gpu) of container main in pod ml/a matches no device: Unknown form:",
		"matches no device: The GPU instance may have been destroyed",
	} {
		if !strings.Contains(strings.Join(got, "\n"), want) {
			t.Errorf("want row %q; got:\n%s", want, strings.Join(got, "\n"))
		}
	}
}

// The subcommand doctor does not advise installing a driver for a simulated node.
func TestSimulatedNodeNeedsNothing(t *testing.T) {
	for _, r := range examine(t, &world{}, t.TempDir(), "", syscall.ECONNREFUSED, "--source=sim") {
		if r.State != "ok" {
			t.Errorf("check %s = %s: %s, want ok", r.Check, r.State, r.Found)
		}
	}
}
