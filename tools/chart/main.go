// Command chart writes the files that are derived from the Helm chart in deployment/chart. These are the schema and the
// defaults of its values, and the manifests and components in deployment/kubernetes. "make chart" runs it in the root
// of the repository.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

var (
	folder = filepath.Join("deployment", "chart")
	base   = filepath.Join("deployment", "kubernetes")
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	values, err := os.ReadFile(filepath.Join(folder, "values.yaml"))
	if err != nil {
		return err
	}
	schema, err := schemaOf(values)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "values.schema.json"), schema, 0o644); err != nil {
		return err
	}
	defaults, err := defaultsOf(values)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "files", "defaults.yaml"), defaults, 0o644); err != nil {
		return err
	}
	// rendering the manifests needs the new files
	files, err := kustomize(folder, base)
	if err != nil {
		return err
	}
	return files.replace(base, "values.yaml", "namespace.yaml")
}

// replace writes the files in f to a folder and deletes all other files there. The hand-written files in kept are not
// changed.
func (f tree) replace(folder string, kept ...string) error {
	for _, k := range kept {
		f[k] = nil
	}
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if name, err := filepath.Rel(folder, path); err != nil {
			return err
		} else if _, ok := f[name]; !ok {
			return os.Remove(path)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for name, content := range f {
		if content == nil {
			continue
		}
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
