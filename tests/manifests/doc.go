// Package manifests holds what lies in deployment/ and docs/integrations against the programs that
// read it: Prometheus, VictoriaMetrics, the OpenTelemetry collector, systemd; and the image's file list
// against etc/.
package manifests
