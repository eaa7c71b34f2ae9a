package vocabulary_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command/commandtest"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command/vocabulary"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// write runs "diff --write" over a file in memory, and returns the file and what was found.
func write(t testing.TB, name, text string, args ...string) (after string, list []vocabulary.Finding, code int) {
	t.Helper()
	w := &commandtest.World{Files: map[string]string{name: text}}
	code = vocabulary.Command{
		Process:   w.Process(append([]string{"diff", "--write", "--format=json"}, append(args, name)...)...),
		WriteFile: func(name string, content []byte) error { w.Files[name] = string(content); return nil },
	}.Run()
	if code != command.Unable {
		if err := json.Unmarshal(w.Out.Bytes(), &list); err != nil {
			t.Fatal(err)
		}
	}
	return w.Files[name], list, code
}

// TestWrite: a text is replaced in the way in which it is written, and nothing else of the file.
func TestWrite(t *testing.T) {
	group := func(rule string) string { return "groups: # ours\n- name: g\n  rules:\n" + rule }
	for name, tt := range map[string]struct {
		text, want string // "" for unchanged
		code       int
	}{
		"plain, with a comment": {
			group("  - record: r\n    expr: DCGM_FI_DEV_GPU_TEMP > 80 # hot\n"),
			group("  - record: r\n    expr: DCGM_FI_DEV_GPU_TEMP_CELSIUS > 80 # hot\n"), 0,
		},
		"single quotes": {
			group("  - {record: r, expr: 'DCGM_FI_DEV_GPU_TEMP{a=''b''}'}\n"),
			group("  - {record: r, expr: 'DCGM_FI_DEV_GPU_TEMP_CELSIUS{a=''b''}'}\n"), 0,
		},
		"double quotes": {
			group("  - record: r\n    expr: \"DCGM_FI_DEV_GPU_TEMP{a=\\\"b\\\"}\"\n"),
			group("  - record: r\n    expr: \"DCGM_FI_DEV_GPU_TEMP_CELSIUS{a=\\\"b\\\"}\"\n"), 0,
		},
		"a block": {
			group("  - record: r\n    expr: |\n      # hot\n      DCGM_FI_DEV_GPU_TEMP\n\n      > 80\n  - record: s\n    expr: up\n"),
			group("  - record: r\n    expr: |\n      # hot\n      DCGM_FI_DEV_GPU_TEMP_CELSIUS\n\n      > 80\n  - record: s\n    expr: up\n"), 0,
		},
		"a block without its last line break": {
			group("  - record: r\n    expr: |-\n        DCGM_FI_DEV_GPU_TEMP"),
			group("  - record: r\n    expr: |-\n        DCGM_FI_DEV_GPU_TEMP_CELSIUS"), 0,
		},
		"folded, by hand":             {group("  - record: r\n    expr: >\n      DCGM_FI_DEV_GPU_TEMP\n      > 80\n"), "", 1},
		"plain over lines, by hand":   {group("  - record: r\n    expr: DCGM_FI_DEV_GPU_TEMP\n      > 80\n"), "", 1},
		"several on one line":         {group("  - {record: r, expr: DCGM_FI_DEV_GPU_TEMP}\n  - {record: s, expr: DCGM_FI_DEV_GPU_TEMP}\n"), group("  - {record: r, expr: DCGM_FI_DEV_GPU_TEMP_CELSIUS}\n  - {record: s, expr: DCGM_FI_DEV_GPU_TEMP_CELSIUS}\n"), 0},
		"quotes where there was none": {group("  - {record: r, expr: DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_GPU_TEMP}\n"), group("  - {record: r, expr: DCGM_FI_DEV_FB_USED_BYTES / 1048576 + DCGM_FI_DEV_GPU_TEMP_CELSIUS}\n"), 0},
		"JSON, its spaces and marks":  {"\ufeff{\"groups\" :[ {\"name\":\"g\",\"rules\":[{\"record\":\"r\",\"expr\" : \"DCGM_FI_DEV_GPU_TEMP > 80\"}]}]}", "\ufeff{\"groups\" :[ {\"name\":\"g\",\"rules\":[{\"record\":\"r\",\"expr\" : \"DCGM_FI_DEV_GPU_TEMP_CELSIUS > 80\"}]}]}", 0},
		"a dashboard in a ConfigMap": {
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: d}\ndata:\n  d.json: |\n    {\"panels\": [{\"title\": \"t\",\n      \"targets\": [{\"expr\": \"DCGM_FI_DEV_GPU_TEMP\"}]}]}\n  other: x\n",
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: d}\ndata:\n  d.json: |\n    {\"panels\": [{\"title\": \"t\",\n      \"targets\": [{\"expr\": \"DCGM_FI_DEV_GPU_TEMP_CELSIUS\"}]}]}\n  other: x\n", 0,
		},
		"nothing to change": {group("  - record: r\n    expr: up\n"), "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			want := tt.want
			if want == "" {
				want = tt.text
			}
			got, list, code := write(t, "x.yaml", tt.text, "--to=current")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if code != tt.code {
				t.Errorf("code %d, want %d: %+v", code, tt.code, list)
			}
		})
	}
}

