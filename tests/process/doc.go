// Package process tests the built program as its users run it: as a separate process, with signals and exit codes. The
// program reads the simulator, or test libraries that replace NVIDIA's DCGM and NVML. A headless Chromium checks the
// page at /.
package process
