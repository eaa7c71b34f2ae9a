// Package integration runs the whole exporter in process, over the simulator, on a port of its own,
// and looks at it as Prometheus does.
package integration
