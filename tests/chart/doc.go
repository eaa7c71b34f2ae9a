// Package chart tests the Helm chart in deployment/chart: helm lint, the schema, golden renderings, and values as users
// write them. tools/chart generates the derived files of the chart.
package chart
