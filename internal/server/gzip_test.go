package server

import "testing"

func TestAcceptsGzip(t *testing.T) {
	tests := []struct {
		header []string
		want   bool
	}{
		{nil, false},
		{[]string{""}, false},
		{[]string{"gzip"}, true},
		{[]string{"GZip"}, true},
		{[]string{"deflate, gzip;q=1.0, *;q=0.5"}, true},
		{[]string{"deflate", "br", "gzip"}, true},
		{[]string{"br, zstd"}, false},
		{[]string{"identity"}, false},
		{[]string{"gzip;q=0"}, false},
		{[]string{"gzip;q=0.000"}, false},
		{[]string{"gzip;q=0.001"}, true},
		{[]string{"gzip ; q=0.5"}, true},
		{[]string{"gzip ; Q=0 "}, false},
		{[]string{"gzip;q=1.0"}, true},
		{[]string{"identity;q=0"}, false}, // gzip is not accepted, so send the plain page anyway
		{[]string{"*"}, true},
		{[]string{"*;q=0"}, false},
		{[]string{"*;q=0, gzip"}, true},
		{[]string{"gzip;q=0, *"}, false},
		{[]string{"gzipped"}, false},
		{[]string{", ,gzip,,"}, true},
	}
	for _, tt := range tests {
		if got := acceptsGzip(tt.header); got != tt.want {
			t.Errorf("acceptsGzip(%q) = %v, want %v", tt.header, got, tt.want)
		}
	}
}
