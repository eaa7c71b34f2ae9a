package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The generated part of every file is up to date.
func TestFilesAreCurrent(t *testing.T) {
	parts, err := derived()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		got, err := os.ReadFile(filepath.Join("..", "..", p.file))
		if err != nil {
			t.Fatal(err)
		}
		want, err := p.replaceIn(got)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s is out of date: run make generate (-want +got):\n%s", p.file, diff)
		}
	}
}
