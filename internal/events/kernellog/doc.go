// Package kernellog reads the XIDs and SXIDs that the NVIDIA driver writes to the kernel log. Unlike DCGM and
// NVML, the log names the affected process, the link and the recovery action. It can also be read after the GPU
// is lost.
//
// A Reader follows /dev/kmsg on its own goroutine and queues a bounded number of XIDs for the collector. It
// counts lost records and lines that it cannot parse. For the time before it was opened, it reports only the
// latest XID of each code and GPU. It accepts only lines written by the kernel, and never writes to the log.
package kernellog
