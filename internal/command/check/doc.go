// Package check says line by line what a counters file or a YAML file would collect, what not, and
// why.
//
// Without a source it says what the catalog knows, so that it runs anywhere, also in CI. With one
// it collects a few cycles as the exporter would, and says for each metric how many entities have
// it here. It changes nothing and serves nothing.
package check
