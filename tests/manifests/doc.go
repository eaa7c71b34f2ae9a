// Package manifests tests the files of deployment and docs/integrations with the programs that read them: Prometheus,
// VictoriaMetrics, the OpenTelemetry collector and systemd. It also compares the image's file list with etc.
package manifests
