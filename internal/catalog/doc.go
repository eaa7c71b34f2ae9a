// Package catalog describes the DCGM fields: their names in both vocabularies, units, entities and plausible ranges. It
// also declares the families that the exporter computes, and has the meanings of XIDs, clock events and health
// findings.
//
// The entries and the constants of their IDs are generated from go-dcgm and two tables of facts. Everything is
// constant. Sources convert the values of their engine to the catalog's unit.
package catalog

//go:generate go run ../../tools/cataloggen
