package explain

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

func TestGlossaryIsWellFormed(t *testing.T) {
	entries := glossary()
	lines := 0
	for line := range strings.Lines(words) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines++
			if n := strings.Count(line, " | "); n != 5 {
				t.Errorf("columns = %d, want 6: %s", n+1, line)
			}
		}
	}
	if len(entries) != lines || lines < 150 {
		t.Errorf("entries = %d, lines = %d, want equal numbers of at least 150", len(entries), lines)
	}
	seen := map[string]string{}
	for _, e := range entries {
		if e.Kind == "" || e.Meaning == "" || !strings.HasSuffix(e.Meaning, ".") && !strings.HasSuffix(e.Meaning, "…") {
			t.Errorf("%q: kind = %q, meaning = %q, want a kind and a sentence", e.Words, e.Kind, e.Meaning)
		}
		for _, w := range e.Words {
			if w == "" || w != strings.TrimSpace(w) {
				t.Errorf("words %q: %q is empty or has spaces around it", e.Words, w)
			}
			key := e.Kind + " " + w
			if other, twice := seen[key]; twice {
				t.Errorf("%q has two explanations: %q and %q", w, other, e.Meaning)
			}
			seen[key] = e.Meaning
			if !slices.ContainsFunc(find(w), func(f Entry) bool { return f.Kind == e.Kind && f.Meaning == e.Meaning }) {
				t.Errorf("find(%q) does not return the entry of the word", w)
			}
		}
	}
}

// TestWordsThatUsersSee looks up the words in testdata/words.txt. Each must have an entry with a meaning and a source.
func TestWordsThatUsersSee(t *testing.T) {
	words := 0
	for line := range strings.Lines(folder.Read(t, "testdata", "words.txt")) {
		_, list, _ := strings.Cut(strings.TrimSpace(line), " | ")
		for word := range strings.SplitSeq(list, "; ") {
			if word == "" {
				continue
			}
			words++
			if entries := find(word); len(entries) == 0 || entries[0].Meaning == "" || entries[0].Source == "" {
				t.Errorf("find(%q) = %+v, want an entry with a meaning and a source", word, entries)
			}
		}
	}
	if words < 150 {
		t.Errorf("words = %d, want at least 150", words)
	}
}

