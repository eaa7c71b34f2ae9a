// Package doctor looks at everything that the exporter needs on a machine and says what works, what
// does not, and what to do.
//
// Each check is a function that returns a Row: a state, what was found and one sentence of advice.
// The checks read files, dial sockets and listen for a moment through a Machine, so that a test can
// be one; they change nothing. Last, the source itself is opened, since only that proves the rest.
package doctor
