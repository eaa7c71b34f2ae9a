package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// call runs gpuop in this process.
func call(stdin string, args ...string) (code int, out, errOut string) {
	var o, e bytes.Buffer
	code = Run(context.Background(), append([]string{"gpuop"}, args...), "v0.0.0-test", Streams{In: strings.NewReader(stdin), Out: &o, Err: &e})
	return code, o.String(), e.String()
}

// golden compares a transcript with the file testdata/name. With -update, it writes the file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%s is missing: run the test with -update, then review the file", path)
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// transcript returns what a terminal would show for a call.
func transcript(stdin string, args ...string) string {
	code, out, errOut := call(stdin, args...)
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = a
		if strings.ContainsAny(a, " '\"") || a == "" {
			quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	text := fmt.Sprintf("$ gpuop %s\n%s", strings.Join(quoted, " "), out)
	if errOut != "" {
		text += "[standard error]\n" + errOut
	}
	return text + fmt.Sprintf("[exit %d]\n\n", code)
}
