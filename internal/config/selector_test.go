package config

import (
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
		{"f", gpu.Selector{Flex: true}, "f"},
		{"g", gpu.Selector{Major: true}, "g"},
		{"i", gpu.Selector{Minor: true}, "i"},
		{"i+g", gpu.Selector{Major: true, Minor: true}, "g+i"},
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
	for in, want := range map[string]string{
		"":               `"" is not f, g or i`,
		"x:1":            `"x" is not f, g or i`,
		"g+":             `"" is not f, g or i`,
		"g+g:1":          `"g" occurs twice`,
		"i:1+i:2":        `"i" occurs twice`,
		"g+f":            `"f" cannot be combined with "g" or "i"`,
		"f:0":            `"f" takes no IDs`,
		"f+c":            `"c" is not f, g or i`,
		"i+c":            `"c" is not f, g or i`,
		"f+f":            `"f" occurs twice`,
		"g:":             `"" is not an ID`,
		"g:0,":           `"" is not an ID`,
		"g:-1":           `"" is not an ID`,
		"g:+1":           `"" is not an ID`,
		"g:0x1":          `"0x1" is not an ID`,
		"g:1-2-3":        `"2-3" is not an ID`,
		"g:1:2":          `"1:2" is not an ID`,
		"g:5-4":          `the range 5-4 runs backwards`,
		"g:4294967296":   `"4294967296" is not an ID`,
		"g:0-4294967295": `0-4294967295 names more than 1024 IDs`,
		"g:0-1024":       `0-1024 names more than 1024 IDs`,
		"g:0-1023,0":     `0-1023,0 names more than 1024 IDs`,
	} {
		if _, err := parseSelector(in); err == nil || err.Error() != want {
			t.Errorf("%q: error = %v, want %s", in, err, want)
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
