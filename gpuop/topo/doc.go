// Package topo has how the GPUs and network cards of a node are connected and where they sit, as a
// matrix in the form of "nvidia-smi topo -m".
//
// A Node is filled from an exporter's series (package telemetry) or from the node's own sysfs (Host).
// Nothing is made up: what the source does not say is N/A.
package topo
