package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/hostengine"
	"github.com/gpu-telemetry/dcgm-exporter/internal/jobmapper"
	"github.com/gpu-telemetry/dcgm-exporter/internal/runtimemapper"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/hardware"
)

const (
	dialLimit = 3 * time.Second  // for a connection attempt
	podsLimit = 10 * time.Second // for the kubelet and the API server
	maxRows   = 20               // maximum number of rows of one check
)

// Advice of several checks.
const (
	inContainer = "In a container, run with the NVIDIA runtime (runtimeClassName: nvidia, or docker --gpus all) " +
		"and NVIDIA_VISIBLE_DEVICES=all."
	checkDriver = "check dmesg for XIDs, and run nvidia-smi."
	fixAbove    = "Fix any failures above. If there are none, " + checkDriver
	installDCGM = "Install datacenter-gpu-manager-4-core; in a container use the image without -nvml in its tag."
	seeCheck    = "Run dcgm-exporter check: it shows which lines cannot be used, and why."
)

// row is a result of a check. A row that is not ok has advice.
type row struct{ state, found, advice string }

// The states of a row.
const (
	good = "ok"
	warn = "warn" // less is served than could be
	fail = "fail" // something configured does not work
)

func passes(found string) []row        { return []row{{good, found, ""}} }
func warns(found, advice string) []row { return []row{{warn, found, advice}} }
func fails(found, advice string) []row { return []row{{fail, found, advice}} }

// failsFor returns a failed row for an error about a file or a socket. It shows only the text of the error number,
// because the whole error repeats the name. The advice depends on the error: the file is missing, access is denied, or
// anything else.
func failsFor(name string, err error, missing, denied, other string) []row {
	advice := other
	switch {
	case errors.Is(err, fs.ErrNotExist):
		advice = missing
	case errors.Is(err, fs.ErrPermission):
		advice = denied
	}
	if number := syscall.Errno(0); errors.As(err, &number) {
		err = number
	}
	return fails(name+": "+err.Error(), advice)
}

// examination is one run of doctor. Checks read the results of earlier ones.
type examination struct {
	*Process
	cfg         *config.Config
	set         app.CounterSet
	loadErr     error             // why the counters could not be loaded
	states      map[string]string // state of the last row of each check, by the name of the check
	topology    *gpu.Topology     // of the source, once it is open
	unavailable []gpu.FieldHealth // fields of the source without values
}

// doctor prints the rows of each check. The source is checked late, because opening it needs what the earlier checks
// test.
func doctor(ctx context.Context, p *Process) int {
	cfg, code := p.settings()
	if cfg == nil {
		return code
	}
	e := &examination{Process: p, cfg: cfg, states: map[string]string{}}
	e.set, e.loadErr = app.LoadCounters(ctx, cfg, p.ReadFile)
	kubernetes, kind := cfg.Kubernetes.Enabled, cfg.Source.Kind
	local := cfg.Source.Remote.IsEmbedded() && kind != config.SourceSim
	usesDCGM := kind == config.SourceDCGM || kind == config.SourceAuto
	for _, check := range []struct {
		name    string
		applies bool
		run     func(context.Context) []row
	}{
		{"setting", true, e.notices}, {"counters", true, e.counters},
		{"driver", local, e.driver}, {"device files", local, e.deviceFiles}, {"NVML", local, e.nvml},
		{"DCGM", usesDCGM, e.dcgm}, {"host engine", usesDCGM, e.engine}, {"profiling", local, e.profiling},
		{"kubelet", kubernetes, e.kubelet}, {"node name", kubernetes, e.nodeName},
		{"source", e.loadErr == nil, e.source}, {"missing", true, e.missing},
		{"device ids", kubernetes, e.deviceIDs}, {"job files", cfg.HPC.Dir != "", e.jobFiles},
		{"containers", cfg.Containers.Enabled && !kubernetes, e.containers},
	} {
		if !check.applies {
			continue
		}
		rows := check.run(ctx)
		if more := len(rows) - maxRows; more > 0 {
			rows = append(rows[:maxRows], warns(fmt.Sprintf("%d more", more), "Fix those above first.")...)
		}
		for _, r := range rows {
			if e.states["driver"] == fail && (check.name == "device files" || check.name == "NVML") {
				r.advice = "" // the driver's advice comes first
			}
			fmt.Fprintf(p.Out, "%-4s  %-14s  %s\n", r.state, check.name, r.found)
			if r.advice != "" {
				fmt.Fprintf(p.Out, "%24s%s\n", "> ", r.advice)
			}
			if e.states[check.name] = r.state; r.state == fail {
				code = Faulty
			}
		}
	}
	return code
}

