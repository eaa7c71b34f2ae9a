package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A node is a JSON schema, of one value or of the whole values file.
type node struct {
	Schema      string           `json:"$schema,omitempty"`
	Title       string           `json:"title,omitempty"`
	Description string           `json:"description,omitempty"`
	Type        any              `json:"type,omitempty"`
	Enum        []any            `json:"enum,omitempty"`
	Properties  map[string]*node `json:"properties,omitempty"`
	Additional  any              `json:"additionalProperties,omitempty"`
	Items       *node            `json:"items,omitempty"`
	Required    []string         `json:"required,omitempty"`
	Pattern     string           `json:"pattern,omitempty"`
	Minimum     *float64         `json:"minimum,omitempty"`
	Maximum     *float64         `json:"maximum,omitempty"`
}

// beyond returns, by key, the schemas that cannot be derived from a default value: union types, enums, patterns, maps
// with any keys, and lists. For most Kubernetes objects, only the type is checked, because the API server validates
// them.
func beyond() map[string]node {
	scalar := []string{"string", "integer"}
	strings := &node{Type: []string{"string", "integer", "number", "boolean"}}
	open := node{Type: "object"}
	words := node{Type: "object", Additional: &node{Type: append([]string{"null"}, strings.Type.([]string)...)}}
	objects := node{Type: "array", Items: &node{Type: "object"}}
	auto := node{Enum: []any{true, false, "true", "false", "auto"}}
	return map[string]node{
		"image.pullPolicy":     {Enum: []any{"Always", "IfNotPresent", "Never"}},
		"image.variant":        {Enum: []any{"", "nvml"}},
		"profiling.enabled":    auto,
		"image.tag":            {Type: []string{"string", "number"}},
		"image.digest":         {Type: "string", Pattern: "^$|^sha256:[0-9a-f]{64}$"},
		"imagePullSecrets":     objects,
		"arguments":            {Type: "array", Items: strings},
		"exporter.source":      {Enum: []any{"", "auto", "dcgm", "nvml", "sim"}},
		"exporter.vocabulary":  {Enum: []any{"", "classic", "current", "both"}},
		"exporter.ownerLabels": {Enum: []any{"", "series", "copies", "info"}},
		"exporter.collectInterval": {Type: scalar,
			Pattern: `^$|^[0-9]+$|^([0-9]*\.?[0-9]+(ns|us|µs|ms|s|m|h))+$`},
		"exporter.healthIgnore":                       {Type: "array", Items: strings},
		"priorityClassQuota.create":                   auto,
		"priorityClassQuota.pods":                     {Type: scalar},
		"serviceAccount.name":                         {Type: []string{"string", "null"}},
		"serviceAccount.automountServiceAccountToken": {Type: []string{"boolean", "null"}},
		"serviceAccount.annotations":                  words,
		"rollingUpdate.maxUnavailable":                {Type: scalar},
		"rollingUpdate.maxSurge":                      {Type: scalar},
		"podLabels":                                   words,
		"daemonSetAnnotations":                        words,
		"podAnnotations":                              words,
		"podSecurityContext":                          open,
		"securityContext":                             open,
		"counters":                                    {Enum: []any{"health", "default", "fleet"}},
		"prometheusRule.compat": {Type: "array",
			Items: &node{Enum: []any{"autoscalers", "from-nvidia-smi", "jobstats", "opencost"}}},
		"service.type":                     {Enum: []any{"ClusterIP", "NodePort", "LoadBalancer"}},
		"service.internalTrafficPolicy":    {Enum: []any{"", "Cluster", "Local"}},
		"service.address":                  {Type: "string", Pattern: ":[0-9]+$"},
		"service.annotations":              words,
		"resources":                        open,
		"serviceMonitor.enabled":           auto,
		"serviceMonitor.additionalLabels":  words,
		"serviceMonitor.relabelings":       objects,
		"serviceMonitor.metricRelabelings": objects,
		"serviceMonitor.tlsConfig":         open,
		"podMonitor.additionalLabels":      words,
		"podMonitor.relabelings":           objects,
		"podMonitor.metricRelabelings":     objects,
		"podMonitor.tlsConfig":             open,
		"prometheusRule.additionalLabels":  words,
		"alerts.disabled":                  {Type: "array", Items: &node{Type: "string"}},
		"alerts.additionalRuleLabels":      words,
		"dashboards.labels":                words,
		"dashboards.annotations":           words,
		"networkPolicy.from":               objects,
		"networkPolicy.egress":             {Type: []string{"array", "null"}, Items: &node{Type: "object"}},
		"nodeSelector":                     words,
		"tolerations":                      objects,
		"affinity":                         open,
		"extraHostVolumes": {Type: "array",
			Items: &node{Type: "object", Additional: false, Required: []string{"name", "hostPath"},
				Properties: map[string]*node{"name": {Type: "string"}, "hostPath": {Type: "string"}}}},
		"extraConfigMapVolumes": objects,
		"extraVolumeMounts":     objects,
		"extraEnv": {Type: "array", Items: &node{Type: "object", Additional: false, Required: []string{"name"},
			Properties: map[string]*node{"name": {Type: "string"}, "value": strings, "valueFrom": {Type: "object"}}}},
		"initContainers": objects,
		"tlsServerConfig.clientAuthType": {Enum: []any{"", "NoClientCert", "RequestClientCert",
			"RequireAnyClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"}},
		"basicAuth.users":                   {Type: "object", Additional: strings},
		"kubernetes.podLabelAllowlistRegex": {Type: "array", Items: &node{Type: "string"}},
		"debugDump.retention":               {Type: scalar},
	}
}

