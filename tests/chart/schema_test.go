package chart

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A node is a schema of values, or a part of one.
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
}

// beyond is what a default value does not say about its key: other types, a closed set of words,
// what an element of a list is. Objects of the Kubernetes API are open: the API server judges them.
func beyond() map[string]node {
	scalar := []string{"string", "integer"}
	strings := &node{Type: []string{"string", "integer", "number", "boolean"}}
	open := node{Type: "object"}
	words := node{Type: "object", Additional: &node{Type: append([]string{"null"}, strings.Type.([]string)...)}}
	objects := node{Type: "array", Items: &node{Type: "object"}}
	auto := node{Enum: []any{true, false, "true", "false", "auto"}}
	return map[string]node{
		"image.pullPolicy":          {Enum: []any{"Always", "IfNotPresent", "Never"}},
		"image.variant":             {Enum: []any{"", "dcgm"}},
		"image.tag":                 {Type: []string{"string", "number"}},
		"image.digest":              {Type: "string", Pattern: "^$|^sha256:[0-9a-f]{64}$"},
		"imagePullSecrets":          objects,
		"arguments":                 {Type: "array", Items: strings},
		"exporter.source":           {Enum: []any{"", "auto", "dcgm", "nvml", "sim"}},
		"exporter.vocabulary":       {Enum: []any{"", "classic", "current", "both"}},
		"exporter.collectInterval":  {Type: scalar},
		"priorityClassQuota.create": auto,
		"priorityClassQuota.pods":   {Type: scalar},
		"serviceAccount.name":       {Type: []string{"string", "null"}},
		"serviceAccount.automountServiceAccountToken": {Type: []string{"boolean", "null"}},
		"serviceAccount.annotations":                  words,
		"rollingUpdate.maxUnavailable":                {Type: scalar},
		"rollingUpdate.maxSurge":                      {Type: scalar},
		"podLabels":                                   words,
		"daemonSetAnnotations":                        words,
		"podAnnotations":                              words,
		"podSecurityContext":                          open,
		"securityContext":                             open,
		"service.type":                                {Enum: []any{"ClusterIP", "NodePort", "LoadBalancer"}},
		"service.internalTrafficPolicy":               {Enum: []any{"", "Cluster", "Local"}},
		"service.address":                             {Type: "string", Pattern: ":[0-9]+$"},
		"service.annotations":                         words,
		"resources":                                   open,
		"serviceMonitor.enabled":                      auto,
		"serviceMonitor.additionalLabels":             words,
		"serviceMonitor.relabelings":                  objects,
		"serviceMonitor.metricRelabelings":            objects,
		"serviceMonitor.tlsConfig":                    open,
		"podMonitor.additionalLabels":                 words,
		"podMonitor.relabelings":                      objects,
		"podMonitor.metricRelabelings":                objects,
		"podMonitor.tlsConfig":                        open,
		"prometheusRule.additionalLabels":             words,
		"dashboards.labels":                           words,
		"dashboards.annotations":                      words,
		"networkPolicy.from":                          objects,
		"networkPolicy.egress":                        {Type: []string{"array", "null"}, Items: &node{Type: "object"}},
		"nodeSelector":                                words,
		"tolerations":                                 objects,
		"affinity":                                    open,
		"extraHostVolumes": {Type: "array", Items: &node{Type: "object", Additional: false, Required: []string{"name", "hostPath"},
			Properties: map[string]*node{"name": {Type: "string"}, "hostPath": {Type: "string"}}}},
		"extraConfigMapVolumes": objects,
		"extraVolumeMounts":     objects,
		"extraEnv": {Type: "array", Items: &node{Type: "object", Additional: false, Required: []string{"name"},
			Properties: map[string]*node{"name": {Type: "string"}, "value": strings, "valueFrom": {Type: "object"}}}},
		"initContainers":                    objects,
		"tlsServerConfig.clientAuthType":    {Enum: []any{"", "NoClientCert", "RequestClientCert", "RequireAnyClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"}},
		"basicAuth.users":                   {Type: "object", Additional: strings},
		"kubernetes.podLabelAllowlistRegex": {Type: "array", Items: &node{Type: "string"}},
		"debugDump.retention":               {Type: scalar},
	}
}

// needed are values without which the templates mean nothing, beside every section but one: null, which
// takes a default away, is an error that names the key.
var needed = map[string]bool{"image.repository": true, "service.address": true, "serviceAccount.create": true, "serviceMonitor.apiVersion": true, "kubernetes.podResources": true}

// schemaOf returns the schema of a values file: its comments are the descriptions, its defaults
// give the types.
func schemaOf(t *testing.T, text []byte) *node {
	t.Helper()
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	more, used := beyond(), map[string]bool{}
	out := schemaNode(t, "", document.Content[0], more, used)
	for key := range more {
		if !used[key] {
			t.Errorf("values.yaml has no %s", key)
		}
	}
	out.Schema, out.Title = "https://json-schema.org/draft-07/schema#", "Values of the chart dcgm-exporter"
	// Helm's own: of a parent chart, and the usual condition for a subchart.
	out.Properties["global"] = &node{Type: "object", Description: "Values of a parent chart for all its charts."}
	out.Properties["enabled"] = &node{Type: "boolean", Description: "The condition by which a parent chart has this one."}
	return out
}

