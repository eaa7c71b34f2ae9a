// Package server answers HTTP requests with pages that are ready.
//
// A scrape of /metrics takes a reference to the current page and writes its bytes: it calls no
// driver, waits for no lock of the collector and, but for what net/http itself does, allocates
// nothing. The server knows pages and functions only; what makes a page, and what healthy means, is
// decided by the package that wires it.
//
// TLS, passwords and systemd sockets are exporter-toolkit's. What changes state or shows the inside
// of the process is off unless requested, and then needs a password or a client certificate, or an
// address on loopback.
package server
