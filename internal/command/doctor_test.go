package command_test

import (
	"context"
	"errors"
	"fmt"
	"net"
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

// machine is a fake of everything that doctor examines.
type machine struct {
	Root string
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// healthy returns the files of a machine without problems.
func healthy() map[string]string {
	return map[string]string{
		"/proc/driver/nvidia/version":                 "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\nGCC version:  gcc 13\n",
		"/proc/driver/nvidia/params":                  "RmProfilingAdminOnly: 1\n",
		"/proc/driver/nvidia/gpus/0000:1b:00.0/x":     "",
		"/proc/driver/nvidia/gpus/0000:1c:00.0/x":     "",
		"/proc/self/status":                           "Name:\tx\nCapEff:\t0000000000200000\n",
		"/dev/nvidiactl":                              "",
		"/dev/nvidia0":                                "",
		"/dev/nvidia1":                                "",
		"/dev/nvidia-uvm":                             "",
		"/usr/lib64/libnvidia-ml.so.1":                "",
		"/opt/dcgm/lib/libdcgm.so.4":                  "",
		"/etc/ld.so.conf.d/dcgm.conf":                 "# DCGM\n/opt/dcgm/lib\n",
		"/var/lib/kubelet/pod-resources/not-a-socket": "",
	}
}

// machineOf returns a machine with these files in a temporary folder. Its dialer refuses every connection.
func machineOf(t *testing.T, files map[string]string) machine {
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
	return machine{
		Root: root,
		Dial: func(_ context.Context, network, address string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		},
	}
}

// answers returns a dialer that connects only to the given addresses.
func answers(addresses ...string) func(context.Context, string, string) (net.Conn, error) {
	return func(_ context.Context, network, address string) (net.Conn, error) {
		for _, a := range addresses {
			if kind, at, _ := strings.Cut(a, " "); kind == network && strings.HasSuffix(address, at) { // the path is below Root
				here, there := net.Pipe()
				return here, there.Close()
			}
		}
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
}

// fails returns a dialer that always fails with err.
func fails(err error) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		return nil, os.NewSyscallError("connect", err)
	}
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

// examine runs doctor with the given configuration on a machine.
func examine(t *testing.T, w *world, m machine, open opener, args ...string) []line {
	t.Helper()
	w.Open = open
	p := w.process(args...)
	p.Root, p.Dial, p.Unmatched = m.Root, m.Dial, everyIDMatches
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

func everyIDMatches(context.Context, *config.Config, *gpu.Topology) ([]podmapper.Unmatched, error) {
	return nil, nil
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
	m := machineOf(t, healthy())
	listenUnix(t, filepath.Join(m.Root, "/run/kubelet.sock"))
	m.Dial = answers("unix /run/kubelet.sock")

	rows := examine(t, w, m, simulate, "-f=/my.csv", "-k", "--pod-resources-kubelet-socket=/run/kubelet.sock")
	var got []string
	for _, line := range states(rows) {
		if !strings.HasPrefix(line, "warn setting: ") { // later problems are reported by config
			got = append(got, line)
		}
	}
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
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows differ (-want +got):\n%s", diff)
	}
}

func listenUnix(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

func TestOneThingIsWrong(t *testing.T) {
	type surroundings struct {
		files map[string]string // added to the healthy files; "-" removes a file
		dial  func(context.Context, string, string) (net.Conn, error)
		env   map[string]string
		own   map[string]string // files that the exporter reads
		open  opener
	}
	profiling := map[string]string{"/etc/dcgm-exporter/default-counters.csv": "DCGM_FI_PROF_DRAM_ACTIVE, gauge, D\n"}
	both := map[string]string{"/etc/dcgm-exporter/default-counters.csv": "DCGM_FI_DEV_GPU_TEMP, gauge, T\nDCGM_FI_PROF_DRAM_ACTIVE, gauge, D\n"}
	noCapability := "CapEff:\t00000000a80425fb\n"
	tests := []struct {
		name   string
		world  surroundings
		args   []string
		want   string // the row that is expected
		advice string // substring of its advice
	}{
		{"no driver", surroundings{files: map[string]string{"/proc/driver/nvidia/version": "-"}}, nil,
			"fail driver: no NVIDIA kernel module is loaded", "will then find the GPU"},
		{"nouveau", surroundings{files: map[string]string{"/proc/driver/nvidia/version": "-", "/proc/modules": "drm 1 0 - Live 0\nnouveau 2 0 - Live 0\n"}}, nil,
			"fail driver: the nouveau driver controls the GPU", "blacklist nouveau"},
		{"driver outside the container", surroundings{files: map[string]string{"/proc/driver/nvidia/version": "-", "/proc/modules": "nvidia 2 0 - Live 0\n"}}, nil,
			"fail driver: the NVIDIA kernel module is loaded, but /proc/driver/nvidia is not visible", "runtimeClassName: nvidia"},
		{"a version in an unknown form", surroundings{files: map[string]string{"/proc/driver/nvidia/version": "NVRM version: new form\n"}}, nil,
			"ok driver: NVIDIA kernel module of an unknown version", ""},
		{"no control file", surroundings{files: map[string]string{"/dev/nvidiactl": "-"}}, nil,
			"fail device files: /dev/nvidiactl: no such file or directory", "nvidia-modprobe"},
		{"no device file of a GPU", surroundings{files: map[string]string{"/dev/nvidia0": "-", "/dev/nvidia1": "-"}}, nil,
			"fail device files: there is no /dev/nvidia0", "NVIDIA_VISIBLE_DEVICES=all"},
		{"one GPU without a device file", surroundings{files: map[string]string{"/dev/nvidia1": "-"}}, nil,
			"warn device files: device files exist for 1 of the machine's 2 GPUs", "NVIDIA_VISIBLE_DEVICES=all"},
		{"no NVML", surroundings{files: map[string]string{"/usr/lib64/libnvidia-ml.so.1": "-"}}, nil,
			"fail NVML: libnvidia-ml.so.1 was not found", "LD_LIBRARY_PATH"},
		{"NVML elsewhere", surroundings{files: map[string]string{"/usr/lib64/libnvidia-ml.so.1": "-", "/opt/nv/libnvidia-ml.so.1": ""}, env: map[string]string{"LD_LIBRARY_PATH": ":/opt/nv"}}, nil,
			"ok NVML: /opt/nv/libnvidia-ml.so.1", ""},
		{"no DCGM, but NVML", surroundings{files: map[string]string{"/opt/dcgm/lib/libdcgm.so.4": "-"}}, nil,
			"warn DCGM: libdcgm.so.4 was not found", "NVML is used instead"},
		{"an older DCGM", surroundings{files: map[string]string{"/opt/dcgm/lib/libdcgm.so.4": "-", "/usr/lib64/libdcgm.so.3": ""}}, nil,
			"warn DCGM: /usr/lib64/libdcgm.so.3 is not from DCGM 4", "Install datacenter-gpu-manager-4-core"},
		{"no DCGM, but it is required", surroundings{files: map[string]string{"/opt/dcgm/lib/libdcgm.so.4": "-"}}, []string{"--source=dcgm"},
			"fail DCGM: libdcgm.so.4 was not found", "--source=nvml"},
		{"no DCGM, and no fallback", surroundings{files: map[string]string{"/opt/dcgm/lib/libdcgm.so.4": "-"}}, []string{"--fallback=none"},
			"fail DCGM: libdcgm.so.4 was not found", "--source=nvml"},
		{"no DCGM, for a remote engine", surroundings{files: map[string]string{"/opt/dcgm/lib/libdcgm.so.4": "-"}}, []string{"-r=host"},
			"fail DCGM: libdcgm.so.4 was not found", "Install datacenter-gpu-manager-4-core; in a container use the image without -nvml in its tag."},
		{"no DCGM, for a remote engine, but NVML", surroundings{files: map[string]string{"/opt/dcgm/lib/libdcgm.so.4": "-"}}, []string{"-r=host", "--fallback=nvml"},
			"warn DCGM: libdcgm.so.4 was not found", "NVML is used instead"},
		{"no DCGM, for an engine on this machine", surroundings{files: map[string]string{"/opt/dcgm/lib/libdcgm.so.4": "-"}}, []string{"-r=localhost"},
			"warn DCGM: libdcgm.so.4 was not found", "NVML is used instead"},
		{"another engine", surroundings{dial: answers("tcp 127.0.0.1:5555")}, nil,
			"warn host engine: embedded, but another host engine answers on port 5555", "--remote-hostengine-info=localhost:5555"},
		{"a remote engine", surroundings{dial: answers("tcp nvidia-dcgm:5555")}, []string{"-r=nvidia-dcgm"},
			"ok host engine: nvidia-dcgm:5555 accepts connections; the source check shows whether it answers", ""},
		{"a remote IPv6 engine", surroundings{dial: answers("tcp [::1]:5556")}, []string{"-r=tcp://[::1]:5556"},
			"warn host engine: [::1]:5556 accepts connections, but large replies over loopback TCP are delayed by 40 to 120 ms", "unix://"},
		{"a remote IPv6 engine without a port", surroundings{dial: answers("tcp [::1]:5555")}, []string{"-r=[::1]"},
			"warn host engine: [::1]:5555 accepts connections, but large replies over loopback TCP are delayed by 40 to 120 ms", "unix://"},
		{"a remote engine on this machine", surroundings{dial: answers("tcp localhost:5555")}, []string{"-r=localhost"},
			"warn host engine: localhost:5555 accepts connections, but large replies over loopback TCP are delayed by 40 to 120 ms", "--domain-socket"},
		{"a remote engine elsewhere", surroundings{dial: answers("tcp 10.0.0.9:5555")}, []string{"-r=10.0.0.9"},
			"ok host engine: 10.0.0.9:5555 accepts connections; the source check shows whether it answers", ""},
		{"a remote engine that does not exist", surroundings{}, []string{"-r=host:1"},
			"fail host engine: host:1: connection refused", "nv-hostengine"},
		{"an engine's socket without permission", surroundings{dial: fails(syscall.EACCES)}, []string{"-r=unix:///run/dcgm.sock"},
			"fail host engine: unix:///run/dcgm.sock: permission denied", "Allow the process to use the socket"},
		{"an engine's socket that does not exist", surroundings{dial: fails(syscall.ENOENT)}, []string{"-r=unix:///run/dcgm.sock"},
			"fail host engine: unix:///run/dcgm.sock: no such file or directory", "--domain-socket"},
		{"an engine's socket on which nothing listens", surroundings{dial: fails(syscall.ECONNREFUSED)}, []string{"-r=unix:///run/dcgm.sock"},
			"fail host engine: unix:///run/dcgm.sock: connection refused", "mount the socket's folder"},
		{"an engine's file that is no socket", surroundings{dial: fails(syscall.ENOTSOCK)}, []string{"-r=unix:///run/dcgm.sock"},
			"fail host engine: unix:///run/dcgm.sock: socket operation on non-socket", "check the path"},
		{"an engine's socket", surroundings{dial: answers("unix /run/dcgm.sock")}, []string{"-r=unix:///run/dcgm.sock"},
			"ok host engine: unix:///run/dcgm.sock accepts connections; the source check shows whether it answers", ""},
		{"a vsock", surroundings{}, []string{"-r=vsock://2:5555"},
			"ok host engine: vsock://2:5555 is a vsock address; only the source check below connects to it", ""},
		{"nothing to profile", surroundings{files: map[string]string{"/proc/self/status": noCapability}, own: map[string]string{"/etc/dcgm-exporter/default-counters.csv": "DCGM_FI_DEV_GPU_TEMP, gauge, T\n"}}, nil,
			"ok profiling: no profiling metric is configured", ""},
		{"profiling without DCGM", surroundings{files: map[string]string{"/opt/dcgm/lib/libdcgm.so.4": "-"}, own: profiling}, nil,
			"warn profiling: 1 profiling metric configured, without DCGM", "Hopper and later need neither"},
		{"profiling with NVML", surroundings{own: profiling}, []string{"--source=nvml"},
			"warn profiling: 1 profiling metric configured, without DCGM", "Hopper and later need neither"},
		{"no permission to profile", surroundings{files: map[string]string{"/proc/self/status": noCapability}, own: profiling}, nil,
			"warn profiling: 1 profiling metric configured, without CAP_SYS_ADMIN", "before Hopper"},
		{"no permission to profile, and no driver parameters", surroundings{files: map[string]string{"/proc/self/status": noCapability, "/proc/driver/nvidia/params": "-"}, own: profiling}, nil,
			"warn profiling: 1 profiling metric configured, without CAP_SYS_ADMIN", "before Hopper"},
		{"a driver that lets every user profile", surroundings{files: map[string]string{"/proc/self/status": noCapability, "/proc/driver/nvidia/params": "A: 1\nRmProfilingAdminOnly: 0\n"}, own: profiling}, nil,
			"ok profiling: 1 profiling metric configured; the driver lets every user profile (NVreg_RestrictProfilingToAdminUsers=0)", ""},
		{"unknown capabilities", surroundings{files: map[string]string{"/proc/self/status": "Name:\tx\n"}, own: profiling}, nil,
			"warn profiling: the capabilities in /proc/self/status cannot be read", "CAP_SYS_ADMIN"},
		{"capabilities in an unknown form", surroundings{files: map[string]string{"/proc/self/status": "CapEff: all\n"}, own: profiling}, nil,
			"warn profiling: the capabilities in /proc/self/status cannot be read", "CAP_SYS_ADMIN"},
		{"no kubelet", surroundings{}, []string{"-k"},
			"fail kubelet: /var/lib/kubelet/pod-resources/kubelet.sock: no such file or directory", "Mount the host's folder"},
		{"a file instead of a kubelet", surroundings{}, []string{"-k", "--pod-resources-kubelet-socket=/var/lib/kubelet/pod-resources/not-a-socket"},
			"fail kubelet: /var/lib/kubelet/pod-resources/not-a-socket: connection refused", "not the socket"},
		{"no NODE_NAME in a pod", surroundings{}, []string{"-k"},
			"warn node name: NODE_NAME is not set", "spec.nodeName"},
		{"no counters file", surroundings{}, []string{"-f=/none.csv"},
			"fail counters: open /none.csv: file does not exist", "--collectors"},
		{"a counters file without a usable line", surroundings{own: map[string]string{"/a.csv": "x\n"}}, []string{"-f=/a.csv"},
			"fail counters: /a.csv has no usable line", "dcgm-exporter check"},
		{"a counters file with a mistake", surroundings{own: map[string]string{"/a.csv": "x\nDCGM_FI_DEV_GPU_TEMP,gauge,T\n"}}, []string{"-f=/a.csv"},
			"warn counters: /a.csv lists 1 metric, and 1 line cannot be used", "dcgm-exporter check"},
		{"no source", surroundings{open: refuse(fmt.Errorf("%w: no driver", gpu.ErrUnavailable))}, nil,
			"fail source: unavailable: no driver", "will then find the GPU"},
		{"a source of another version", surroundings{open: refuse(fmt.Errorf("%w: 4.7 here, 4.5 there", gpu.ErrVersion))}, nil,
			"fail source: version mismatch: 4.7 here, 4.5 there", "same version"},
		{"a source without permission", surroundings{open: refuse(gpu.ErrPermission)}, nil,
			"fail source: no permission", "access"},
		{"a source that does not answer", surroundings{open: refuse(gpu.ErrTimeout)}, nil,
			"fail source: timeout", "XIDs"},
		{"a source with an unclassified error", surroundings{open: refuse(errors.New("strange"))}, nil,
			"fail source: strange", "Fix any failures"},
		{"profiling without DCGM", surroundings{open: lacking("needs_dcgm"), own: both}, nil,
			"warn missing: 1 field cannot be read: needs_dcgm", "the image without -nvml"},
		{"profiling without the capability", surroundings{open: lacking("needs_sys_admin"), own: both}, nil,
			"warn missing: 1 field cannot be read: needs_sys_admin", "profiling.enabled=true"},
		{"a setting without effect", surroundings{}, []string{"--disable-startup-validate"},
			"warn setting: --disable-startup-validate has no effect: the exporter starts without a driver and reports what is missing.", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files := healthy()
			for path, text := range tt.world.files {
				if files[path] = text; text == "-" {
					delete(files, path)
				}
			}
			m := machineOf(t, files)
			if tt.world.dial != nil {
				m.Dial = tt.world.dial
			}
			open := tt.world.open
			if open == nil {
				open = simulate
			}
			rows := examine(t, &world{Env: tt.world.env, Files: tt.world.own}, m, open, tt.args...)
			for _, r := range rows {
				row := fmt.Sprintf("%s %s: %s", r.State, r.Check, strings.ReplaceAll(r.Found, m.Root, ""))
				if (tt.want == "" || row == tt.want) && strings.Contains(r.Advice, tt.advice) && (tt.advice != "") == (r.Advice != "") {
					return
				}
			}
			t.Errorf("want row %q with advice %q; got:\n%s", tt.want, tt.advice, strings.Join(states(rows), "\n"))
		})
	}
}

// Every row has advice unless its state is ok. Only problems that follow from a missing driver have no advice of
// their own.
func TestFaultsComeWithAdvice(t *testing.T) {
	m := machineOf(t, nil)
	rows := examine(t, &world{}, m, refuse(gpu.ErrUnavailable), "--kubernetes=false")
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

// For a simulated node, doctor does not advise installing a driver.
func TestSimulatedNodeNeedsNothing(t *testing.T) {
	for _, r := range examine(t, &world{}, machineOf(t, nil), simulate, "--source=sim") {
		if r.State != "ok" {
			t.Errorf("check %s = %s: %s, want ok", r.Check, r.State, r.Found)
		}
	}
}

func TestDoctorsExitCode(t *testing.T) {
	for _, tt := range []struct {
		args []string
		open opener
		code int
		out  string // substring of the output
	}{
		{[]string{"--source=sim"}, simulate, command.OK, "ok    source          sim: 8 GPUs, 11 GPU instances, driver 570.124.06\n"},
		{[]string{"--source=sim"}, refuse(gpu.ErrLost), command.Faulty, "fail  source          lost\n                      > Fix any failures above. If there are none, check dmesg for XIDs, and run nvidia-smi.\n"},
		{[]string{"--source=x"}, nil, command.Unable, "expected auto, dcgm, nvml or sim"},
		{[]string{"x"}, nil, command.Unable, `unexpected argument "x"`},
	} {
		w := &world{Open: tt.open}
		m := machineOf(t, nil)
		p := w.process(tt.args...)
		p.Root, p.Dial = m.Root, m.Dial
		if code := run(t, "doctor", p); code != tt.code {
			t.Errorf("%q: exit code = %d, want %d", tt.args, code, tt.code)
		}
		if said := w.Out.String() + w.Err.String(); !strings.Contains(said, tt.out) {
			t.Errorf("%q: output = %q, want it to contain %q", tt.args, said, tt.out)
		}
	}
}
