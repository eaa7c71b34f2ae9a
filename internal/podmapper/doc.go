// Package podmapper finds the pods and containers that use each GPU. It implements the attributor "kubernetes", which
// the Loop queries once per cycle.
//
// It calls List of the kubelet's PodResources service over one connection. A deviceid.Resolver maps the device ids to
// rows of the topology. Functions in Options provide the API server's data: UIDs, labels and phases of pods, and the
// devices of dynamic claims. The package itself never queries the API server.
//
// A query goes through these files: mapper.go (Attribute), kubelet.go (the list), memory.go and listing.go (devices
// that a restarted kubelet does not list yet), and assign.go (from devices to owners). podlabels.go is only about
// the labels that users put on their pods.
//
// Results are immutable, and the same pointer is returned until something changes. Memory is bounded: only recent
// listings are kept.
package podmapper
