// Package once prints the page of one real cycle and ends.
//
// It reads the exporter's own flags, variables and file, and gets the page from the function that
// app wires: what it prints is what a scrape would get.
package once
