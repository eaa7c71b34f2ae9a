package cli

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"mvdan.cc/sh/v3/shell"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

var update = flag.Bool("update", false, "write the golden files")

// call runs gpuop in this process.
func call(stdin string, args ...string) (code int, out, errOut string) {
	var o, e bytes.Buffer
	code = Run(context.Background(), append([]string{"gpuop"}, args...), "v0.0.0-test", Streams{In: strings.NewReader(stdin), Out: &o, Err: &e})
	return code, o.String(), e.String()
}

// golden compares a text with the file testdata/name. With -update, it writes the file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		folder.Write(t, path, got)
	} else if diff := cmp.Diff(folder.Read(t, path), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func example(name string) string { return filepath.Join("..", "..", "docs", "examples", name) }

// transcribedCall matches the line of a transcript that has a call, and its arguments. A quoted argument may have
// several lines.
var transcribedCall = regexp.MustCompile(`(?m)^\$ gpuop((?:'[^']*'|\\.|[^'\n])*)$`)

// The transcripts in testdata show what calls of gpuop print. Standard input is a values file. Each transcript in
// testdata/golden is about a file in testdata/shapes, which has one of the ways in which people write commands and
// values. lint-install.txt shows how a new user corrects an article's command step by step.
func TestTranscripts(t *testing.T) {
	transcripts, err := fs.Glob(os.DirFS("testdata"), "*.txt")
	if err != nil {
		t.Fatal(err)
	}
	shapes, err := os.ReadDir(filepath.Join("testdata", "shapes"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range shapes {
		transcripts = append(transcripts, filepath.Join("golden", e.Name()+".txt"))
	}
	for _, name := range append(transcripts, "verify.golden") {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			for _, m := range transcribedCall.FindAllStringSubmatch(folder.Read(t, "testdata", name), -1) {
				args, err := shell.Fields(m[1], nil)
				if err != nil {
					t.Fatal(err)
				}
				code, out, errOut := call("driver: {version: 1}\n", args...)
				b.WriteString(m[0] + "\n" + out)
				if errOut != "" {
					b.WriteString("[standard error]\n" + errOut)
				}
				fmt.Fprintf(&b, "[exit %d]\n\n", code)
			}
			if b.Len() == 0 {
				t.Errorf("%s has no call", name)
			}
			golden(t, name, b.String())
		})
	}
}
