// Package fields searches the catalog of DCGM's fields.
//
// It prints a table for people who write counters files: the name to write, the field's id, unit,
// type and entities, and the name of 4.9 where that is another one. It reads no hardware.
package fields
