package goldens

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	update = flag.Bool("update", false, "write the golden files again")
	dump   = flag.String("dump", "", "a folder to write the pages of the cases to, as text")
	only   = flag.String("case", "", "a regular expression of the cases that -dump writes")
)

// What to do about a difference, for its message.
const advice = `
a change that is meant:   go test ./tests/goldens -update
the pages themselves:     make golden-diff CASE='%s'
`

// dumpPages writes the pages of a session below the folder of -dump, one for each of the flags.
func dumpPages(t *testing.T, name string, pages [][]byte) {
	t.Helper()
	wanted, err := regexp.Compile(*only)
	if err != nil {
		t.Fatalf("-case: %v", err)
	}
	for i, page := range pages {
		if name := name + "/" + flags[i].name; wanted.MatchString(name) {
			write(t, filepath.Join(*dump, strings.ReplaceAll(name, "/", "_")+".txt"), string(page))
		}
	}
}

// comparePage compares a page that is kept as text.
func comparePage(t *testing.T, name string, page []byte) {
	t.Helper()
	path := filepath.Join("testdata", "pages", name+".txt")
	if *update {
		write(t, path, string(page))
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v"+advice, err, name)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(page), "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s"+advice, path, diff, name)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
