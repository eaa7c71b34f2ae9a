package main

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// TestFindingsMatchHeader compares the table of findings with the error codes in go-dcgm's header.
func TestFindingsMatchHeader(t *testing.T) {
	dir, version, err := moduleDir()
	if err != nil {
		t.Fatal(err)
	}
	header := folder.Read(t, dir, "pkg", "dcgm", "dcgm_errors.h")
	codes := regexp.MustCompile(`\b(DCGM_FR_\w+)\s*=\s*(\d+),`).FindAllStringSubmatch(header, -1)
	categories := map[string]bool{"UNKNOWN": true}
	end := 0
	for _, m := range codes {
		name := m[1]
		number, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		if category, ok := strings.CutPrefix(name, "DCGM_FR_EC_"); ok {
			categories[category] = true
			continue
		}
		if name == "DCGM_FR_ERROR_SENTINEL" {
			end = number
			continue
		}
		f := catalog.FindingOf(strconv.Itoa(number))
		if f.Code != name && f.Code != catalog.FindingOf(name).Code {
			t.Errorf("internal/catalog/findings.csv: code of number %d = %q, want %q (go-dcgm %s)", number, f.Code, name,
				version)
		}
	}
	if got := len(catalog.Findings()); got != end || end < 100 {
		t.Errorf("internal/catalog/findings.csv: rows = %d, want one for each of the %d codes in the header, "+
			"and at least 100", got, end)
	}
	for _, f := range catalog.Findings() {
		if !categories[f.Category] {
			t.Errorf("%s has category %q, which is not in the header", f.Code, f.Category)
		}
	}
}
