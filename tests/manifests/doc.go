// Package manifests tests the files in deployment and docs/integrations with the programs that read them: Prometheus,
// VictoriaMetrics, the OpenTelemetry collector and systemd. It checks the files for Datadog and node-problem-detector,
// and the documented Kubernetes manifests, without these programs.
package manifests
