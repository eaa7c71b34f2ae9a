package host

import (
	"fmt"
	"path"
	"regexp"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// libcuda matches the driver's library, whose name ends in the driver's version.
var libcuda = regexp.MustCompile(`/libcuda\.so\.(\d{3,4}\.\d+(?:\.\d+)?)$`)

// libraryDirs are the directories of the driver's libraries, below the driver's root.
var libraryDirs = []string{"/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64",
	"/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib"}

// libraryIn returns the version of the first libcuda library found below base, or "".
func (n *inspection) libraryIn(base string) string {
	for _, dir := range libraryDirs {
		for _, file := range n.glob(path.Join(base, dir, "libcuda.so.*")) {
			if m := libcuda.FindStringSubmatch(file); m != nil {
				return m[1]
			}
		}
	}
	return ""
}

// libraries checks that only one set of driver libraries exists, and that its version is that of the loaded kernel
// module. If the versions differ, every CUDA program fails.
func (n *inspection) libraries(f *check.Finding) error {
	const restart = "kubectl delete pod -n gpu-operator -l app=%s --field-selector spec.nodeName=%s"
	roots := []string{"/", driverDir}
	if n.passed.driverRoot != "" {
		roots = append(roots, path.Clean(n.passed.driverRoot)) // differs with hostPaths.driverInstallDir
	}
	versions := make([]string, len(roots))
	for i, r := range roots {
		versions[i] = n.libraryIn(r)
	}
	first := slices.IndexFunc(versions, func(v string) bool { return v != "" })
	switch {
	case first < 0 && n.version == "": // driverModule reports that no module is loaded
	case first < 0 && !n.hasAny(append(libraryDirs, driverDir)...):
		return fmt.Errorf("%s has neither a library folder nor %s", n.path, driverDir)
	case first < 0:
		f.Say(check.Error, "the kernel module %s is loaded, but there is no libcuda.so in / or %s: the driver's "+
			"libraries are not installed, or the driver container's root is not mounted", n.version, driverDir)
		f.Fix = fmt.Sprintf(restart, "nvidia-driver-daemonset", n.name)
	case n.version != "" && versions[first] != n.version:
		f.Say(check.Error, "the libraries in %s are %s, but the loaded kernel module is %s: "+
			"CUDA programs fail with a driver/library version mismatch", roots[first], versions[first], n.version)
		f.Fix = "stop all GPU processes and reload the module, or reboot the node"
	case versions[0] != "" && versions[1] != "":
		f.Say(check.Warning, "two drivers: %s installed on the node, and %s from a driver container in %s; "+
			"the validator uses the node's driver", versions[0], versions[1], driverDir)
	case len(roots) > 2 && roots[2] != roots[first]:
		f.Say(check.Warning, "driver-ready contains the root %s, but the libraries are in %s: "+
			"the driver has moved since it was validated", n.passed.driverRoot, roots[first])
		f.Fix = fmt.Sprintf(restart, "nvidia-operator-validator", n.name)
	default:
		f.Say(check.OK, "%s in %s", versions[first], roots[first])
	}
	return nil
}
