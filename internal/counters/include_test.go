package counters_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
)

// named returns "NAME type" of each request.
func named(requests []counters.Request) (list []string) {
	for _, r := range requests {
		list = append(list, fmt.Sprint(r.Name, " ", r.Type))
	}
	return list
}

func parseText(t *testing.T, text string) ([]counters.Request, []counters.Problem) {
	t.Helper()
	requests, problems, err := counters.Parse(strings.NewReader(text), "my.csv")
	if err != nil {
		t.Fatal(err)
	}
	return requests, problems
}

// A file that includes a built-in file requests the same families plus its own.
func TestInclude(t *testing.T) {
	for _, name := range etc.Names {
		content, ok := etc.Named(name)
		if !ok {
			t.Fatalf("etc.Named(%s): not found, want the built-in file", name)
		}
		whole, _, err := counters.Parse(bytes.NewReader(content), name)
		if err != nil {
			t.Fatal(err)
		}
		isOwn := func(s string) bool { return strings.HasPrefix(s, "DCGM_FI_DEV_GPU_TEMP ") }
		want := append(slices.DeleteFunc(named(whole), isOwn), "DCGM_FI_DEV_GPU_TEMP untyped")
		slices.Sort(want)
		for _, text := range []string{
			"DCGM_FI_DEV_GPU_TEMP, untyped, mine\n# include: " + name,
			"#include:" + name + "\nDCGM_FI_DEV_GPU_TEMP, untyped, mine",
			"# include: " + name + ",,\n# include: " + name + "\nDCGM_FI_DEV_GPU_TEMP, untyped, mine\n",
		} {
			requests, problems := parseText(t, text)
			got := named(requests)
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" || len(problems) > 0 {
				t.Errorf("%q: problems %v, requests (-want +got):\n%s", text, problems, diff)
			}
		}
	}
}

func TestIncludeOfAnUnknownFile(t *testing.T) {
	requests, problems := parseText(t, "# include: helth\nDCGM_FI_DEV_GPU_TEMP, gauge, mine")
	if len(requests) != 1 || len(problems) != 1 || !problems[0].Warning {
		t.Fatalf("requests %v, problems %v; want one request and one warning", named(requests), problems)
	}
	want := `my.csv:1: no built-in counters file "helth": expected default, health, fleet; did you mean health?`
	if got := problems[0].String(); got != want {
		t.Errorf("problem = %q, want %q", got, want)
	}
}

// Lines of an included file follow the vocabulary, like lines of a built-in file. Lines of the file itself stay as
// written.
func TestIncludeFollowsTheVocabulary(t *testing.T) {
	requests, _ := parseText(t, "# include: default\nDCGM_FI_DEV_GPU_TEMP, gauge, mine")
	current := named(counters.Translate(requests, catalog.Current, false))
	for name, want := range map[string]bool{
		"DCGM_FI_DEV_GPU_TEMP gauge": true, "DCGM_FI_DEV_GPU_TEMP_CELSIUS gauge": false,
		"DCGM_FI_DEV_MEMORY_TEMP gauge": false, "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS gauge": true,
	} {
		if got := slices.Contains(current, name); got != want {
			t.Errorf("%s requested = %t, want %t", name, got, want)
		}
	}
}
