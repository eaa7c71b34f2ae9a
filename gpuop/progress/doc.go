// Package progress shows what a command waits for: what it is, since when, and what would
// end it.
//
// Until looks again and again, until what it looks at is done or a deadline has passed. A Display
// shows what each look found: on a terminal as a few lines that are drawn again, in a pipe as one
// line for each change. Neither knows what is waited for; package verify, the MIG commands and
// preflight say that as Steps.
//
// The package reads no clock but the one that Until sleeps by, which tests replace with
// testing/synctest.
package progress
