// Package verdict says of each GPU whether it is fit for work: ok, watch, drain or replace, from one table, which
// docs/verdict.md prints. It judges the values of a cycle and the families that the derivers before it made, and acts on
// nothing.
package verdict
