// Package verdict says whether each GPU is fit for work: ok, watch, unknown, drain or replace. One table has the rules,
// and docs/verdict.md prints it. The package looks at the values of a cycle and at the families that earlier derivers
// made. It only reports.
package verdict
