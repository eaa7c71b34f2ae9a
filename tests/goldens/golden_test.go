package goldens

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"hash"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	update = flag.Bool("update", false, "write the golden files again")
	dump   = flag.String("dump", "", "a folder to write the pages of the cases to, as text")
	only   = flag.String("case", "", "a regular expression of the cases that -dump writes; those that differ without")
)

// What to do about a difference, for its message.
const advice = `
a change that is meant:   go test ./tests/goldens -update
the pages themselves:     make golden-diff CASE='%s'
`

// A family is what a page has of one metric family.
type family struct {
	name, header string // header is the type and the help text
	samples      []byte
	series       int
}

// familiesOf takes a page apart. Samples are parts of the page: all of it is there.
func familiesOf(t *testing.T, page []byte) []family {
	t.Helper()
	var all []family
	var help string
	at, next := 0, 0
	for line := range bytes.Lines(page) {
		at, next = next, next+len(line)
		text := strings.TrimSuffix(string(line), "\n")
		switch {
		case strings.HasPrefix(text, "# HELP "):
			help = text[len("# HELP "):]
		case strings.HasPrefix(text, "# TYPE "):
			name, kind, _ := strings.Cut(text[len("# TYPE "):], " ")
			f := family{name: name, header: kind}
			if help != "" {
				of, words, _ := strings.Cut(help, " ")
				if of != name {
					t.Fatalf("the help of %s stands above the type of %s", of, name)
				}
				f.header += " " + words
			}
			all, help = append(all, f), ""
		default:
			if len(all) == 0 || !strings.HasPrefix(text, all[len(all)-1].name) {
				t.Fatalf("a sample without a family: %s", text)
			}
			f := &all[len(all)-1]
			if f.series == 0 {
				f.samples = page[at:at]
			}
			f.samples = f.samples[:len(f.samples)+len(line)]
			f.series++
		}
	}
	return all
}

// A sheet is the golden file of one source and node.
type sheet struct {
	t       *testing.T
	name    string
	headers *headers

	sessions []string
	cases    map[string]string            // by session/flags: families, series, hash
	cells    map[string]map[string]string // by family and session
	wanted   *regexp.Regexp               // cases that -dump writes
	pages    map[string][]byte            // theirs
}

func newSheet(t *testing.T, name string, h *headers) *sheet {
	t.Helper()
	wanted, err := regexp.Compile(*only)
	if err != nil {
		t.Fatalf("-case: %v", err)
	}
	return &sheet{
		t: t, name: name, headers: h, wanted: wanted,
		cases: map[string]string{}, cells: map[string]map[string]string{}, pages: map[string][]byte{},
	}
}

// add adds the pages of a session, one for each of the flags.
func (s *sheet) add(session string, pages [][]byte) {
	s.t.Helper()
	s.sessions = append(s.sessions, session)
	blocks := map[string]hash.Hash{}
	for i, page := range pages {
		whole, families, series := sha256.New(), 0, 0
		for _, f := range familiesOf(s.t, page) {
			s.headers.add(s.t, f.name, f.header)
			fmt.Fprintln(whole, f.name)
			whole.Write(f.samples)
			if blocks[f.name] == nil {
				blocks[f.name] = sha256.New()
			}
			fmt.Fprintln(blocks[f.name], flags[i].name)
			blocks[f.name].Write(f.samples)
			families++
			series += f.series
		}
		name := session + "/" + flags[i].name
		s.cases[name] = fmt.Sprintf("%d families %d series %s", families, series, hex.EncodeToString(whole.Sum(nil)[:8]))
		if *dump != "" && s.wanted.MatchString(s.name+"/"+name) {
			s.pages[name] = page
		}
	}
	for name, block := range blocks {
		if s.cells[name] == nil {
			s.cells[name] = map[string]string{}
		}
		s.cells[name][session] = hex.EncodeToString(block.Sum(nil)[:2])
	}
}

func (s *sheet) path() string { return filepath.Join("testdata", s.name+".golden") }

// text writes the file: a line for each case, and a line for each family with a hash for each
// session, in the order in which the sessions are listed.
func (s *sheet) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# The pages of %s. Written by: go test ./tests/goldens -update\n\n[cases]\n", s.name)
	for _, name := range slices.Sorted(maps.Keys(s.cases)) {
		fmt.Fprintf(&b, "%s %s\n", name, s.cases[name])
	}
	b.WriteString("\n[sessions]\n")
	sessions := slices.Sorted(slices.Values(s.sessions))
	for _, name := range sessions {
		b.WriteString(name + "\n")
	}
	b.WriteString("\n[families]\n")
	for _, name := range slices.Sorted(maps.Keys(s.cells)) {
		b.WriteString(name)
		for _, session := range sessions {
			cell := s.cells[name][session]
			if cell == "" {
				cell = "-"
			}
			b.WriteString(" " + cell)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// readSheet reads what text wrote.
func readSheet(t *testing.T, path string) *sheet {
	t.Helper()
	s := newSheet(t, "", nil)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v"+advice, err, ".*")
	}
	section := ""
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = words[0]
		case section == "[cases]":
			s.cases[words[0]] = strings.Join(words[1:], " ")
		case section == "[sessions]":
			s.sessions = append(s.sessions, words[0])
		case len(words) == 1+len(s.sessions):
			s.cells[words[0]] = map[string]string{}
			for i, session := range s.sessions {
				if words[1+i] != "-" {
					s.cells[words[0]][session] = words[1+i]
				}
			}
		default:
			t.Fatalf("%s: a line of %d words for %d sessions: %s", path, len(words), len(s.sessions), line)
		}
	}
	return s
}

