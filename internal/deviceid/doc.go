// Package deviceid parses the ids by which GPUs and MIG devices are assigned, and finds the entities of a topology that
// they name.
//
// Parse reads an id from a kubelet, and ParseVisible an id from a container runtime. A Resolver finds the rows of a
// topology by ID, or says why there are none. All attributors use it, so that an id means the same to each.
//
// The package queries no driver and no kubelet. It never guesses: an unknown id has no rows.
package deviceid
