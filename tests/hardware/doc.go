// Package hardware tests the sources on a real GPU: the contract suite, values, fabric, placement
// and recovery against nvidia-smi and the kernel, releasing the driver, and NVML against DCGM where
// both are there. Its tests have the build tag gpu.
//
// Where there is no GPU they skip, and fail if REQUIRE_GPU is 1; the comparison with DCGM skips
// where there is no DCGM, and fails if REQUIRE_DCGM is 1; those of what older drivers do not report
// skip there, and fail if REQUIRE_TELLING is 1. They read only: nothing of the GPU is set or reset.
package hardware
