package main

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

// required lists top-level keys that are not sections, but that the DaemonSet needs.
func required() []string { return []string{"counters", "kubeletPath", "terminationGracePeriodSeconds"} }

// defaultsOf returns the values that the templates use for keys that are missing or null. These are the keys of all
// sections, and the required top-level keys. For every other key, null removes the default.
func defaultsOf(values []byte) ([]byte, error) {
	var all map[string]any
	if err := yaml.Unmarshal(values, &all); err != nil {
		return nil, err
	}
	sections, others := map[string]any{}, map[string]any{}
	addSections(sections, "", all)
	for _, key := range required() {
		value, ok := all[key]
		if !ok {
			return nil, fmt.Errorf("values.yaml has no %s", key)
		}
		others[key] = value
	}
	text, err := yaml.Marshal(map[string]any{"sections": sections, "required": others})
	if err != nil {
		return nil, err
	}
	return append([]byte("# Generated from values.yaml by \"make chart\".\n"), text...), nil
}

// addSections moves the sections of values, including nested ones, into sections, keyed by dotted path. A section is a
// map whose keys the schema fixes. rollingUpdate is an exception: it stays in values, so that null removes it.
func addSections(sections map[string]any, prefix string, values map[string]any) {
	for key, value := range values {
		path := prefix + key
		section, isMap := value.(map[string]any)
		if _, free := beyond()[path]; !isMap || free || path == "rollingUpdate" {
			continue
		}
		addSections(sections, path+".", section)
		sections[path] = section
		delete(values, key)
	}
}
