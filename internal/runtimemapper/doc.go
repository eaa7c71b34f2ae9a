// Package runtimemapper finds the containers that use each GPU on hosts without Kubernetes. Its Mapper is an Attributor
// that queries the socket of Docker or Podman.
//
// It lists the running containers and inspects each once for its devices: device requests, CDI names, device nodes and
// NVIDIA_VISIBLE_DEVICES. It maps them to the GPUs and GPU instances of the topology. All requests are GETs. Every
// answer has a size limit and the caller's deadline.
//
// It never guesses. Names that it cannot resolve are counted, and a container that cannot compute on a GPU does not own
// it.
package runtimemapper
