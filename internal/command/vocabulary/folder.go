package vocabulary

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Files returns the files below a folder that can be dashboards, rules or manifests, by their
// names, in the order of the names; nil for what is no folder. Hidden folders are left out: those
// of git, and the ones behind the links of a mounted ConfigMap.
func Files(name string) ([]string, error) {
	if info, err := os.Stat(name); err != nil || !info.IsDir() {
		return nil, nil // its reader says what is wrong with it
	}
	files := []string{}
	err := filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != name && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case !isDocument(d.Name()):
			return nil
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() { // behind a link too
			files = append(files, path)
		}
		return nil
	})
	return files, err
}

// isDocument reports whether a name is one of a file that can be read.
func isDocument(name string) bool {
	return slices.Contains([]string{".json", ".yaml", ".yml", ".rules"}, filepath.Ext(name))
}
