// Package nodeview makes the JSON document of a node that the page at / is drawn from.
//
// A Document says of one snapshot what a person looks for: each GPU and MIG instance with its
// state, its load in base units and all its owners, how the GPUs are connected, the last XIDs, and
// what is not collected. It is made of the snapshot and not of its text, and so does not depend on
// the vocabulary, the names of labels or the counters file: what the file does not name is
// absent.
//
// Latest keeps the document of the newest snapshot. It holds no page, calls no driver and knows no
// HTTP. The fields of a Document are a format that others may read: docs/node-json.md.
package nodeview