func (e *examination) notices(context.Context) (rows []row) {
	for _, notice := range e.cfg.Notices {
		rows = append(rows, warns(notice, "")...)
	}
	return rows
}

func (e *examination) nodeName(context.Context) []row {
	if name := e.cfg.Labels.NodeName; name != "" {
		return passes(name)
	}
	return warns("NODE_NAME is not set",
		"Set it from spec.nodeName (fieldRef). Otherwise the host label is the pod's name.")
}

func (e *examination) counters(context.Context) []row {
	if e.loadErr != nil {
		return fails(e.loadErr.Error(),
			"Set --collectors to a file that the exporter's user can read, or omit it to use the built-in file.")
	}
	unusable := 0
	for _, p := range e.set.Problems {
		if !p.Warning {
			unusable++
		}
	}
	found := e.set.Name + " lists " + plural(len(e.set.Requests), "metric")
	switch {
	case len(e.set.Requests) == 0:
		return fails(e.set.Name+" has no usable line", seeCheck)
	case unusable > 0:
		return warns(found+", and "+plural(unusable, "line")+" cannot be used", seeCheck)
	}
	return passes(found)
}

// driverVersion matches the version in "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 …".
var driverVersion = regexp.MustCompile(`\s(\d+\.\d+(?:\.\d+)?)(?:\s|$)`)

func (e *examination) driver(context.Context) []row {
	if text, err := e.read("/proc/driver/nvidia/version"); err == nil {
		version := "of an unknown version"
		line, _, _ := strings.Cut(text, "\n")
		if found := driverVersion.FindStringSubmatch(line); found != nil {
			version = found[1]
		}
		return passes("NVIDIA kernel module " + version)
	}
	modules, _ := e.read("/proc/modules")
	loaded := func(module string) bool { return strings.Contains("\n"+modules, "\n"+module+" ") }
	switch {
	case loaded("nvidia"):
		return fails("the NVIDIA kernel module is loaded, but /proc/driver/nvidia is not visible", inContainer)
	case loaded("nouveau"):
		return fails("the nouveau driver controls the GPU",
			"Install NVIDIA's driver and blacklist nouveau. A running exporter will then find the GPU.")
	}
	return fails("no NVIDIA kernel module is loaded",
		"Install NVIDIA's driver. A running exporter will then find the GPU. Without a GPU, try --source=sim.")
}

func (e *examination) deviceFiles(context.Context) []row {
	gpus, known := len(e.glob("/dev/nvidia[0-9]*")), len(e.glob("/proc/driver/nvidia/gpus/*"))
	// Every NVIDIA tool opens the control file first. That does not wake a GPU.
	control, err := os.OpenFile(e.at("/dev/nvidiactl"), os.O_RDWR, 0)
	if err == nil {
		err = control.Close()
	}
	switch {
	case err != nil:
		const access = "Give the process access to the device files. In a systemd unit, add " +
			"DeviceAllow=/dev/nvidiactl rw. " + inContainer
		const create = "Run nvidia-modprobe or nvidia-smi once on the host. " + inContainer
		return failsFor("/dev/nvidiactl", err, create, access, access)
	case gpus == 0:
		return fails("there is no /dev/nvidia0", inContainer)
	case gpus < known:
		return warns(fmt.Sprintf("device files exist for %d of the machine's %d GPUs", gpus, known),
			"In a container, set NVIDIA_VISIBLE_DEVICES=all to monitor every GPU.")
	}
	return passes("/dev/nvidiactl and " + plural(gpus, "GPU"))
}

func (e *examination) nvml(context.Context) []row {
	if found := e.library("libnvidia-ml.so.1"); len(found) > 0 {
		return passes(found[0])
	}
	return fails("libnvidia-ml.so.1 was not found",
		"The driver installs it. If it is in another directory, add that directory to LD_LIBRARY_PATH. "+inContainer)
}

