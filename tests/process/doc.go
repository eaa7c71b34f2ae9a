// Package process runs the built program as its users do: a process of its own, with the test
// libraries of DCGM and NVML in the place of NVIDIA's, and with signals.
package process
