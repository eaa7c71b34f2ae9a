package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// build is the version and the commit from which files were built.
type build struct{ version, revision string }

// These types are an in-toto statement (https://in-toto.io/Statement/v1) with the predicate
// https://slsa.dev/provenance/v1.
type (
	statement struct {
		Type          string     `json:"_type"`
		Subject       []resource `json:"subject"`
		PredicateType string     `json:"predicateType"`
		Predicate     predicate  `json:"predicate"`
	}
	resource struct {
		Name   string            `json:"name,omitempty"`
		URI    string            `json:"uri,omitempty"`
		Digest map[string]string `json:"digest"`
	}
	predicate struct {
		BuildDefinition definition `json:"buildDefinition"`
		RunDetails      details    `json:"runDetails"`
	}
	definition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		InternalParameters   map[string]string `json:"internalParameters"`
		ResolvedDependencies []resource        `json:"resolvedDependencies"`
	}
	details struct {
		Builder builder `json:"builder"`
	}
	builder struct {
		ID string `json:"id"`
	}
)

// writeProvenance writes the provenance of files. The statement is not signed; whoever publishes the release signs it.
func writeProvenance(out io.Writer, b build, files []string) error {
	s := statement{
		Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1",
		Predicate: predicate{
			BuildDefinition: definition{
				BuildType: source + "/blob/main/docs/contributing.md",
				ExternalParameters: map[string]string{"source": "git+" + source + "@refs/tags/" + b.version,
					"command": "make release VERSION=" + b.version},
				InternalParameters: map[string]string{"go": runtime.Version()},
				ResolvedDependencies: []resource{
					{URI: "git+" + source + "@refs/tags/" + b.version,
						Digest: map[string]string{"gitCommit": b.revision}},
				},
			},
			RunDetails: details{Builder: builder{ID: source + "/blob/main/Makefile"}},
		},
	}
	for _, path := range files {
		digest, err := digestOf(path)
		if err != nil {
			return err
		}
		s.Subject = append(s.Subject, resource{Name: filepath.Base(path), Digest: map[string]string{"sha256": digest}})
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s); err != nil {
		return fmt.Errorf("provenance: %w", err)
	}
	return nil
}

func digestOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