// dcgm checks for the library of DCGM 4, the supported ABI.
func (e *examination) dcgm(context.Context) []row {
	if found := e.library("libdcgm.so.4"); len(found) > 0 {
		return passes(found[0])
	}
	missing := "libdcgm.so.4 was not found"
	if others := e.library("libdcgm.so"); len(others) > 0 {
		missing = others[0] + " is not from DCGM 4"
	}
	switch {
	case app.FallsBackToNVML(e.cfg):
		return warns(missing, "NVML is used instead. NVSwitches, and profiling before Hopper, need DCGM. "+installDCGM)
	case e.cfg.Source.Remote.IsEmbedded():
		return fails(missing, installDCGM+" Without DCGM use --source=nvml.")
	}
	return fails(missing, installDCGM)
}

// engine checks for the host engine, or for a second one besides the embedded engine.
func (e *examination) engine(ctx context.Context) []row {
	address := e.cfg.Source.Remote
	if address.IsEmbedded() {
		local := hostengine.Address{Transport: hostengine.TCP, Host: "127.0.0.1", Port: hostengine.DefaultPort}
		if e.reach(ctx, "tcp", local.Endpoint()) != nil {
			return passes(fmt.Sprintf("embedded; no other host engine answers on port %d", local.Port))
		}
		return warns(fmt.Sprintf("embedded, but another host engine answers on port %d", local.Port),
			"On GPUs older than Hopper, only one host engine can profile at a time. "+
				fmt.Sprintf("Use the running one: --remote-hostengine-info=localhost:%d.", local.Port))
	}
	network, target := address.Dial()
	if network == "" { // vsock, which package net cannot dial
		return passes(address.String() + " is a vsock address; only the source check below connects to it")
	}
	err := e.reach(ctx, network, target)
	switch {
	case err == nil && address.Transport == hostengine.TCP && address.IsLocal():
		// Replies larger than one segment wait for a delayed acknowledgment on loopback: 44 to 114 ms on DCGM 4.6.
		const delayed = " accepts connections, but large replies over loopback TCP are delayed by 40 to 120 ms"
		return warns(address.String()+delayed, "Over a unix socket the delay is less than 1 ms. "+
			"Start nv-hostengine with --domain-socket PATH, and use --remote-hostengine-info=unix://PATH.")
	case err == nil:
		return passes(address.String() + " accepts connections; the source check shows whether it answers")
	}
	advice := "Start nv-hostengine on that machine with -b ALL, so that it also listens outside loopback. " +
		"Check the name, the port and network policies."
	if address.Transport == hostengine.Unix {
		advice = "Start nv-hostengine with --domain-socket, and check the path of its socket. " +
			"In a container, mount the socket's folder, not the socket."
	}
	return failsFor(address.String(), err, advice, "Allow the process to use the socket.", advice)
}

// profiling checks the permissions for profiling metrics.
func (e *examination) profiling(context.Context) []row {
	wanted := 0
	for _, r := range e.set.Requests {
		if r.Named.Entry.Profiling {
			wanted++
		}
	}
	configured, right := plural(wanted, "profiling metric")+" configured", hardware.ProfilingRightOf(e.read)
	switch {
	case wanted == 0:
		return passes("no profiling metric is configured")
	case e.states["DCGM"] != good:
		return warns(configured+", without DCGM",
			"GPUs before Hopper need DCGM and CAP_SYS_ADMIN. Hopper and later need neither.")
	case right == hardware.RightUnknown:
		return warns("the capabilities in /proc/self/status cannot be read",
			"Profiling metrics need CAP_SYS_ADMIN on GPUs before Hopper.")
	case right == hardware.RightCapability:
		return passes(configured + "; CAP_SYS_ADMIN is present")
	case right == hardware.RightForAll:
		const everyUser = "; the driver lets every user profile (NVreg_RestrictProfilingToAdminUsers=0)"
		return passes(configured + everyUser)
	}
	return warns(configured+", without CAP_SYS_ADMIN",
		"GPUs before Hopper need it: add the capability (securityContext.capabilities.add, AmbientCapabilities=), "+
			"or use a host engine that has it (--remote-hostengine-info).")
}

