// Package crd validates custom resources against CustomResourceDefinitions that the user gives:
// files of a chart's crds directory, or kubectl get crd -o yaml. It stands on the API server's own
// library, so that unknown fields, types, enumerations, patterns, defaults and validation rules are
// judged as a server would with strict validation.
//
// The linter calls it through an interface and keeps its own table of fields for the time when no
// definition is given.
//
// A Set never changes once read. The package opens no file and contacts no server.
package crd
