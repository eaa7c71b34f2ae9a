// Package kernellog reads the XIDs that the NVIDIA driver writes to the kernel's log, which names
// the affected process, and which still reports when the engine has gone with the GPU.
//
// A Reader follows /dev/kmsg from its end on, on a goroutine of its own, and keeps the XIDs that it
// finds in a bounded buffer until the collector drains it; what the kernel or the buffer lost is
// counted. ParseRecord and ParseXID are its decoders.
//
// The package never writes to the log, never counts XIDs (package events does), and believes no
// line that the kernel itself has not written.
package kernellog
