// Package landing tests the page at / in a headless Chromium: against simulated nodes in both
// vocabularies, and against a page of hostile labels. Without a Chromium the test is skipped with a
// typed reason.
package landing
