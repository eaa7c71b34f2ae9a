package main

import (
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

const root = "../.."

var (
	// written matches names that look like the exporter's metrics or variables. A trailing "*", "…" or "{" may stand
	// for all names with the prefix.
	written = regexp.MustCompile(`\b(?:DCGM_[A-Z0-9_]+|dcgm_(?:exporter|pod|gpu)_[a-z0-9_]+)(?:[*…{]|\b)`)

	// others matches build arguments of the images, and names of DCGM that are neither metrics nor variables.
	others = regexp.MustCompile(`^DCGM_(FR|ST|FV|FE|FP|HEALTH|GROUP|LEVEL|CUDA|ENTITY|INT|STR|MAX|UUID)_` +
		`|^DCGM_(PACKAGES|REPOSITORY|VERSION)$`)

	codeSpan = regexp.MustCompile("`([^`]+)`")
	fenced   = regexp.MustCompile("(?s)```.*?```")
	flagSpan = regexp.MustCompile(`^(--[a-z-]+)(?:=(\S+))?$`)
)

// foreign lists flags of other programs, such as Helm and nv-hostengine, that the exporter does not have.
var foreign = []string{"--skip-schema-validation", "--privileged", "--reset-values", "--reuse-values",
	"--domain-socket"}

// words returns all string literals in the exporter's code.
func (w *writer) words() map[string]bool {
	words := map[string]bool{}
	w.walkCode(func(n ast.Node) {
		if s, ok := stringOf(n); ok {
			words[s] = true
		}
	})
	return words
}

// Every metric, variable and flag in the documentation exists, and documented flag values are accepted without a
// notice.
func TestDocumentedNamesExist(t *testing.T) {
	t.Chdir(root)
	w := &writer{}
	words, help := w.words(), config.Help()
	if w.err != nil {
		t.Fatal(w.err)
	}
	known := map[string]bool{}
	for e := range catalog.All() {
		for _, name := range append([]string{e.Name, e.Classic, e.Current}, e.Aliases...) {
			known[name] = true
		}
	}
	for _, m := range regexp.MustCompile(`\$([A-Z][A-Z0-9_]+)`).FindAllStringSubmatch(help, -1) {
		known[m[1]] = true
	}
	for word := range words {
		if written.FindString(word) == word {
			known[word] = true
		}
	}
	known["DCGM_EXP_GPU_INSTANCES"] = true // the recipe in docs/contributing.md adds this family
	names, flags := 0, 0
	for path, text := range pages(t) {
		for _, name := range written.FindAllString(text, -1) {
			names++
			if !exists(known, name) {
				t.Errorf("%s names the metric %s, which does not exist", path, name)
			}
		}
		if !ours(path) || path == "docs/flags.md" {
			continue // flags.md is generated from the table of settings
		}
		for _, m := range codeSpan.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			if f := flagSpan.FindStringSubmatch(m[1]); f != nil && !slices.Contains(foreign, f[1]) {
				flags++
				checkFlag(t, path, help, f[1], f[2])
			}
		}
	}
	if names < 100 || flags < 80 {
		t.Errorf("found %d names and %d flags, want at least 100 and 80: the patterns may no longer match", names,
			flags)
	}
}

// ours reports whether a page is part of the exporter's documentation, as opposed to gpuop's.
func ours(path string) bool {
	return filepath.Ext(path) == ".md" && slices.Contains([]string{"docs", "docs/install"}, filepath.Dir(path))
}

// exists reports whether a name is known or matches the pattern others. A name that ends in "_", "*", "…" or "{" also
// exists if it is the prefix of a known name.
func exists(known map[string]bool, name string) bool {
	stem := strings.TrimRight(name, "*…{")
	if _, ok := catalog.Lookup(stem); ok || known[stem] || others.MatchString(name) {
		return true
	}
	if stem == name && !strings.HasSuffix(name, "_") {
		return false
	}
	for k := range known {
		if strings.HasPrefix(k, stem) {
			return true
		}
	}
	return false
}

// pages returns the texts of the files that are written for users, by path. The changelog is left out, because it names
// things that were removed.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"README.md": folder.Read(t, "README.md")}
	for _, dir := range []string{"docs", "grafana", "deployment"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				all[path] = folder.Read(t, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func checkFlag(t *testing.T, path, help, name, value string) {
	t.Helper()
	if !regexp.MustCompile(regexp.QuoteMeta(name) + `[ ,]`).MatchString(help) {
		t.Errorf("%s: flag %s does not exist", path, name)
	} else if value != "" && strings.ToLower(value) == value && value[0] != '\'' { // not a shell example
		c, err := config.Parse([]string{name + "=" + value}, func(string) (string, bool) { return "", false },
			os.ReadFile)
		if err != nil || len(c.Notices) > 0 {
			t.Errorf("%s: %s=%s: %v", path, name, value, err)
		}
	}
}
