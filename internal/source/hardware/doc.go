// Package hardware reads the GPUs of this machine through DCGM or NVML.
//
// A Source opens DCGM, and NVML while DCGM is unavailable. Its Run returns to DCGM as soon as DCGM is available, and
// ends when the driver or its library was replaced, since only a new process can load the new one. NVML adds to a DCGM
// session what DCGM does not report: the processes of shared GPUs and the positions of GPU instances.
//
// hardware.go chooses the driver when a session opens. Run waits until DCGM is available again, a missing driver or
// library exists, or a library was replaced.
package hardware
