// Package landing tests the page at / in a headless Chromium, as a person sees it: against the
// simulated node that the exporter reads, and against documents that no simulated node makes.
//
// With -update the pictures of docs/images are taken again. Without a Chromium the tests are
// skipped with a typed reason.
package landing
