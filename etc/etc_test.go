package etc_test

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

var (
	reference = []string{etc.DefaultName, etc.DCPName, etc.OldName}
	files     = slices.Concat(reference, []string{etc.HealthName, etc.FleetName})
)

// The shipped files are valid, and so are the lines that are commented out in them.
func TestShippedFilesParse(t *testing.T) {
	for _, name := range files {
		data, ok := etc.File(name)
		if !ok {
			t.Fatalf("%s is not embedded", name)
		}
		onDisk, err := os.ReadFile(name)
		if err != nil || !bytes.Equal(onDisk, data) || !etc.Shipped(onDisk) {
			t.Errorf("%s: embedded file differs from the file in etc: %v", name, err)
		}
		for _, text := range []string{string(data), switchOn(string(data))} {
			_, problems, err := counters.Parse(strings.NewReader(text), name)
			if err != nil {
				t.Error(err)
			}
			for _, p := range problems {
				t.Errorf("unexpected problem: %v", p)
			}
		}
	}
	if !bytes.Equal(etc.Default(), mustFile(t, etc.DefaultName)) {
		t.Error("Default() differs from default-counters.csv")
	}
	if _, ok := etc.File("other.csv"); ok || etc.Shipped([]byte("x")) {
		t.Error("File or Shipped = true for an unknown file, want false")
	}
}

// NVIDIA's dcgm-exporter reads counters files with encoding/csv and # as comment character. It must be able to read the
// shipped files, because the chart may mount them in NVIDIA's image.
func TestNVIDIAReadsShippedFiles(t *testing.T) {
	for _, name := range files {
		for _, text := range []string{string(mustFile(t, name)), switchOn(string(mustFile(t, name)))} {
			r := csv.NewReader(strings.NewReader(text))
			r.Comment = '#'
			records, err := r.ReadAll()
			if err != nil || len(records) == 0 || len(records[0]) != 3 {
				t.Errorf("%s: %d records, error %v; want records with three fields", name, len(records), err)
			}
		}
	}
}

func mustFile(t *testing.T, name string) []byte {
	t.Helper()
	data, ok := etc.File(name)
	if !ok {
		t.Fatalf("%s is not embedded", name)
	}
	return data
}

// switchOn uncomments the lines of fields and families. Other comments stay.
func switchOn(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if off, ok := strings.CutPrefix(line, "# "); ok && (strings.HasPrefix(off, "DCGM_") || strings.HasPrefix(off, "dcgm_")) {
			lines[i] = off
		}
	}
	return strings.Join(lines, "\n")
}

// Each file that NVIDIA also ships has the same names and types as NVIDIA's. NVIDIA's file is parsed with a plain CSV
// reader.
func TestShippedFilesMatchNVIDIA(t *testing.T) {
	dir := material.Path(t, "data/upstream/dcgm-exporter")
	types := func(t *testing.T, data []byte) map[string]string {
		reader := csv.NewReader(bytes.NewReader(data))
		reader.Comment, reader.FieldsPerRecord, reader.LazyQuotes = '#', -1, true
		found := make(map[string]string)
		for {
			record, err := reader.Read()
			if errors.Is(err, io.EOF) {
				return found
			}
			if err != nil {
				t.Fatal(err)
			}
			found[strings.TrimSpace(record[0])] = strings.TrimSpace(record[1])
		}
	}
	for _, name := range reference {
		theirs, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(types(t, theirs), types(t, mustFile(t, name))); diff != "" {
			t.Errorf("%s (-NVIDIA's file +shipped file)\n%s", name, diff)
		}
	}
}

// The fleet file has everything in the default file and every family that a counters file can select, with the right
// types. Families by link are commented out. For each kind of entity, it has a counter.
func TestFleetFile(t *testing.T) {
	parse := func(name string) []counters.Request {
		requests, _, err := counters.Parse(bytes.NewReader(mustFile(t, name)), name)
		if err != nil {
			t.Fatal(err)
		}
		return requests
	}
	fleet := parse(etc.FleetName)
	has := map[string]gpu.MetricType{}
	var kinds gpu.Kinds
	for _, r := range fleet {
		has[r.Name] = r.Type
		kinds |= r.Named.Entry.Levels
	}
	for _, r := range parse(etc.DefaultName) {
		if typ, ok := has[r.Name]; !ok || typ != r.Type {
			t.Errorf("%s, which is in the default file, is missing or has another type", r.Name)
		}
	}
	for _, f := range catalog.Families(catalog.Requested) {
		if f.Link != 0 {
			if !bytes.Contains(mustFile(t, etc.FleetName), []byte("\n# "+f.Name+",")) {
				t.Errorf("no line that begins with \"# %s,\", want one", f.Name)
			}
			continue
		}
		if typ, ok := has[f.Name]; !ok || typ != f.Type {
			t.Errorf("%s is missing or has another type", f.Name)
		}
	}
	for _, kind := range []gpu.Kind{
		gpu.KindGPU, gpu.KindGPUInstance, gpu.KindNVLink, gpu.KindNVSwitch, gpu.KindCPU, gpu.KindCPUCore, gpu.KindConnectX,
	} {
		if !kinds.Has(kind) {
			t.Errorf("the file has no counter for a %v", kind)
		}
	}
	for _, p := range counters.Lint(fleet, etc.FleetName) {
		if p.Text != "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL" { // has the type that NVIDIA's file gives it
			t.Errorf("unexpected problem: %v", p)
		}
	}
}
