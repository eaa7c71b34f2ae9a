// Package chart holds the Helm chart in deployment/chart: helm lint, its schema, a dozen rendered
// files, and values as people write them. tools/chart writes what is derived of the chart.
package chart
