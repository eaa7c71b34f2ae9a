// Package record captures what the exporter sees of a machine into a small file, from which
// --source=sim plays it elsewhere: for bug reports.
//
// It opens the source that the exporter would use, requests every field of the catalog, and keeps a
// few Reads: entities, values, and of what is not served the reason. Names and numbers that
// distinguish one machine from another are replaced by made-up ones before anything is written,
// unless --unmasked says otherwise. It never writes anything of the environment, the command line,
// the files of the machine, or the text of an error.
//
// A driver that hangs is waited for no longer than the limit of a call; the session is closed when
// the call returns, on the goroutine that made it.
package record
