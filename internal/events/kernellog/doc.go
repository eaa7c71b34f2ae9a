// Package kernellog reads the XIDs that the NVIDIA driver writes to the kernel's log. The log names the affected process,
// and still has lines when the engine has gone with the GPU.
//
// A Reader follows /dev/kmsg from its end on, on a goroutine of its own, and buffers a bounded number of XIDs for the
// collector; losses are counted. The package never writes to the log, and believes lines of the kernel alone.
package kernellog
