// Package deviceid reads the ids by which GPUs and their parts are handed out, and finds the
// entities of a topology that they name.
//
// An ID is a parsed text: an id of a kubelet's list (Parse), or a word for a container runtime
// (ParseVisible). A Resolver finds the rows of one topology by IDs, says which part of a
// divided GPU instance an ID names, and why another names nothing. Both mappers of owners use them,
// so that an id means the same to each.
//
// The package queries no driver and no kubelet. It never guesses: an id that names nothing here has
// no rows.
package deviceid
