// Package counters reads the counters file, in which users request metrics.
//
// Parse turns a counters file into Requests and Problems, one bad line never taking another;
// Translate turns Requests into those of the other vocabulary, and NewPlan into the fields and
// families of a gpu.Plan.
//
// A request is for a name, and the name promises a unit: the plan carries the factor from what is
// read to what is promised, so that no later package needs to know that a name was renamed. The
// package opens no file and calls no engine.
package counters