// schemaWriter builds the schema of a values file.
type schemaWriter struct {
	beyond map[string]node
	used   map[string]bool
	wrong  []string // errors
}

// schemaOf returns the schema of a values file. Comments become descriptions, and defaults determine the types.
func schemaOf(values []byte) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(values, &document); err != nil {
		return nil, err
	}
	w := schemaWriter{beyond: beyond(), used: map[string]bool{}}
	out := w.node("", document.Content[0])
	for key := range w.beyond {
		if !w.used[key] {
			w.wrong = append(w.wrong, "values.yaml has no "+key)
		}
	}
	if len(w.wrong) > 0 {
		return nil, fmt.Errorf("values.yaml: %s", strings.Join(w.wrong, "; "))
	}
	out.Schema, out.Title = "https://json-schema.org/draft-07/schema#", "Values of the chart dcgm-exporter"
	// keys from a parent chart: its global values, and the usual condition of a subchart
	out.Properties["global"] = &node{Type: "object",
		Description: "Values that a parent chart passes to all its charts."}
	out.Properties["enabled"] = &node{Type: "boolean",
		Description: "Set by a parent chart: whether this chart is enabled."}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(out); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// node returns the schema of the value at a key.
func (w *schemaWriter) node(key string, v *yaml.Node) *node {
	if n, ok := w.beyond[key]; ok {
		w.used[key] = true
		return &n
	}
	switch v.Kind {
	case yaml.MappingNode:
		if len(v.Content) == 0 {
			w.wrong = append(w.wrong, key+": an empty map needs a row in beyond()")
		}
		out := &node{Type: "object", Additional: false, Properties: map[string]*node{}}
		for i := 0; i < len(v.Content); i += 2 {
			name := v.Content[i]
			at := strings.TrimPrefix(key+"."+name.Value, ".")
			child := w.node(at, v.Content[i+1])
			child.Description = description(name.HeadComment)
			out.Properties[name.Value] = child
		}
		return out
	case yaml.SequenceNode:
		w.wrong = append(w.wrong, key+": a list needs a row in beyond()")
	}
	one := 1.
	switch v.Tag {
	case "!!bool":
		return &node{Type: "boolean"}
	case "!!int":
		return &node{Type: "integer"}
	case "!!float": // all floats in values.yaml are between 0 and 1
		return &node{Type: "number", Minimum: new(float64), Maximum: &one}
	case "!!str":
		return &node{Type: "string"}
	}
	w.wrong = append(w.wrong, key+": "+v.Tag+" needs a row in beyond()")
	return &node{}
}

// description returns the last paragraph of the comment above a key.
func description(comment string) string {
	var lines []string
	for line := range strings.Lines(comment) {
		lines = append(lines, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#")))
	}
	paragraphs := strings.Split(strings.Join(lines, "\n"), "\n\n")
	return strings.Join(strings.Fields(paragraphs[len(paragraphs)-1]), " ")
}
