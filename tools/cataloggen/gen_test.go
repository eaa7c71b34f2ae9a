package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// smallModule returns the files of a small module like go-dcgm.
func smallModule(t *testing.T) (constFields, header string) {
	t.Helper()
	return folder.Read(t, "testdata", "const_fields.txt"), folder.Read(t, "testdata", "dcgm_fields.txt")
}

func module0(t *testing.T) []*field {
	t.Helper()
	constFields, header := smallModule(t)
	fields, err := readModule(folder.Of(t, map[string]string{"const_fields.go": constFields, "dcgm_fields.h": header}))
	if err != nil {
		t.Fatal(err)
	}
	return fields
}

func TestReadModule(t *testing.T) {
	got := module0(t)
	want := []*field{
		{id: 0, name: "DCGM_FI_SYSTEM_FIELD_UNKNOWN", markers: []string{}},
		{id: 100, name: "DCGM_FI_DEV_SM_CLOCK", base: "DCGM_FI_DEV_SM_CLOCK_HERTZ"},
		{id: 150, name: "DCGM_FI_DEV_GPU_TEMP_CELSIUS", legacy: []string{"DCGM_FI_DEV_GPU_TEMP"},
			lower: []string{"dcgm_gpu_temp"}},
		{id: 520, name: "DCGM_FI_DEV_VGPU_VM_ID", markers: []string{"DCGM_FI_FIRST_VGPU_FIELD_ID"}},
		{id: 1603, name: "DCGM_FI_DEV_SM_CLOCK_HERTZ", baseOf: 100},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(field{})); diff != "" {
		t.Errorf("fields (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"dcgm_gpu_temp"}, got[2].aliases()); diff != "" {
		t.Errorf("aliases (-want +got)\n%s", diff)
	}
	for id, want := range map[int]string{1: "SM clock", 4: "SM clock", 3: "VGPU VM id"} {
		if d := got[id].describe(got); !strings.EqualFold(d, want) {
			t.Errorf("%s is described as %q, want %q", got[id].name, d, want)
		}
	}
}

func TestReadModuleRejectsUnknownFormats(t *testing.T) {
	constFields, header := smallModule(t)
	for name, files := range map[string]map[string]string{
		"no maps": {"const_fields.go": "package dcgm\n", "dcgm_fields.h": header},
		"orphan alias": {"const_fields.go": strings.Replace(constFields, `"dcgm_gpu_temp":        150`,
			`"dcgm_gpu_temp": 151`, 1), "dcgm_fields.h": header},
		"no replacements": {"const_fields.go": constFields, "dcgm_fields.h": "#define DCGM_FI_DEV_SM_CLOCK 100\n"},
		"no header":       {"const_fields.go": constFields},
	} {
		if _, err := readModule(folder.Of(t, files)); err == nil {
			t.Errorf("%s: readModule succeeded, want an error", name)
		}
	}
}

func TestApplyFacts(t *testing.T) {
	fields := module0(t)
	dir := folder.Of(t, map[string]string{
		"facts.csv": "# comment\n0-9999,integer,MHz,gpu,gauge,0,1,,\n150,,celsius,,,,,,Temperature\n" +
			"150-160,float,,,counter,-,,,\n",
		"names.csv": "150,DCGM_FI_DEV_NEWER\n",
	})
	if err := applyFacts(fields, filepath.Join(dir, "facts.csv")); err != nil {
		t.Fatal(err)
	}
	if err := applyNames(fields, filepath.Join(dir, "names.csv")); err != nil {
		t.Fatal(err)
	}
	want := &field{
		id: 150, name: "DCGM_FI_DEV_GPU_TEMP_CELSIUS", legacy: []string{"DCGM_FI_DEV_GPU_TEMP"},
		lower: []string{"dcgm_gpu_temp"},
		later: "DCGM_FI_DEV_NEWER", typ: "float", unit: "celsius", levels: "gpu", kind: "counter", max: "1",
		help: "Temperature",
	}
	if diff := cmp.Diff(want, fields[2], cmp.AllowUnexported(field{})); diff != "" {
		t.Errorf("fields after applyFacts (-want +got)\n%s", diff)
	}
}

// A row that is malformed, outdated or matches no field is an error that names the file.
func TestFactsMustMatchModule(t *testing.T) {
	for text, apply := range map[string]func([]*field, string) error{
		"# c\n7,integer,,,,,,,\n":        applyFacts, // unknown id
		"x,integer,,,,,,,\n":             applyFacts,
		"100,integer\n":                  applyFacts, // too few columns
		"7,DCGM_FI_DEV_X\n":              applyNames,
		"100,DCGM_FI_DEV_SM_CLOCK_NEW\n": applyNames, // the header already has the base-unit name
	} {
		path := filepath.Join(folder.Of(t, map[string]string{"f.csv": text}), "f.csv")
		if err := apply(module0(t), path); err == nil || !strings.Contains(err.Error(), "f.csv") {
			t.Errorf("%q: error %v, want one that names f.csv", text, err)
		}
	}
}
