// Package runtimemapper says which containers use which GPUs on hosts without Kubernetes: an
// Attributor over the socket of Docker or Podman.
//
// It lists the running containers, inspects each once for its devices (device requests, CDI
// names, device nodes, NVIDIA_VISIBLE_DEVICES), and finds the GPUs and GPU instances of the
// topology that those words mean. The package owns the HTTP client of the socket; it only ever
// gets, every answer has a limit of size, and the caller's deadline bounds them all.
//
// It never guesses: words that it cannot resolve are counted, and a container that cannot work on a
// GPU (the exporter itself, or one with the utility part of the driver alone) owns none.
package runtimemapper
