// Package kernellog reads the XIDs that the NVIDIA driver writes to the kernel's log: a second
// witness beside the engine, which names the affected process, and which still reports when the
// engine has gone with the GPU.
//
// A Reader follows /dev/kmsg on a goroutine of its own and keeps the XIDs that it finds, in a
// bounded buffer, until the collector takes them; what the kernel or the buffer lost is counted.
// ParseRecord and ParseXID are its decoders.
//
// The package never writes to the log, never counts or pairs XIDs (the collector does), and takes
// no line that the kernel itself has not written.
package kernellog
