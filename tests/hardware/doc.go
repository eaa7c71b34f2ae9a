// Package hardware tests the sources with a real GPU. It runs the contract suite, compares values, fabric, placement
// and recovery with nvidia-smi and the kernel, checks that the driver is released, and compares NVML with DCGM. The
// tests have the build tag gpu.
//
// Tests are skipped if what they need is missing, unless an environment variable requires it: REQUIRE_GPU=1 for the
// GPU, REQUIRE_DCGM=1 for DCGM, REQUIRE_TELLING=1 for values that older drivers do not report. The tests only read.
// They do not change or reset the GPU.
package hardware
