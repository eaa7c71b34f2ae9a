package model

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

func TestSetsThatCannotBeRead(t *testing.T) {
	for _, bad := range []string{"a", "a,b=c", "=x", "a..b=c", "a[x]=1", "a[=1", `a\`, ".=1"} {
		if _, err := Assignments(bad, true); !errors.Is(err, errSet) {
			t.Errorf("%q: error = %v, want errSet", bad, err)
		}
	}
}

func FuzzSet(f *testing.F) {
	f.Add("a.b", "c")
	f.Add(`example.com/x`, `{1,2}`)
	f.Add(`a\,b`, `x,y\`)
	f.Fuzz(func(t *testing.T, names, value string) {
		path := chart.Path(strings.Split(names, " "))
		if slices.Contains(path, "") || !utf8.ValidString(names) || !utf8.ValidString(value) { // Helm reads runes, and YAML has no invalid UTF-8
			return
		}
		text := setName.Replace(path.String()) + "=" + setValue(value)
		got, err := Assignments(text, false)
		if err != nil || len(got) != 1 {
			t.Fatalf("%q (%q=%q): assignments = %d, want 1; error = %v", text, path, value, len(got), err)
		}
		if diff := cmp.Diff(path, got[0].Path); diff != "" || got[0].Value != value || got[0].Element != "" {
			t.Errorf("%q: value = %q, want %q; element = %q, want none; path (-want +got):\n%s", text, got[0].Value, value, got[0].Element, diff)
		}
	})
}
