// Package rules holds the alerts and recording rules of deployment/rules: every metric exists in both
// vocabularies, every alert has a runbook, and the unit tests of testdata pass in promtool, in which
// every alert fires once and is silent once.
//
// "make prometheus" gets promtool where PATH has none. Without it these tests are skipped with a
// reason, and where the variable CI is set they fail.
package rules
