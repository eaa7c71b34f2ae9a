// Package podmapper says which container of which pod uses which GPU. It is the Attributor
// "kubernetes": the Loop queries it once per cycle, beside reading the devices, and it answers with
// owners for the rows of a topology.
//
// It queries the kubelet's PodResources service, one List per call over one kept connection, and
// joins the answer with the topology by the device's id, which a Resolver of deviceid finds. The API
// server's knowledge (UIDs, labels and phases of pods, the devices behind dynamic claims) comes in
// through functions; the package never queries the API itself and never sees a sample.
//
// A result is immutable and stays the same pointer until something changes. Nothing grows with
// time: the latest listing is remembered.
package podmapper
