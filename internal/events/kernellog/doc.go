// Package kernellog reads the XIDs and the SXIDs that the NVIDIA driver writes to the kernel's log. The log names the
// affected process, the link and the action, and still has lines when the engine has gone with the GPU.
//
// A Reader follows /dev/kmsg on a goroutine of its own, and buffers a bounded number of XIDs for the collector; losses, and
// lines that it does not understand, are counted. Of the time before it was opened it says when each XID came last. The
// package never writes to the log, and believes lines of the kernel alone.
package kernellog
