// Package app wires the exporter together. It imports the packages of every stage; only package command and main import
// it.
//
// It translates the configuration into the options of each package, and runs the tasks of the exporter: the collection,
// the HTTP server, reloads and file watches. Read app.go from top to bottom for the data flow. Decisions about drivers
// are made in package hardware, and decisions about values and labels in the packages that compute them.
package app
