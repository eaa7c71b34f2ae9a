// Package manifests tests the files in deployment and docs/integrations with the programs that read them: Prometheus,
// VictoriaMetrics, the OpenTelemetry collector and systemd. It also compares the image's list of files with etc.
package manifests
