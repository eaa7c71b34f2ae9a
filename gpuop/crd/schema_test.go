package crd_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/crd"
)

const definition = `apiVersion: v1
kind: ConfigMap
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  names: {kind: Thing, plural: things}
  scope: Cluster
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              required: [image]
              x-kubernetes-validations:
                - rule: "!self.default || !has(self.nodeSelector)"
                  message: the default takes no selector
              properties:
                image: {type: string, pattern: '^[a-z-]+$'}
                mode: {type: string, enum: [a, b]}
                count: {type: integer, minimum: 1}
                default: {type: boolean, default: false}
                nodeSelector: {type: object, additionalProperties: {type: string}}
                free: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

func TestValidate(t *testing.T) {
	set := &crd.Set{}
	if err := set.Add([]byte(definition)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		spec map[string]any
		want []string
	}{
		{"right", map[string]any{"image": "x", "mode": "a", "count": 2, "free": map[string]any{"any": 1}}, nil},
		{"unknown field", map[string]any{"image": "x", "imagee": "y"}, []string{"unknown-field spec.imagee"}},
		{"required", map[string]any{}, []string{"schema spec.image"}},
		{"enumeration, type and bound", map[string]any{"image": "X Y", "mode": "c", "count": 0}, []string{"schema spec.count", "schema spec.image", "schema spec.mode"}},
		{"type", map[string]any{"image": 3}, []string{"schema spec.image"}},
		{"rule", map[string]any{"image": "x", "default": true, "nodeSelector": map[string]any{"a": "b"}}, []string{"schema spec"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			findings, known := set.Validate("example.com/v1", "Thing", map[string]any{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "x"}, "spec": tt.spec})
			if !known {
				t.Fatal("the definition is not known")
			}
			var got []string
			for _, f := range findings {
				got = append(got, f.ID+" "+f.Subject)
				if f.Reason == "" {
					t.Errorf("%s: no reason", f.Subject)
				}
			}
			slices.Sort(got) // the library goes through the fields in no order
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, known := set.Validate("example.com/v2", "Thing", map[string]any{}); known {
		t.Error("a version without definition is known")
	}
}

func TestUnusableDefinitions(t *testing.T) {
	for _, text := range []string{"", "kind: Pod\n", "kind: CustomResourceDefinition\nspec: {versions: 3}\n", ": ["} {
		if err := (&crd.Set{}).Add([]byte(text)); !errors.Is(err, crd.ErrDefinition) {
			t.Errorf("%q: %v, want ErrDefinition", text, err)
		}
	}
}
