// Package chart holds the Helm chart in deployment/chart against the programs that read what it
// renders: Helm's own engine and schema validation, the types of the Kubernetes API, the exporter's
// configuration, and the chart of NVIDIA's exporter, whose values it honors.
//
// It also generates what is derived: the schema of the values, the copies of counters, rules and
// dashboards within the chart, and the base and the components of deployment/kubernetes. "make
// chart" writes them; a plain test fails while one is not what its source says.
package chart
