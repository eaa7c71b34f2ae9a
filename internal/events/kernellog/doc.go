// Package kernellog reads the XIDs and SXIDs that the NVIDIA driver writes to the kernel log. Unlike DCGM and NVML, the
// log names the affected process, the link and the recovery action, and it can be read when the GPU is lost.
//
// A Reader follows /dev/kmsg on its own goroutine and buffers a bounded number of XIDs for the collector. It counts
// losses and lines that it does not understand. Of the records from before it was opened, it reports the latest of each
// XID. It ignores lines that the kernel did not write, and never writes to the log.
package kernellog
