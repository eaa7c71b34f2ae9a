package counters_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
)

// named returns "NAME type" of each request, sorted.
func named(requests []counters.Request) (list []string) {
	for _, r := range requests {
		list = append(list, fmt.Sprint(r.Name, " ", r.Type))
	}
	slices.Sort(list)
	return list
}

// A file that includes a built-in file requests the same families plus its own.
func TestInclude(t *testing.T) {
	for _, name := range etc.Names {
		content, ok := etc.Named(name)
		if !ok {
			t.Fatalf("etc.Named(%s): not found, want the built-in file", name)
		}
		isOwn := func(r counters.Request) bool { return r.Name == "DCGM_FI_DEV_GPU_TEMP" }
		own := valid(t, "DCGM_FI_DEV_GPU_TEMP, untyped, mine")
		want := named(append(slices.DeleteFunc(valid(t, string(content)), isOwn), own...))
		for _, text := range []string{
			"DCGM_FI_DEV_GPU_TEMP, untyped, mine\n# include: " + name,
			"#include:" + name + "\nDCGM_FI_DEV_GPU_TEMP, untyped, mine",
			"# include: " + name + ",,\n# include: " + name + "\nDCGM_FI_DEV_GPU_TEMP, untyped, mine\n",
		} {
			if diff := cmp.Diff(want, named(valid(t, text))); diff != "" {
				t.Errorf("%q: requests (-want +got):\n%s", text, diff)
			}
		}
	}
}

// Lines of an included file follow the vocabulary, like lines of a built-in file. Lines of the file itself stay as
// written.
func TestIncludeFollowsTheVocabulary(t *testing.T) {
	requests := valid(t, "# include: default\nDCGM_FI_DEV_GPU_TEMP, gauge, mine")
	current := strings.Join(names(counters.Translate(requests, catalog.Current, false)), " ") + " "
	for name, want := range map[string]bool{
		"DCGM_FI_DEV_GPU_TEMP ": true, "DCGM_FI_DEV_GPU_TEMP_CELSIUS ": false,
		"DCGM_FI_DEV_MEMORY_TEMP ": false, "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS ": true,
	} {
		if got := strings.Contains(current, name); got != want {
			t.Errorf("%s requested = %t, want %t", name, got, want)
		}
	}
}