// TestEveryLabelOfGFDResolves looks up every label in the expected output of GPU Feature Discovery's own tests.
func TestEveryLabelOfGFDResolves(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(material.Path(t, "data/upstream/k8s-device-plugin"), "expected-output*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("files of expected labels = %d, error = %v, want at least one file", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for pattern := range strings.FieldsSeq(string(data)) {
			label, _, _ := strings.Cut(pattern, "=")
			label = strings.NewReplacer(`[0-9]+g\.[0-9]+gb`, "3g.20gb", `\`, "", ".*", "").Replace(label)
			if len(find(label)) == 0 {
				t.Errorf("%s: %s is not explained", filepath.Base(file), label)
			}
		}
	}
}

func TestFindSpecialises(t *testing.T) {
	for word, want := range map[string]struct{ kind, meaning string }{
		"all-1g.10gb":                {"config", "Every GPU filled with the profile."},
		"nvidia.com/mig-2g.48gb.gfx": {"resource", "One MIG device of the profile"},
		"9g.99gb":                    {"concept", "A kind of MIG instance"},
		"a100-40gb":                  {"board", "gpuop mig profiles NVIDIA-A100-SXM4-40GB lists its profiles"},
	} {
		entries := find(word)
		if len(entries) == 0 || entries[0].Kind != want.kind || entries[0].Words[0] != word || !strings.Contains(entries[0].Meaning, want.meaning) {
			t.Errorf("find(%q) = %+v, want kind %s and the meaning %q", word, entries, want.kind, want.meaning)
		}
	}
	if got := find("NVIDIA-A100-SXM4-80GB-SHARED"); len(got) != 2 || got[1].Kind != "state" {
		t.Errorf("find(NVIDIA-A100-SXM4-80GB-SHARED) = %+v, want the board and the state -SHARED", got)
	}
	if got := find("nvidia.com/mig.config=all-balanced"); len(got) != 2 || got[1].Words[0] != "all-balanced" {
		t.Errorf("find(nvidia.com/mig.config=all-balanced) = %+v, want the label and the value", got)
	}
}

func TestNearest(t *testing.T) {
	for word, want := range map[string]string{
		"UnexpectedAdmissonError": "UnexpectedAdmissionError", "nvidia.com/gpu.presnt": "nvidia.com/gpu.present", "gpu.deploy.drivr": "nvidia.com/gpu.deploy.driver",
		"paused-for-mig": "paused-for-mig-change", "renameByDefualt": "renameByDefault", "1g.11gb": "1g.10gb",
	} {
		if got := find(word); len(got) > 0 && !strings.HasSuffix(word, "gb") {
			t.Errorf("find(%q) = %+v, want no entries", word, got)
		}
		if near := nearest(word); len(near) == 0 || near[0] != want && word != "1g.11gb" || len(near) > 3 {
			t.Errorf("nearest(%q) = %q, want at most 3 words with %q first", word, near, want)
		}
	}
	if near := nearest("qqqqqqqqqq"); len(near) > 0 {
		t.Errorf("nearest(qqqqqqqqqq) = %q, want none", near)
	}
}

// FuzzFind checks that entries are complete, and that every suggested word has an entry.
func FuzzFind(f *testing.F) {
	for _, s := range []string{"nvidia.com/gpu.present=true", "1g.5gb+me", "=", "mig-1g.5gb.shared", "A100", "\x00", "<profile>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, word string) {
		for _, e := range find(word) {
			if e.Kind == "" || e.Meaning == "" || len(e.Words) == 0 {
				t.Fatalf("%q: entry lacks a kind, a meaning or words: %+v", word, e)
			}
		}
		for _, near := range nearest(word) {
			if len(find(near)) == 0 {
				t.Fatalf("%q: suggested word %q has no entry", word, near)
			}
		}
	})
}

func Example_find() {
	for _, e := range find("nvidia.com/gpu.deploy.client") {
		fmt.Println(e.Kind, "read by", regexp.MustCompile(`,.*`).ReplaceAllString(e.Reader, ""))
	}
	// Output: label read by MIG manager v0.15
}

func TestKeysOfTheChart(t *testing.T) {
	list, err := Lookup(chart.Load(), "cdi.enabled")
	if want := "[false from v23.3.0 true from v25.10.0]"; err != nil || len(list) != 1 || fmt.Sprint(list[0].Defaults) != want {
		t.Fatalf("Lookup(cdi.enabled) = %+v, error = %v, want the defaults %s", list, err, want)
	}
	if list, err := Lookup(chart.Load(), ".Values.driver.upgradePolicy"); err != nil || len(list) < 10 {
		t.Errorf("keys below driver.upgradePolicy = %d, error = %v, want at least 10 keys", len(list), err)
	}
	if _, err := Lookup(chart.Load(), "driver.usePrecompild"); err == nil || !strings.Contains(err.Error(), "driver.usePrecompiled?") {
		t.Errorf("misspelled key: error = %v, want one that suggests driver.usePrecompiled", err)
	}
	c := check.New("test-check", check.Note, "Means this.", "Do that.", "source")
	if list, err := Lookup(chart.Load(), c.ID); err != nil || list[0].Meaning != "Means this. Do that." {
		t.Errorf("Lookup(%s) = %+v, error = %v, want the title and help of the check", c.ID, list, err)
	}
	// the releases that added and removed keys of the chart
	for _, row := range []struct{ path, since, removed string }{
		{"cdi.enabled", "v23.3.0", ""}, {"cdi.default", "v23.3.0", "v26.7.0"}, {"daemonsets.annotations", "v22.9.2", ""}, {"daemonsets.labels", "v22.9.2", ""},
		{"driver.enabled", "v1.7.0", ""}, {"driver.repository", "v1.7.0", ""}, {"driver.rdma.enabled", "v1.8.0", ""}, {"driver.rdma.useHostMofed", "v1.9.0", ""},
		{"driver.usePrecompiled", "v23.3.0", ""}, {"driver.version", "v1.7.0", ""}, {"mig.strategy", "v1.7.0", ""}, {"migManager.enabled", "v1.7.0", ""},
		{"nfd.enabled", "v1.7.0", ""}, {"toolkit.enabled", "v1.7.0", ""}, {"toolkit.version", "v1.7.0", ""}, {"operator.labels", "v22.9.2", ""}, {"psp.enabled", "v1.7.0", "v24.3.0"},
	} {
		want := row.since
		if row.removed != "" {
			want += ", removed in " + row.removed
		}
		if list, err := Lookup(chart.Load(), row.path); err != nil || list[len(list)-1].Since != want {
			t.Errorf("Lookup(%s) = %+v, error = %v, want since = %q", row.path, list, err, want)
		}
	}
}
