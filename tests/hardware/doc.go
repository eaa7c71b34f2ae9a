// Package hardware tests the sources with a real GPU. It runs the contract suite. It compares values, fabric, placement
// and recovery with nvidia-smi and the kernel, and NVML with DCGM. It also checks that the driver is released. The
// tests have the build tag gpu.
//
// A test is skipped if what it needs is missing, unless an environment variable requires it. REQUIRE_GPU=1 requires the
// GPU, REQUIRE_DCGM=1 requires DCGM, and REQUIRE_TELLING=1 requires values that older drivers do not report. The tests
// only read, and do not change or reset the GPU.
package hardware
