package main

import (
	"encoding/json"
	"flag"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

var (
	update  = flag.Bool("update", false, "write the output of the worked examples to docs/gpuop/dev/recipes.md")
	fenced  = regexp.MustCompile("(?s)```(yaml|text|go)\n(?:#|//) (\\S+?)(?:: (\\w+))?\n(.*?)```")
	printed = regexp.MustCompile("(?s)```console\n\\$ gpuop ([^\n]*)\n(.*?)```")
)

// TestWorkedExamples follows the recipes for a release, a rule and a wrapper in docs/gpuop/dev/recipes.md. It builds
// gpuop with an overlay of the changed files, and compares its output with the page.
func TestWorkedExamples(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(root, "docs", "gpuop", "dev", "recipes.md")
	before, section, _ := strings.Cut(folder.Read(t, page), "\n## Three worked examples\n")

	// files of the examples, and changes to the sources
	dir := t.TempDir()
	appended, rows := map[string]string{}, map[string][2]string{}
	for _, m := range fenced.FindAllStringSubmatch(section, -1) {
		kind, name, table, content := m[1], m[2], m[3], m[4]
		switch kind {
		case "yaml":
			folder.Write(t, filepath.Join(dir, name), content)
		case "text":
			appended[name] = content
		case "go":
			rows[name] = [2]string{table, content}
		}
	}
	if len(appended) != 1 || len(rows) != 2 {
		t.Fatalf("found %d hand-written lines and %d rows in the examples, want 1 and 2", len(appended), len(rows))
	}
	tables := filepath.Join(dir, "tables")
	folder.Write(t, filepath.Join(tables, "x"), "")
	if err := run(filepath.Join(dir, "CHARTS"), "", tables, false); err != nil {
		t.Fatal(err)
	}
	overlay := map[string]string{}
	for _, path := range folder.Files(t, tables, "*.txt") {
		overlay[filepath.Join(root, "gpuop", "chart", filepath.Base(path))] = path
	}
	for name, lines := range appended {
		folder.Write(t, filepath.Join(dir, "new", name), folder.Read(t, root, name)+lines)
		overlay[filepath.Join(root, name)] = filepath.Join(dir, "new", name)
	}
	for name, row := range rows {
		opens := regexp.MustCompile(`(?m)^var ` + row[0] + ` = \[\](?:struct \{\n(?:\t.*\n)*\}|\w+)\{$`)
		old := folder.Read(t, root, name)
		at := opens.FindStringIndex(old)
		if at == nil {
			t.Fatalf("%s: table %s not found", name, row[0])
		}
		folder.Write(t, filepath.Join(dir, "new", name), old[:at[1]]+"\n"+row[1]+old[at[1]:])
		overlay[filepath.Join(root, name)] = filepath.Join(dir, "new", name)
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	folder.Write(t, filepath.Join(dir, "overlay.json"), string(list))

	program := filepath.Join(dir, "gpuop")
	build := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "./gpuop")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	fresh := printed.ReplaceAllStringFunc(section, func(block string) string {
		line := printed.FindStringSubmatch(block)[1]
		call := exec.Command(program, strings.Fields(line)...)
		call.Dir = dir
		out, _ := call.CombinedOutput() // the exit code is 1 if there are findings
		return "```console\n$ gpuop " + line + "\n" + string(out) + "```"
	})
	if *update {
		folder.Write(t, page, before+"\n## Three worked examples\n"+fresh)
	} else if diff := cmp.Diff(section, fresh); diff != "" {
		t.Errorf("docs/gpuop/dev/recipes.md (-documented +printed):\n%s", diff)
	}
}
