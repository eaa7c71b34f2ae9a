// Package catalog knows the fields of DCGM with their names in both vocabularies, units, entities and plausible ranges, the
// families that the exporter makes itself, and the meanings of XIDs and clock events.
//
// The entries and the constants of their ids are generated from go-dcgm and two tables of facts. Everything here is constant.
// Sources convert the values of their engine to the unit of the catalog.
package catalog

//go:generate go run ../../tools/cataloggen
