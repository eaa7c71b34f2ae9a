package telemetry

import (
	"fmt"
	"strings"
)

// A role is what a family says, whatever its name.
type role int

const (
	podActive role = iota // part of the time in which the pod's work ran
	podMemory             // bytes
	podInfo               // how the pod has the device
	active                // part of the time in which the GPU or instance was active
	utilized              // the same where it is not profiled: a kernel ran
	sm                    // part of the SMs' cycles
	occupancy             // resident warps of the most there can be
	dram                  // part of the memory's cycles
	used                  // bytes
	free
	reserved
	total
	license  // 1 for a vGPU that is licensed: the machine is a guest
	pair     // how two GPUs are connected
	affinity // NUMA node and CPUs of a GPU
	card     // a ConnectX card
)

const mebibyte = 1 << 20

// A family is a name under which a role is served, and the factor to base units.
type family struct {
	role  role
	name  string
	scale float64
}

// families are all that are read: of each role the names of this exporter's classic vocabulary,
// which are those of NVIDIA's exporter until 4.8, and of the current one, which are those since 4.9
// (docs/metrics.md).
var families = [...]family{
	{podActive, "dcgm_pod_gpu_utilization_ratio", 1},
	{podMemory, "dcgm_pod_gpu_memory_used_bytes", 1},
	{podInfo, "dcgm_pod_gpu_info", 1},
	{active, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", 1},
	{active, "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", 1},
	{utilized, "DCGM_FI_DEV_GPU_UTIL", 0.01},
	{utilized, "DCGM_FI_DEV_GPU_UTIL_RATIO", 1},
	{sm, "DCGM_FI_PROF_SM_ACTIVE", 1},
	{sm, "DCGM_FI_PROF_SM_UTIL_RATIO", 1},
	{occupancy, "DCGM_FI_PROF_SM_OCCUPANCY", 1},
	{occupancy, "DCGM_FI_PROF_SM_OCCUPANCY_RATIO", 1},
	{dram, "DCGM_FI_PROF_DRAM_ACTIVE", 1},
	{dram, "DCGM_FI_PROF_DRAM_UTIL_RATIO", 1},
	{used, "DCGM_FI_DEV_FB_USED", mebibyte},
	{used, "DCGM_FI_DEV_FB_USED_BYTES", 1},
	{free, "DCGM_FI_DEV_FB_FREE", mebibyte},
	{free, "DCGM_FI_DEV_FB_FREE_BYTES", 1},
	{reserved, "DCGM_FI_DEV_FB_RESERVED", mebibyte},
	{reserved, "DCGM_FI_DEV_FB_RESERVED_BYTES", 1},
	{total, "DCGM_FI_DEV_FB_TOTAL", mebibyte},
	{total, "DCGM_FI_DEV_FB_CAPACITY_BYTES", 1},
	{license, "DCGM_FI_DEV_VGPU_LICENSE_STATUS", 1},
	{pair, "DCGM_EXP_GPU_PAIR_INFO", 1},
	{affinity, "DCGM_EXP_GPU_AFFINITY_INFO", 1},
	{card, "DCGM_FI_DEV_CONNECTX_HEALTH", 1},
}

// placing are the roles that Placement reads; Usage reads all others.
func (r role) placing() bool { return r >= pair }

// chosen are the families of Usage or of Placement.
func chosen(placing bool) (all []family, names []string) {
	for _, f := range families {
		if f.role.placing() == placing {
			all, names = append(all, f), append(names, f.name)
		}
	}
	return all, names
}

// nothing is the error where none of the names is served.
func nothing(where string, names []string) error {
	return fmt.Errorf("%w: %s has no series of a GPU exporter; looked for %s", ErrNoSeries, where, strings.Join(names, ", "))
}
