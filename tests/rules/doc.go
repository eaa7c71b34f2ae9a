// Package rules tests the alerts and recording rules in deployment/rules. Every metric must exist in both vocabularies,
// and every alert must have a runbook. The unit tests in testdata must pass in promtool. In them each alert fires at
// least once and does not fire at least once.
//
// "make prometheus" installs promtool if it is not in PATH. Without promtool these tests are skipped with a reason. If
// the variable CI is set, they fail.
package rules
