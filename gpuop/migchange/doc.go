// Package migchange prepares and follows a change of a node's MIG config: what would block it before
// the label is written, what the node will show afterwards, and, from a sequence of observations,
// whether the change has ended and how.
//
// The MIG manager says little: "pending" stays for good where it stops waiting for a pod, and
// "success" is written before the device plugin offers anything. So a change has succeeded only when
// the predicted devices are allocatable and the operands are back, and it always ends by a deadline.
//
// Everything here is pure: Prepare reads a cluster.State, a Machine reads Observations. Neither holds a
// client or reads the clock.
package migchange
