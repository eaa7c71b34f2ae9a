package config

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

func TestParseSelector(t *testing.T) {
	tests := []struct {
		in   string
		want gpu.Selector
		out  string
	}{
		{"f", gpu.Selector{Flex: true}, "f"}, {"g", gpu.Selector{Major: true}, "g"},
		{"i", gpu.Selector{Minor: true}, "i"}, {"i+g", gpu.Selector{Major: true, Minor: true}, "g+i"},
		{"g:0,1", gpu.Selector{Major: true, MajorIDs: []uint32{0, 1}}, "g:0,1"},
		{"i:0,2-4", gpu.Selector{Minor: true, MinorIDs: []uint32{0, 2, 3, 4}}, "i:0,2,3,4"},
		{"g:3-5,1,4 + i:7", gpu.Selector{
			Major: true, MajorIDs: []uint32{1, 3, 4, 5}, Minor: true, MinorIDs: []uint32{7},
		}, "g:1,3,4,5+i:7"},
		{"g:4294967295", gpu.Selector{Major: true, MajorIDs: []uint32{4294967295}}, "g:4294967295"},
	}
	for _, tt := range tests {
		got, err := parseSelector(tt.in)
		if err != nil {
			t.Errorf("%q: %v", tt.in, err)
			continue
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%q differs (-want +got):\n%s", tt.in, diff)
		}
		if out := formatSelector(got); out != tt.out {
			t.Errorf("%q is written as %q, want %q", tt.in, out, tt.out)
		}
	}
}

func TestParseSelectorErrors(t *testing.T) {
	for _, in := range []string{
		"", "x:1", "g+", "g+g:1", "i:1+i:2", "g+f", "f:0", "f+c", "i+c", "f+f", "g:", "g:0,", "g:-1", "g:+1", "g:0x1",
		"g:1-2-3", "g:1:2", "g:5-4", "g:4294967296",
	} {
		if _, err := parseSelector(in); !errors.Is(err, errForm) {
			t.Errorf("%q: error = %v, want errForm", in, err)
		}
	}
	for _, in := range []string{"g:0-4294967295", "g:0-1024", "g:0-1023,0"} {
		if _, err := parseSelector(in); err == nil || err.Error() != "more than 1024 IDs" {
			t.Errorf("%q: error = %v, want more than 1024 IDs", in, err)
		}
	}
	if _, err := parseSelector("g:0-1023"); err != nil {
		t.Errorf("selector with 1024 IDs: error = %v, want nil", err)
	}
}

// FuzzSelector checks that a parsed selector can be written and parsed again without a change.
func FuzzSelector(f *testing.F) {
	for _, s := range []string{
		"f", "g", "i", "g+i", "g:0,2-4+i:7,9", " g : 1", "g:1023-1024,4294967295", "i:3,2,1", "f+c",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		first, err := parseSelector(s)
		if err != nil {
			return
		}
		text := formatSelector(first)
		second, err := parseSelector(text)
		if err != nil {
			t.Fatalf("%q is written as %q, which cannot be parsed: %v", s, text, err)
		}
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("%q changes when written as %q (-first +second):\n%s", s, text, diff)
		}
		if again := formatSelector(second); again != text {
			t.Errorf("%q is written as %q, and parsed again as %q, want the same", s, text, again)
		}
	})
}
