package main

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

// required lists the top-level keys, other than sections, without which the DaemonSet is incomplete.
func required() []string { return []string{"counters", "kubeletPath", "terminationGracePeriodSeconds"} }

// defaultsOf returns the values that the templates fill in if they are missing. Other values may be missing, so that
// null removes a default.
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

// addSections adds the sections in values by their paths. A section is a map whose keys the schema lists. Each
// section is removed from the one that contains it.
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
