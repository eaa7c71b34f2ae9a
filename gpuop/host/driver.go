package host

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

const (
	sourceRoots   = "gpu-operator internal/driver/root.go, cmd/nvidia-validator/main.go"
	sourceMinor   = "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html, table 1"
	sourceCUDA    = "https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/, table 3, Linux x86_64"
	driverRestart = "kubectl delete pod -n gpu-operator -l app=nvidia-driver-daemonset --field-selector spec.nodeName="
)

// libcuda is the driver's library, whose name ends in the driver's version.
var libcuda = regexp.MustCompile(`/libcuda\.so\.(\d{3,4}\.\d+(?:\.\d+)?)$`)

// libraryDirs are the folders of the driver's libraries under its root.
var libraryDirs = []string{"/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib"}

// libraryIn returns the version of the driver's libraries under a root of the node, "" without.
func (n *node) libraryIn(base string) string {
	for _, dir := range libraryDirs {
		for _, file := range n.glob(path.Join(base, dir, "libcuda.so.*")) {
			if m := libcuda.FindStringSubmatch(file); m != nil {
				return m[1]
			}
		}
	}
	return ""
}

// libraries says under which root the driver's libraries are, and whether they are of the loaded
// kernel module's version: every CUDA program fails where they differ.
func (n *node) libraries() {
	const id, subject = "driver-libraries", "driver libraries"
	if !slices.ContainsFunc(libraryDirs, n.has) && !n.has(driverDir) {
		if n.version == "" {
			return // the row of the kernel module says it
		}
		n.add(id, report.Unknown, subject, "not judged: neither a folder of libraries nor "+driverDir+" is in "+n.path, "", sourceRoots)
		return
	}
	// driver-ready may name the root that hostPaths.driverInstallDir sets.
	roots := []string{"/", driverDir}
	if n.passed != nil && n.passed.known {
		roots = append(roots, path.Clean(n.passed.driverRoot))
	}
	versions := make([]string, len(roots))
	for i, r := range roots {
		versions[i] = n.libraryIn(r)
	}
	first := slices.IndexFunc(versions, func(v string) bool { return v != "" })
	if first < 0 {
		if n.version == "" {
			return // the row of the kernel module says it
		}
		n.add(id, report.Failed, subject, "the kernel module "+n.version+" is loaded, and no libcuda.so is on the node, neither in / nor in "+driverDir+": the driver container's root is not mounted there",
			driverRestart+n.name, sourceRoots)
		return
	}
	own, contained, at, found := versions[0], versions[1], roots[first], versions[first]
	switch {
	case n.version != "" && found != n.version:
		n.add(id, report.Failed, subject, fmt.Sprintf("the libraries in %s are %s, and the loaded kernel module is %s: every CUDA program ends with a driver/library version mismatch", at, found, n.version),
			"unload the module with all its clients stopped, or reboot the node", sourceRoots)
	case own != "" && contained != "":
		n.add(id, report.Warning, subject, fmt.Sprintf("the driver is there twice: %s installed on the node, and %s of a driver container in %s; the validator takes the node's own", own, contained, driverDir),
			"set driver.enabled=false, or remove the node's own driver", sourceRoots)
	case n.passed != nil && n.passed.known && path.Clean(n.passed.driverRoot) != at:
		n.add(id, report.Warning, subject, fmt.Sprintf("driver-ready names the root %s, and the libraries are in %s: the driver has moved since it was validated", n.passed.driverRoot, at),
			"kubectl delete pod -n gpu-operator -l app=nvidia-operator-validator --field-selector spec.nodeName="+n.name, sourceRoots)
	default:
		whose := []string{"installed on the node", "of the driver container", "where driver-ready says"}[first]
		n.add(id, report.OK, subject, fmt.Sprintf("%s in %s, %s", found, at, whose), "", sourceRoots)
	}
}

// shipped is the driver that each CUDA toolkit was released with: all its features work from there on.
// Each row is one of the table that sourceCUDA names, its first release.
var shipped = [...]struct{ cuda, driver string }{
	{"13.2", "595.45.04"}, {"13.1", "590.44.01"}, {"13.0", "580.65.06"},
	{"12.9", "575.51.03"}, {"12.8", "570.26"}, {"12.6", "560.28.03"}, {"12.5", "555.42.02"}, {"12.4", "550.54.14"},
	{"12.3", "545.23.06"}, {"12.2", "535.54.03"}, {"12.1", "530.30.02"}, {"12.0", "525.60.13"}, {"11.8", "520.61.05"},
}

// minors are the oldest drivers for each major version of the toolkit, with the limits of minor
// version compatibility. Each row is one of the table that sourceMinor names.
var minors = [...]struct{ major, branch int }{{13, 580}, {12, 525}, {11, 450}}

// cuda says which CUDA toolkits the driver runs.
func (n *node) cuda() {
	const id, subject = "cuda", "CUDA"
	if n.version == "" {
		return // the row of the kernel module says it
	}
	whole, runs := "", 0
	for _, row := range shipped {
		if compareVersions(n.version, row.driver) >= 0 {
			whole = row.cuda
			break
		}
	}
	branch, _ := strconv.Atoi(n.version[:strings.IndexByte(n.version, '.')])
	for _, row := range minors {
		if branch >= row.branch {
			runs = row.major
			break
		}
	}
	if runs == 0 {
		n.add(id, report.Warning, subject, "driver "+n.version+" is older than every driver that the table has: it runs CUDA 10 and older at most", "install a driver of a supported branch", sourceMinor)
		return
	}
	serves := fmt.Sprintf("driver %s runs what is built with CUDA %d.x and older", n.version, runs)
	if whole != "" && compareVersions(whole, shipped[0].cuda) < 0 {
		serves += ", all of it up to " + whole
	}
	want := n.opt.CUDA
	major, _ := strconv.Atoi(strings.SplitN(want, ".", 2)[0])
	switch {
	case want == "":
		n.add(id, report.OK, subject, serves, "", sourceCUDA)
	case major > minors[0].major:
		n.add(id, report.Unknown, subject, fmt.Sprintf("%s; whether it runs CUDA %s is not in the table, whose newest is %s", serves, want, shipped[0].cuda), "", sourceCUDA)
	case major > runs:
		n.add(id, report.Failed, subject, fmt.Sprintf("%s, and not CUDA %s: programs end with cudaErrorInsufficientDriver", serves, want),
			fmt.Sprintf("install driver %d or later, or an image with CUDA %d, or NVIDIA's cuda-compat package in the image", branchOf(major), runs), sourceMinor)
	case major == runs && whole != "" && compareVersions(want, whole) > 0:
		n.add(id, report.Warning, subject, fmt.Sprintf("%s; CUDA %s runs with minor version compatibility: programs that compile PTX when they start, and newer driver functions, fail", serves, want), "", sourceMinor)
	default:
		n.add(id, report.OK, subject, serves+", and so CUDA "+want, "", sourceCUDA)
	}
}

func branchOf(major int) int {
	for _, row := range minors {
		if row.major == major {
			return row.branch
		}
	}
	return 0
}

// compareVersions compares numbers with dots; a missing part is 0.
func compareVersions(a, b string) int {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(x), len(y)) {
		var p, q int
		if i < len(x) {
			p, _ = strconv.Atoi(x[i])
		}
		if i < len(y) {
			q, _ = strconv.Atoi(y[i])
		}
		if c := cmp.Compare(p, q); c != 0 {
			return c
		}
	}
	return 0
}
