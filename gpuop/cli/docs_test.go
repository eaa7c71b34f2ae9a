package cli

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"mvdan.cc/sh/v3/shell"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

var (
	consoleBlock = regexp.MustCompile("(?s)```console\n\\$ gpuop ([^\n]*)\n(.*?)```")
	commandName  = regexp.MustCompile("`(?:sudo )?gpuop ([a-z]+)")
	checkInRow   = regexp.MustCompile("`([a-z][a-z0-9-]*)`")
)

// pages returns the pages of gpuop's documentation by file name. It changes the working directory to docs.
func pages(t *testing.T) map[string]string {
	t.Helper()
	t.Chdir(filepath.Join("..", "..", "docs"))
	all := map[string]string{}
	for _, name := range folder.Files(t, "gpuop/*.md") {
		all[name] = folder.Read(t, name)
	}
	if len(all) != 6 {
		t.Fatalf("pages = %d, want 6", len(all))
	}
	return all
}

// Every console block in the documentation equals the output of the program, and every command has a console block.
func TestConsoleBlocksMatchOutput(t *testing.T) {
	shown := map[string]bool{}
	for name, text := range pages(t) {
		fresh := consoleBlock.ReplaceAllStringFunc(text, func(whole string) string {
			line := consoleBlock.FindStringSubmatch(whole)[1]
			args, err := shell.Fields(line, nil)
			if err != nil {
				t.Fatal(err)
			}
			shown[args[0]] = true
			_, out, errOut := call("", args...)
			return "```console\n$ gpuop " + line + "\n" + out + errOut + "```"
		})
		if *update {
			folder.Write(t, name, fresh)
		} else if diff := cmp.Diff(text, fresh); diff != "" {
			t.Errorf("%s (-documented +printed):\n%s", name, diff)
		}
	}
	for _, c := range newRoot(&env{}, "gpuop").Commands() {
		if !c.Hidden && !shown[c.Name()] {
			t.Errorf("no page shows what gpuop %s prints", c.Name())
		}
	}
}

// Each command has a help text and, unless it only has subcommands, examples. Each text in help.txt is of a command.
func TestHelp(t *testing.T) {
	n := 0
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		n++
		if c.Long == "" || c.Example == "" && !c.HasSubCommands() || strings.Contains(c.Long+c.Example, "\n# ") {
			t.Errorf("%s: help %q, examples %q; want both in help.txt", c.CommandPath(), c.Long, c.Example)
		}
		for _, sub := range c.Commands() {
			if !sub.Hidden {
				check(sub)
			}
		}
	}
	check(newRoot(&env{}, "gpuop"))
	if texts := strings.Count("\n"+helpTexts, "\n# "); texts != n {
		t.Errorf("texts in help.txt = %d, want one for each of %d commands", texts, n)
	}
}

// The documentation names only commands and checks that exist.
func TestDocumentedNamesExist(t *testing.T) {
	var commands []string
	for _, c := range newRoot(&env{}, "gpuop").Commands() {
		if !c.Hidden {
			commands = append(commands, c.Name())
		}
	}
	named := 0
	for name, text := range pages(t) {
		for line := range strings.Lines(text) {
			var said []string
			for _, m := range commandName.FindAllStringSubmatch(line, -1) {
				if said = append(said, m[1]); !slices.Contains(commands, m[1]) {
					t.Errorf("%s: gpuop %s does not exist", name, m[1])
				}
			}
			// in broken.md, the cell after the command names the checks
			cells := strings.Split(line, " | ")
			if name != "gpuop/broken.md" || len(cells) != 4 || len(said) == 0 {
				continue
			}
			at := slices.IndexFunc(cells, func(c string) bool { return strings.HasPrefix(c, "`gpuop ") }) + 1
			for _, m := range checkInRow.FindAllStringSubmatch(cells[at], -1) {
				named++
				if check.Find(m[1]) == nil {
					t.Errorf("%s: check %s does not exist", name, m[1])
				}
			}
		}
	}
	if named < 100 {
		t.Errorf("checks named in broken.md = %d, want at least 100", named)
	}
}

// docs/gpuop/checks.md lists the registered checks, and their IDs are unique.
func TestChecksPage(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Checks\n\n`gpuop explain ID` prints an entry of this list. The severity is the highest of a check's findings.\n\n" +
		"| check | severity | what it means | what to do | documented in |\n|---|---|---|---|---|\n")
	for _, c := range check.All() {
		if check.Find(c.ID) != c {
			t.Errorf("two checks have the ID %s", c.ID)
		}
		cells := []string{"`" + c.ID + "`", c.Severity.String(), c.Title, c.Help, c.Source}
		for i, cell := range cells[2:] {
			cells[2+i] = strings.NewReplacer("<", "\\<", "|", "\\|", "*", "\\*").Replace(cell)
		}
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	golden(t, filepath.Join("..", "..", "..", "docs", "gpuop", "checks.md"), b.String())
}
