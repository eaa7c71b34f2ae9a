package server

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestAcceptsGzip(t *testing.T) {
	tests := []struct {
		header []string
		want   bool
	}{
		{nil, false},
		{[]string{""}, false},
		{[]string{"gzip"}, true},
		{[]string{"GZip"}, true},
		{[]string{"x-gzip"}, true},
		{[]string{"deflate, gzip;q=1.0, *;q=0.5"}, true},
		{[]string{"deflate", "br", "gzip"}, true},
		{[]string{"br, zstd"}, false},
		{[]string{"identity"}, false},
		{[]string{"gzip;q=0"}, false},
		{[]string{"gzip;q=0.000"}, false},
		{[]string{"gzip;q=0.001"}, true},
		{[]string{"gzip ; q=0.5"}, true},
		{[]string{"gzip;Q=0.5 , identity;q=0.5"}, true},
		{[]string{"gzip;q=0.4, identity;q=0.5"}, false},
		{[]string{"identity;q=0"}, false}, // no gzip named: better the plain page than none
		{[]string{"*"}, true},
		{[]string{"*;q=0"}, false},
		{[]string{"*;q=0, gzip"}, true},
		{[]string{"gzip;q=0, *"}, false},
		{[]string{"gzip;q=2"}, false},
		{[]string{"gzip;q=1.001"}, false},
		{[]string{"gzip;q=0.0001"}, false},
		{[]string{"gzip;q=x"}, false},
		{[]string{"gzip;q"}, false},
		{[]string{"gzip;level=9"}, false},
		{[]string{"gzipped"}, false},
		{[]string{", ,gzip,,"}, true},
	}
	for _, tt := range tests {
		if got := acceptsGzip(tt.header); got != tt.want {
			t.Errorf("acceptsGzip(%q) = %v, want %v", tt.header, got, tt.want)
		}
	}
}

var element = regexp.MustCompile(`^[ \t]*([^;]*?)[ \t]*(?:;[ \t]*[qQ]=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)[ \t]*)?$`)

// Against a model that splits, matches and parses.
func FuzzAcceptsGzip(f *testing.F) {
	for _, s := range []string{"gzip", "gzip;q=0.5, identity;q=1.000", "*;q=0,x-gzip", "gzip;q=1.1", "gzip ;\tq=0."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		if strings.ContainsAny(header, "\n\r") {
			t.Skip("no header value holds a line break")
		}
		weights := map[string]float64{}
		for part := range strings.SplitSeq(header, ",") {
			m := element.FindStringSubmatch(part)
			if m == nil {
				continue
			}
			weight := 1.0
			if m[2] != "" {
				var err error
				if weight, err = strconv.ParseFloat(m[2], 64); err != nil {
					t.Fatal(err)
				}
			}
			coding := strings.ToLower(m[1])
			if coding == "x-gzip" {
				coding = "gzip"
			}
			if old, ok := weights[coding]; !ok || weight > old {
				weights[coding] = weight
			}
		}
		gzip, ok := weights["gzip"]
		if !ok {
			gzip = weights["*"]
		}
		if want := gzip > 0 && gzip >= weights["identity"]; acceptsGzip([]string{header}) != want {
			t.Errorf("acceptsGzip(%q) = %v, want %v", header, !want, want)
		}
	})
}
