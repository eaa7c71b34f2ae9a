// Package counters reads the counters file, in which users request metrics.
//
// Parse turns a counters file into Requests and Problems. Translate converts Requests to the other vocabulary. NewPlan
// turns them into the fields and families of a gpu.Plan.
//
// A metric name implies a unit. The plan holds the factor from the unit that is read, so that later packages need not
// know about renames. The package opens no file and calls no engine.
package counters
