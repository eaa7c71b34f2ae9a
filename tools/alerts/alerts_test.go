package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// TestFilesAreCurrent checks that every generated part is up to date.
func TestFilesAreCurrent(t *testing.T) {
	parts, err := derived()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		got := folder.Read(t, "../..", p.file)
		want, err := p.replaceIn([]byte(got))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s is out of date: run make generate (-want +got):\n%s", p.file, diff)
		}
	}
}
