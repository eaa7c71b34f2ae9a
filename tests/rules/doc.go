// Package rules tests the alerts and recording rules in deployment/rules. Every metric that a rule selects must exist.
// If a field has two names, a rule must select both, and every alert must have a runbook. promtool
// must pass the unit tests in testdata. Each alert must fire in at least one of them, and not fire in another one.
//
// "make prometheus" installs promtool if it is not in PATH. Without promtool, the tests that need it are skipped with a
// reason. If the variable CI is set, they fail.
package rules