// compare compares the sheet with its file.
func (s *sheet) compare() {
	s.t.Helper()
	if *update {
		s.write(nil)
		write(s.t, s.path(), s.text())
		return
	}
	want := readSheet(s.t, s.path())
	var differ []string
	for _, name := range slices.Sorted(maps.Keys(union(want.cases, s.cases))) {
		if want.cases[name] != s.cases[name] {
			differ = append(differ, name)
		}
	}
	s.write(differ)
	if len(differ) == 0 {
		if diff := cmp.Diff(want.cells, s.cells); diff != "" {
			s.t.Errorf("%s: the table does not fit its cases (-want +got):\n%s"+advice, s.path(), diff, ".*")
		}
		return
	}
	s.t.Errorf("%d of %d pages of %s changed.\n%s"+advice, len(differ), len(s.cases), s.name, s.difference(want, differ), s.name+"/"+differ[0])
}

// difference says for each session that has a changed page which families changed.
func (s *sheet) difference(want *sheet, differ []string) string {
	var b strings.Builder
	sessions := map[string]bool{}
	for _, name := range differ {
		sessions[filepath.Dir(name)] = true
	}
	const shown = 8
	for i, session := range slices.Sorted(maps.Keys(sessions)) {
		if i == shown {
			fmt.Fprintf(&b, "and %d sessions more\n", len(sessions)-shown)
			break
		}
		fmt.Fprintf(&b, "%s:", session)
		n := 0
		for _, name := range slices.Sorted(maps.Keys(union(want.cells, s.cells))) {
			was, is := want.cells[name][session], s.cells[name][session]
			if was == is {
				continue
			}
			if n++; n > shown {
				continue
			}
			switch "" {
			case was:
				name = "+" + name
			case is:
				name = "-" + name
			}
			b.WriteString(" " + name)
		}
		switch {
		case n == 0:
			b.WriteString(" the order of its families")
		case n > shown:
			fmt.Fprintf(&b, " and %d families more", n-shown)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// write writes the pages for -dump: those of the cases that -case names, and without it
// those that differ.
func (s *sheet) write(differ []string) {
	s.t.Helper()
	for name, page := range s.pages {
		if *only != "" || slices.Contains(differ, name) {
			write(s.t, filepath.Join(*dump, strings.ReplaceAll(s.name+"/"+name, "/", "_")+".txt"), string(page))
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

func union[V any](a, b map[string]V) map[string]V {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// headers are the types and the help texts of all families, as text. A family that has several has
// a line for each.
type headers struct {
	mu    sync.Mutex
	seen  map[string]bool // "name type help"
	known map[string]bool // the file's
}

const headersPath = "testdata/headers.golden"

func newHeaders(t *testing.T) *headers {
	t.Helper()
	h := &headers{seen: map[string]bool{}, known: map[string]bool{}}
	data, err := os.ReadFile(headersPath)
	if err != nil && !*update {
		t.Fatalf("%v"+advice, err, ".*")
	}
	for line := range strings.Lines(string(data)) {
		if !strings.HasPrefix(line, "#") {
			h.known[strings.TrimSuffix(line, "\n")] = true
		}
	}
	return h
}

func (h *headers) add(t *testing.T, name, header string) {
	t.Helper()
	line := name + " " + header
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen[line] {
		return
	}
	h.seen[line] = true
	if !*update && !h.known[line] {
		t.Errorf("a family with another type or help text than in %s: %s"+advice, headersPath, line, ".*")
	}
}

// compare expects that the file has nothing more.
func (h *headers) compare(t *testing.T) {
	t.Helper()
	lines := slices.Sorted(maps.Keys(h.seen))
	if *update {
		write(t, headersPath, "# Name, type and help text of every family. Written by: go test ./tests/goldens -update\n"+strings.Join(lines, "\n")+"\n")
		return
	}
	for _, line := range slices.Sorted(maps.Keys(h.known)) {
		if !h.seen[line] {
			t.Errorf("on no page: %s"+advice, line, ".*")
		}
	}
}
