package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	consoleBlock = regexp.MustCompile("(?s)```console\n\\$ gpuop ((?:lint|values|images|share|mig|explain|verify|node|drift|preflight|advise) [^\n]*)\n(.*?)```")
	shellWord    = regexp.MustCompile(`"[^"]*"|\S+`)
)

// Every console block in the documentation shows what the program prints.
func TestDocumentationShowsWhatIsPrinted(t *testing.T) {
	t.Chdir(filepath.Join("..", "..", "docs"))
	text, err := os.ReadFile("gpuop.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := consoleBlock.FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 18 {
		t.Fatalf("%d console blocks found, there were 18", len(blocks))
	}
	if *update {
		text = consoleBlock.ReplaceAllFunc(text, func(whole []byte) []byte {
			block := consoleBlock.FindSubmatch(whole)
			_, out, errOut := call("", words(string(block[1]))...)
			return []byte("```console\n$ gpuop " + string(block[1]) + "\n" + out + errOut + "```")
		})
		if err := os.WriteFile("gpuop.md", text, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, block := range blocks {
		_, out, errOut := call("", words(block[1])...)
		if diff := cmp.Diff(block[2], out+errOut); diff != "" {
			t.Errorf("gpuop %s (-documented +printed):\n%s", block[1], diff)
		}
	}
}

// words splits a command line of the documentation.
func words(line string) []string {
	var args []string
	for _, word := range shellWord.FindAllString(line, -1) {
		args = append(args, strings.Trim(word, `"`))
	}
	return args
}
