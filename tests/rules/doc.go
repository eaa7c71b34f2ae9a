// Package rules tests the alerts and recording rules in deployment/rules. Every metric that a rule selects must exist.
// A rule that selects a field must select it under both of its names, and every alert must have a runbook. promtool
// must pass the unit tests in testdata. Each alert must fire in at least one of them, and not fire in another one.
//
// "make prometheus" installs promtool if it is not in PATH. Without promtool, these tests are skipped with a reason. If
// the variable CI is set, they fail.
package rules
