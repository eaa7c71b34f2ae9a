package recipes

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

var (
	root = filepath.Join("..", "..")
	// edit matches a block to insert. Its groups are the file, the text of the line below the block, and the block.
	edit = regexp.MustCompile("(?s)```(?:yaml|go|md|csv)\n(?:#|//|<!--) (\\S+), above (.+?)(?: -->)?\n(.*?)```")
	// commands matches the commands of a recipe.
	commands = regexp.MustCompile("(?s)```sh\n(.*?)```")
	// output matches what the last command must print.
	output = regexp.MustCompile("(?s)```text\n(.*?)```")
	// needed matches a package and the names of its tests that fail until the recipe is done.
	needed = regexp.MustCompile("`(etc|tests/\\w+)` \\(([^)]+)\\)")
	named  = regexp.MustCompile(`Test\w+`)
)

// A recipe is a section of docs/contributing.md.
type recipe struct {
	edits    [][]string // file, anchor, block
	commands []string
	output   string            // a part of what the last command prints
	tests    map[string]string // pattern of the tests that fail until the recipe is done, by package
}

// recipeOf reads the recipe under the given heading.
func recipeOf(t *testing.T, heading string) (r recipe) {
	t.Helper()
	_, section, ok := strings.Cut(folder.Read(t, root, "docs", "contributing.md"), "\n### "+heading+"\n")
	if !ok {
		t.Fatalf("docs/contributing.md: no recipe %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n### ")
	steps, tests, ok := strings.Cut(section, " until you are done: ")
	if !ok {
		t.Fatalf("recipe %s has no list of tests after \"until you are done: \"", heading)
	}
	steps = strings.ReplaceAll(steps, "\n   ", "\n") // the blocks are indented below the steps
	for _, m := range edit.FindAllStringSubmatch(steps, -1) {
		r.edits = append(r.edits, m[1:])
	}
	for _, m := range commands.FindAllStringSubmatch(steps, -1) {
		r.commands = append(r.commands, strings.Split(strings.TrimSpace(m[1]), "\n")...)
	}
	if m := output.FindStringSubmatch(steps); m != nil {
		r.output = m[1]
	}
	r.tests = map[string]string{}
	for _, m := range needed.FindAllStringSubmatch(tests, -1) {
		r.tests[m[1]] = "^(" + strings.Join(named.FindAllString(m[2], -1), "|") + ")$"
	}
	if len(r.edits) < 2 || len(r.commands) == 0 || len(r.tests) == 0 {
		t.Fatalf("%s: found %d edits, commands %q and tests %q; want at least two edits, one command and one test",
			heading, len(r.edits), r.commands, r.tests)
	}
	return r
}

// checkout is a copy of the files that recipes change or read. Go code is compiled in the repository, with the changed
// files replaced.
type checkout struct {
	t        *testing.T
	folder   string
	changed  map[string]bool   // changed Go files and files of etc
	programs map[string]string // compiled programs and tests, by package
}

func newCheckout(t *testing.T) *checkout {
	t.Helper()
	c := &checkout{t, t.TempDir(), map[string]bool{}, map[string]string{}}
	for _, name := range []string{"deployment", "docs", "etc", "grafana", "internal", "tests/rules", "tests/scenarios",
		"tests/chart"} {
		if err := os.CopyFS(filepath.Join(c.folder, name), os.DirFS(filepath.Join(root, name))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		folder.Write(t, filepath.Join(c.folder, name), folder.Read(t, root, name))
	}
	// promtool is downloaded once for the repository
	cache, err := filepath.Abs(filepath.Join(root, ".cache"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(cache, filepath.Join(c.folder, ".cache")); err != nil {
		t.Fatal(err)
	}
	return c
}

// insert inserts a block above the first line that contains anchor.
func (c *checkout) insert(file, anchor, block string) {
	c.t.Helper()
	path := filepath.Join(c.folder, file)
	text := folder.Read(c.t, path)
	at := strings.Index(text, anchor)
	if at < 0 {
		c.t.Fatalf("%s: no line contains %q", file, anchor)
	}
	at = strings.LastIndex(text[:at], "\n") + 1
	folder.Write(c.t, path, text[:at]+block+text[at:])
	if strings.HasSuffix(file, ".go") || strings.HasPrefix(file, "etc/") { // etc is embedded
		c.changed[file] = true
		clear(c.programs)
	}
}

// run runs a documented command: "go test PACKAGE ARGUMENTS" or "go run PACKAGE".
func (c *checkout) run(command string) (output string, err error) {
	c.t.Helper()
	words := strings.Fields(command)
	if len(words) < 3 || words[0] != "go" || words[1] != "test" && words[1] != "run" {
		c.t.Fatalf("command = %q, want go test or go run, followed by a package", command)
	}
	dir, args, build := c.folder, words[3:], []string{"build"}
	if words[1] == "test" {
		dir, build = filepath.Join(c.folder, words[2]), []string{"test", "-c", "-vet=off"}
		for i, a := range args {
			if a == "-run" {
				args[i] = "-test.run"
			}
		}
	}
	cmd := exec.Command(c.program(words[2], build), args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// program compiles a package with the given arguments of the go command, and returns the path of the result. The result
// is reused until an edit changes a Go file or a file in etc.
func (c *checkout) program(pkg string, build []string) string {
	c.t.Helper()
	if c.programs[pkg] == "" {
		path := filepath.Join(c.t.TempDir(), "program")
		cmd := exec.Command("go", append(build, "-ldflags=-s -w", "-overlay", c.overlay(), "-o", path, pkg)...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			c.t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
		c.programs[pkg] = path
	}
	return c.programs[pkg]
}

// overlay writes an overlay file (go build -overlay) that replaces the changed files, and returns its path.
func (c *checkout) overlay() string {
	c.t.Helper()
	replace := map[string]string{}
	for file := range c.changed {
		path, err := filepath.Abs(filepath.Join(root, file))
		if err != nil {
			c.t.Fatal(err)
		}
		replace[path] = filepath.Join(c.folder, file)
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		c.t.Fatal(err)
	}
	path := filepath.Join(c.t.TempDir(), "overlay.json")
	folder.Write(c.t, path, string(text))
	return path
}

// TestRecipes follows each recipe. The tests that the recipe lists must fail before its edits of docs, etc and
// testdata, and pass at the end.
func TestRecipes(t *testing.T) {
	for _, heading := range []string{"Add a family that the exporter computes", "Add an alert",
		"Add a fault of the simulator"} {
		t.Run(heading, func(t *testing.T) {
			t.Parallel()
			r, c := recipeOf(t, heading), newCheckout(t)
			late := func(e []string) bool {
				return strings.HasPrefix(e[0], "docs/") || strings.HasPrefix(e[0], "etc/") ||
					strings.Contains(e[0], "/testdata/")
			}
			for _, e := range slices.DeleteFunc(slices.Clone(r.edits), late) {
				c.insert(e[0], e[1], e[2])
			}
			for _, pkg := range slices.Sorted(maps.Keys(r.tests)) {
				out, _ := c.run("go test ./" + pkg + " -run " + r.tests[pkg])
				for _, name := range named.FindAllString(r.tests[pkg], -1) {
					if !strings.Contains(out, "--- FAIL: "+name+" ") {
						t.Errorf("%s does not fail before the recipe is done:\n%s", name, out)
					}
				}
			}
			for _, e := range r.edits {
				if late(e) {
					c.insert(e[0], e[1], e[2])
				}
			}
			for i, command := range r.commands {
				out, err := c.run(command)
				if err != nil {
					t.Errorf("%s: %v\n%s", command, err, out)
				}
				if i == len(r.commands)-1 && !strings.Contains(out, r.output) {
					t.Errorf("%s prints\n%s\nwithout\n%s", command, out, r.output)
				}
			}
			for _, pkg := range slices.Sorted(maps.Keys(r.tests)) {
				if out, err := c.run("go test ./" + pkg + " -run " + r.tests[pkg]); err != nil {
					t.Errorf("%s: %s fails after the recipe: %v\n%s", pkg, r.tests[pkg], err, out)
				}
			}
		})
	}
}