func schemaNode(t *testing.T, key string, v *yaml.Node, more map[string]node, used map[string]bool) *node {
	t.Helper()
	if n, ok := more[key]; ok {
		used[key] = true
		return &n
	}
	switch v.Kind {
	case yaml.MappingNode:
		if len(v.Content) == 0 {
			t.Errorf("%s: an empty map says nothing of its keys: it needs a line in beyond()", key)
		}
		out := &node{Type: "object", Additional: false, Properties: map[string]*node{}}
		for i := 0; i < len(v.Content); i += 2 {
			name := v.Content[i]
			child := schemaNode(t, strings.TrimPrefix(key+"."+name.Value, "."), v.Content[i+1], more, used)
			child.Description = description(name.HeadComment)
			out.Properties[name.Value] = child
			if child.Properties != nil && name.Value != "rollingUpdate" || needed[strings.TrimPrefix(key+"."+name.Value, ".")] {
				out.Required = append(out.Required, name.Value)
			}
		}
		return out
	case yaml.SequenceNode:
		t.Errorf("%s: a list says nothing of its elements: it needs a line in beyond()", key)
	}
	switch v.Tag {
	case "!!bool":
		return &node{Type: "boolean"}
	case "!!int":
		return &node{Type: "integer"}
	case "!!str":
		return &node{Type: "string"}
	}
	t.Errorf("%s: %s: it needs a line in beyond()", key, v.Tag)
	return &node{}
}

// description is the last paragraph of the comment above a key.
func description(comment string) string {
	var lines []string
	for line := range strings.Lines(comment) {
		lines = append(lines, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#")))
	}
	paragraphs := strings.Split(strings.Join(lines, "\n"), "\n\n")
	return strings.Join(strings.Fields(paragraphs[len(paragraphs)-1]), " ")
}

func TestSchemaIsCurrent(t *testing.T) {
	path := filepath.Join(folder, "values.schema.json")
	var want bytes.Buffer
	encoder := json.NewEncoder(&want)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(schemaOf(t, read(t, filepath.Join(folder, "values.yaml")))); err != nil {
		t.Fatal(err)
	}
	if *update {
		write(t, path, want.Bytes())
		return
	}
	if !bytes.Equal(read(t, path), want.Bytes()) {
		t.Errorf("%s is not what values.yaml says: make chart", path)
	}
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// Each value is read by a template, and each template reads values that there are.
func TestTemplatesReadTheValues(t *testing.T) {
	var schema node
	if err := json.Unmarshal(read(t, filepath.Join(folder, "values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	c := load(t, folder)
	var templates strings.Builder
	for _, f := range c.Templates {
		templates.Write(f.Data)
	}
	text := templates.String()
	read := map[string]bool{}
	alias := map[string]string{"v": "", "k": "kubernetes", "tls": "tlsServerConfig", "m": ""}
	for _, m := range regexp.MustCompile(`(?:\.Values|\$(v|k|tls))\.([A-Za-z][A-Za-z0-9.]*)`).FindAllStringSubmatch(text, -1) {
		read[strings.TrimPrefix(alias[m[1]]+"."+m[2], ".")] = true
	}
	for _, m := range regexp.MustCompile(`\$m\.([A-Za-z]+)`).FindAllStringSubmatch(text, -1) {
		read["serviceMonitor."+m[1]] = true
	}
	for key := range read {
		at, properties := "", schema.Properties
		for word := range strings.SplitSeq(key, ".") {
			if properties == nil {
				break // an open object
			}
			at = strings.TrimPrefix(at+"."+word, ".")
			n := properties[word]
			if n == nil {
				t.Errorf("a template reads %s, which is not among the values", at)
				break
			}
			properties = n.Properties
		}
	}
	var unread func(prefix string, n *node)
	unread = func(prefix string, n *node) {
		for _, name := range sortedKeys(n.Properties) {
			key := strings.TrimPrefix(prefix+"."+name, ".")
			child := n.Properties[name]
			whole := slices.Contains([]string{"livenessProbe", "readinessProbe", "rollingUpdate", "podMonitor", "global", "enabled", "serviceMonitor"}, key)
			if child.Properties != nil && !read[key] {
				unread(key, child)
				continue
			}
			if !read[key] && !whole {
				t.Errorf("no template reads %s", key)
			}
		}
	}
	unread("", &schema)
}

// A value that is misspelled, or of the wrong type, is an error that names it.
func TestMisspelledValues(t *testing.T) {
	c := load(t, folder)
	for values, want := range map[string]string{
		"serviceMonitr: {}":                                      "serviceMonitr",
		"serviceMonitor: {intervall: 15s}":                       "intervall",
		"image: {tags: x}":                                       "tags",
		"kubernetes: {enablePodLabel: true}":                     "enablePodLabel",
		"kubernetes: {enablePodLabels: \"yes\"}":                 "enablePodLabels",
		"exporter: {source: dcmg}":                               "source",
		"extraEnv: [{nam: X}]":                                   "nam",
		"extraHostVolumes: [{name: x, path: /x}]":                "path",
		"service: {address: localhost}":                          "address",
		"tlsServerConfig: {clientAuthType: Require}":             "clientAuthType",
		"hostPID: \"true\"":                                      "hostPID",
		"config: {enabled: true, create: false}":                 "expected the name of a ConfigMap that exists",
		"tlsServerConfig: {enabled: true, autoGenerated: false}": "expected a certificate in PEM",
	} {
		_, err := render(c, values)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want an error about %s", values, err, want)
		} else {
			t.Logf("%s: %v", values, err)
		}
	}
	// A parent chart's values do not get in the way.
	if _, err := render(c, "global: {imageRegistry: x}\nenabled: true"); err != nil {
		t.Error(err)
	}
}