// missing returns a row for each reason why fields cannot be read that has a remedy.
func (e *examination) missing(context.Context) (rows []row) {
	for _, remedy := range [][2]string{
		{gpu.Reason(gpu.ErrNeedsDCGM), "Install datacenter-gpu-manager-4-core and -4-proprietary; " +
			"in a container use the image without -nvml in its tag. Leave out --source=nvml."},
		{gpu.Reason(gpu.ErrNeedsAdmin), "Run as root with the capability SYS_ADMIN: " +
			"profiling.enabled=true in the chart, --user 0:0 --cap-add SYS_ADMIN in Docker, " +
			"the drop-in profiling.conf in systemd. A separate host engine needs the capability itself."},
	} {
		fields := map[string]bool{}
		for _, f := range e.unavailable {
			if f.Reason == remedy[0] {
				fields[f.Field] = true
			}
		}
		if n := len(fields); n > 0 {
			rows = append(rows, warns(plural(n, "field")+" cannot be read: "+remedy[0], remedy[1])...)
		}
	}
	return rows
}

func (e *examination) kubelet(ctx context.Context) []row {
	const folder = "Mount the host's folder /var/lib/kubelet/pod-resources, not the socket: " +
		"the kubelet creates a new socket when it restarts. Or set --pod-resources-kubelet-socket."
	const denied = "Run as user 0 (no capability is needed), or with the group of the folder, whose mode is 0750."
	return e.socket(ctx, []string{e.cfg.Kubernetes.Socket}, folder, denied)
}

// containers checks the container runtime's socket.
func (e *examination) containers(ctx context.Context) []row {
	sockets := runtimemapper.DefaultSockets()
	if configured := e.cfg.Containers.Socket; configured != "" {
		sockets = []string{strings.TrimPrefix(configured, "unix://")}
	}
	const start = "Start the container runtime, or set --container-runtime-socket. In a container, mount the socket."
	return e.socket(ctx, sockets, start, "Run as a user or group that may use the socket.")
}

// socket connects to the first socket that exists, like the exporter.
func (e *examination) socket(ctx context.Context, sockets []string, missing, denied string) []row {
	name, err := strings.Join(sockets, ", "), error(nil)
	for _, socket := range sockets {
		if _, err = os.Stat(e.at(socket)); !errors.Is(err, fs.ErrNotExist) {
			name, err = socket, e.reach(ctx, "unix", socket)
			break
		}
	}
	if err != nil {
		return failsFor(name, err, missing, denied, missing)
	}
	return passes(name + " answers")
}

// source opens the source as the exporter would and describes it.
func (e *examination) source(ctx context.Context) (rows []row) {
	plan, err := e.set.Plan(e.cfg, time.Second)
	if err == nil {
		err = e.collect(ctx, e.cfg, plan, 1, func(s *gpu.Snapshot) {
			rows, e.topology, e.unavailable = opened(s), s.Topology, slices.Clone(s.Health.Unavailable)
		})
	}
	advice := fixAbove
	switch {
	case err == nil:
		return rows
	case errors.Is(err, gpu.ErrVersion):
		advice = "Install the same version of DCGM here and on the host engine's machine."
	case errors.Is(err, gpu.ErrPermission):
		advice = "Give the process access to the device files and sockets above."
	case gpu.Reason(err) == "timeout", errors.Is(err, gpu.ErrWedged):
		advice = "The driver or the host engine does not answer: " + checkDriver
	case errors.Is(err, gpu.ErrUnavailable):
		advice = "Fix any failures above first. A running exporter keeps retrying and will then find the GPU."
	}
	return fails(err.Error(), advice)
}

func opened(s *gpu.Snapshot) []row {
	gpus, lost := s.Topology.RowsOf(gpu.KindsOf(gpu.KindGPU)), 0
	for _, i := range gpus {
		if i < len(s.Health.Entities) && s.Health.Entities[i].Err != nil {
			lost++
		}
	}
	found := describe(s.Topology)
	switch {
	case s.Health.Err != nil:
		return fails(found+"; the first read failed: "+s.Health.Err.Error(), fixAbove)
	case len(gpus) == 0:
		return warns(found, "No GPU is visible. "+inContainer)
	case lost > 0:
		return warns(found+"; "+plural(lost, "GPU")+" cannot be read",
			"Check dmesg for XIDs. A GPU that fell off the bus needs a reset or a reboot.")
	}
	return passes(found)
}

