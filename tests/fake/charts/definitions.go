package charts

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// ErrDefinition is returned for a file without a usable CustomResourceDefinition.
var ErrDefinition = errors.New("unusable CustomResourceDefinition")

// Findings of Validate belong to one of these checks.
var (
	unknownField = check.New("server-unknown-field", check.Error, "The schema has no such field.", "Remove it.",
		check.CRDs)
	violated = check.New("server-schema", check.Error, "The object violates the schema.", "Correct it.", check.CRDs)
)

// Definitions holds the schemas of custom resources by version and kind. Tests use it to validate objects with the API
// server's own library.
type Definitions struct {
	schemas map[string]*schema
}

type schema struct {
	structural *structuralschema.Structural
	validator  validation.SchemaValidator
	rules      *cel.Validator
}

// Add reads the definitions in a file of one or more YAML documents and ignores other manifests. If there is no
// definition, or an unusable one, the error wraps ErrDefinition.
func (s *Definitions) Add(data []byte) error {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	found := false
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrDefinition, err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(document, &crd); err != nil {
			return fmt.Errorf("%w: %w", ErrDefinition, err)
		}
		if crd.Kind != "CustomResourceDefinition" {
			continue
		}
		if err := s.add(&crd); err != nil {
			return fmt.Errorf("%w %s: %w", ErrDefinition, crd.Name, err)
		}
		found = true
	}
	if !found {
		return fmt.Errorf("%w: the file has none", ErrDefinition)
	}
	return nil
}

func (s *Definitions) add(crd *apiextensionsv1.CustomResourceDefinition) error {
	if s.schemas == nil {
		s.schemas = map[string]*schema{}
	}
	for _, v := range crd.Spec.Versions {
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			continue
		}
		var props apiextensions.JSONSchemaProps
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema,
			&props, nil); err != nil {
			return err
		}
		structural, err := structuralschema.NewStructural(&props)
		if err != nil {
			return err
		}
		validator, _, err := validation.NewSchemaValidator(&props)
		if err != nil {
			return err
		}
		s.schemas[crd.Spec.Group+"/"+v.Name+" "+crd.Spec.Names.Kind] = &schema{
			structural: structural,
			validator:  validator,
			rules:      cel.NewValidator(structural, true, celconfig.PerCallLimit),
		}
	}
	return nil
}

// Validate validates an object like an API server with strict validation. known is false if there is no definition for
// the kind. Subjects of findings are dotted paths from the root of the object.
func (s *Definitions) Validate(apiVersion, kind string, object map[string]any) (findings []check.Finding, known bool) {
	schema, known := s.schemas[apiVersion+" "+kind]
	if !known {
		return nil, false
	}
	object = runtime.DeepCopyJSON(normalize(object).(map[string]any))
	unknown := pruning.PruneWithOptions(object, schema.structural, true,
		structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	for _, path := range unknown {
		findings = append(findings, check.Finding{Check: unknownField, Severity: check.Error, Subject: path,
			Reason: "the " + kind +
				" has no such field: the API server drops it, or rejects the object with strict validation",
			Fix: "delete it"})
	}
	defaulting.Default(object, schema.structural)
	problems := validation.ValidateCustomResource(nil, object, schema.validator)
	if schema.rules != nil && len(problems) == 0 {
		more, _ := schema.rules.Validate(context.Background(), field.NewPath(""), schema.structural, object, nil,
			celconfig.RuntimeCELCostBudget)
		problems = append(problems, more...)
	}
	for _, p := range problems {
		findings = append(findings, check.Finding{Check: violated, Severity: check.Error,
			Subject: strings.TrimLeft(p.Field, "[]."), Reason: p.ErrorBody()})
	}
	return findings, true
}

// normalize converts the types of YAML values to those of JSON, which the validators expect.
func normalize(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = normalize(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = normalize(e)
		}
		return out
	case int:
		return int64(v)
	case uint64:
		return float64(v)
	case nil, bool, string, int64, float64:
		return v
	default:
		return fmt.Sprint(v)
	}
}
