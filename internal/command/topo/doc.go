// Package topo prints how the GPUs of this machine are connected and where they sit, as people know
// it from "nvidia-smi topo -m".
//
// It reads the exporter's own flags, variables and file, opens the source for one cycle with a plan
// that requests the placement, and prints the topology. It changes nothing, and makes nothing up:
// what the source does not report is N/A.
package topo
