// Package rules tests the alerts and recording rules in deployment/rules. Every metric must exist in both vocabularies,
// and every alert must have a runbook. The unit tests in testdata must pass in promtool. Each alert must fire in at
// least one of them, and stay silent in at least one.
//
// "make prometheus" installs promtool if it is not in PATH. Without promtool these tests are skipped with a reason. If
// the variable CI is set, they fail.
package rules
