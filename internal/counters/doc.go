// Package counters reads the counters file, in which users request metrics.
//
// Parse turns a counters file into Requests and Problems; Translate turns Requests into those of the other vocabulary, and
// NewPlan into the fields and families of a gpu.Plan.
//
// A name promises a unit: the plan has the factor from the unit that is read, so that no later package needs to know of a
// renaming. The package opens no file and calls no engine.
package counters