// TestWriteWholeFiles: nothing that was written is left to change, and only lines with a finding
// are others than before.
func TestWriteWholeFiles(t *testing.T) {
	files := []string{"testdata/node.json", "testdata/rules.yaml", "testdata/manifests.yaml", "testdata/dashboard.json", "testdata/configmaps.yaml"}
	if path := material.Path(t, "data/upstream/dcgm-exporter/dcgm-exporter-dashboard.json"); path != "" {
		files = append(files, path)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			before, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			after, list, _ := write(t, filepath.Base(file), string(before))
			written := map[string]bool{}
			n := 0
			for _, f := range list {
				if f.Written {
					written[f.Place+f.Old] = true
					n += 1 + strings.Count(strings.TrimRight(f.Old, "\n"), "\n")
				}
			}
			if n == 0 {
				t.Fatal("nothing was written")
			}
			_, again, _ := write(t, filepath.Base(file), after, "--to="+list[0].To)
			for _, f := range again {
				if f.New != "" && f.Written {
					t.Errorf("line %d: %s is written a second time, as %s", f.Line, f.Old, f.New)
				}
			}
			was, is := strings.Split(string(before), "\n"), strings.Split(after, "\n")
			if len(was) != len(is) {
				t.Fatalf("%d lines became %d", len(was), len(is))
			}
			changed := 0
			for i := range was {
				if was[i] != is[i] {
					changed++
				}
			}
			if changed == 0 || changed > n {
				t.Errorf("%d lines are others, for %d findings", changed, n)
			}
		})
	}
}

func TestWriteRefusals(t *testing.T) {
	const rules = "groups:\n- name: g\n  rules:\n  - record: r\n    expr: DCGM_FI_DEV_GPU_TEMP\n"
	w := &commandtest.World{Files: map[string]string{"r.yaml": rules}}
	full := errors.New("no space left on device")
	c := vocabulary.Command{Process: w.Process("diff", "--write", "r.yaml"), WriteFile: func(string, []byte) error { return full }}
	if code := c.Run(); code != command.Unable || !strings.Contains(w.Err.String(), full.Error()) || !strings.Contains(w.Out.String(), "not written") {
		t.Errorf("code %d, said %q and %q", code, w.Err.String(), w.Out.String())
	}
	w = &commandtest.World{In: rules}
	if code := (vocabulary.Command{Process: w.Process("diff", "--write", "-")}).Run(); code != command.Unable || !strings.Contains(w.Err.String(), "standard input") {
		t.Errorf("code %d, said %q", code, w.Err.String())
	}
}

func TestReplaceFile(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, []byte("old"), 0o640), os.Symlink("file", link)); err != nil {
		t.Fatal(err)
	}
	if err := vocabulary.ReplaceFile(link, []byte("new")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	info, statErr := os.Lstat(link)
	mode, modeErr := os.Stat(file)
	if err := errors.Join(err, statErr, modeErr); err != nil {
		t.Fatal(err)
	}
	if string(text) != "new" || info.Mode()&os.ModeSymlink == 0 || mode.Mode().Perm() != 0o640 {
		t.Errorf("%q, link %v, mode %v", text, info.Mode(), mode.Mode())
	}
	if err := vocabulary.ReplaceFile(filepath.Join(dir, "none"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 2 {
		t.Errorf("left behind: %v, %v", list, err)
	}
}

// FuzzWrite holds that a file that was written is read again, and that nothing of it is written
// twice.
func FuzzWrite(f *testing.F) {
	for _, seed := range []string{
		"groups:\n- name: g\n  rules:\n  - record: r\n    expr: DCGM_FI_DEV_GPU_TEMP # c\n  - {alert: a, expr: 'DCGM_FI_DEV_FB_USED > 1'}\n",
		"groups:\n- rules:\n  - alert: é\n    expr: |2-\n       DCGM_FI_DEV_GPU_TEMP\n      + 1\n\n",
		"groups: [{rules: [{expr: \"DCGM_FI_DEV_GPU_TEMP\\n\"}]}]", "{\"panels\":[{\"targets\":[{\"expr\":\"DCGM_FI_DEV_GPU_TEMP\\u0020\"}]}]}",
		"apiVersion: v1\nkind: ConfigMap\ndata:\n  a.yaml: |\n    groups:\n    - rules:\n      - expr: DCGM_FI_DEV_GPU_TEMP\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		after, _, code := write(t, "x", text, "--to=current")
		if code == command.Unable && after == text {
			return
		}
		_, again, code2 := write(t, "x", after, "--to=current")
		if code != command.Unable && code2 == command.Unable {
			t.Fatalf("%q becomes %q, which cannot be read", text, after)
		}
		for _, found := range again {
			if found.Written {
				t.Fatalf("%q becomes %q, where %q is written again", text, after, found.Old)
			}
		}
	})
}