// deviceIDs returns a row for each device of a container that matches no entity of the source.
func (e *examination) deviceIDs(ctx context.Context) (rows []row) {
	if e.states["kubelet"] == fail || e.topology == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, podsLimit)
	defer cancel()
	unmatched, err := e.Unmatched(ctx, e.cfg, e.topology)
	switch {
	case err != nil:
		return fails(err.Error(), "Check the kubelet's log.")
	case len(unmatched) == 0:
		return passes("every container's GPU is known to the source")
	}
	for _, u := range unmatched {
		rows = append(rows, warns(fmt.Sprintf("%s (%s) of container %s in pod %s/%s matches no device",
			u.Device, u.Resource, u.Container, u.Namespace, u.Pod), u.Why)...)
	}
	return rows
}

// jobFiles checks the folder of job files. It returns a row for each file whose name matches no GPU.
func (e *examination) jobFiles(ctx context.Context) (rows []row) {
	dir, topology := e.cfg.HPC.Dir, e.topology
	if topology == nil { // the source is not open: check only the folder
		topology = gpu.NewTopology(nil)
	}
	unmatched, err := jobmapper.New(jobmapper.Options{Dir: e.at(dir)}).Unmatched(ctx, topology)
	switch {
	case err != nil:
		return failsFor(dir, err,
			"Create it at boot, for example with tmpfiles.d. In a container, mount the host's folder.",
			"Let the exporter's user read the folder.",
			"Set --hpc-job-mapping-dir to the folder that the scheduler writes.")
	case e.topology == nil || len(unmatched) == 0:
		return passes(dir + " can be read")
	}
	for _, name := range unmatched {
		rows = append(rows, warns(fmt.Sprintf("%s in %s matches no GPU", name, dir),
			"Name it by GPU index (0), GPU instance (0.1), GPU-UUID, GPU-UUID.INSTANCE or MIG-UUID.")...)
	}
	return rows
}

// at returns the path below Root.
func (p *Process) at(path string) string { return filepath.Join(p.Root, path) }

func (p *Process) read(path string) (string, error) {
	data, err := os.ReadFile(p.at(path))
	return string(data), err
}

// glob returns the matching paths, without Root.
func (p *Process) glob(pattern string) []string {
	found, _ := filepath.Glob(p.at(pattern)) // ignore the error: the patterns are constant and valid
	for i, path := range found {
		found[i] = "/" + strings.TrimPrefix(strings.TrimPrefix(path, p.Root), "/")
	}
	return found
}

// reach connects to an address and closes the connection.
func (p *Process) reach(ctx context.Context, network, address string) error {
	if network == "unix" {
		address = p.at(address)
	}
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	conn, err := p.Dial(ctx, network, address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// library returns the files whose names begin with a library's name. It searches LD_LIBRARY_PATH, the folders of
// ld.so.conf, and common folders of container images.
func (p *Process) library(name string) (found []string) {
	list, _ := p.Env("LD_LIBRARY_PATH")
	folders := filepath.SplitList(list)
	for _, file := range append([]string{"/etc/ld.so.conf"}, p.glob("/etc/ld.so.conf.d/*.conf")...) {
		text, _ := p.read(file)
		folders = append(folders, strings.Fields(text)...)
	}
	folders = append(folders,
		"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/lib64", "/usr/lib", "/usr/local/lib",
		"/usr/local/nvidia/lib64",                     // NVIDIA's images and GKE
		"/usr/local/cuda/compat",                      // CUDA's images
		"/run/opengl-driver/lib",                      // NixOS
		"/run/nvidia/driver/usr/lib/x86_64-linux-gnu", // the GPU Operator's driver container
	)
	for _, folder := range folders {
		if strings.HasPrefix(folder, "/") {
			found = append(found, p.glob(folder+"/"+name+"*")...)
		}
	}
	return found
}
