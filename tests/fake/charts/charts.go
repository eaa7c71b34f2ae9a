// Package charts finds real GPU Operator charts for tests of gpuop. The data of all releases are in the shared
// material. GPU_OPERATOR_CHARTS names a folder of complete charts, and GPU_OPERATOR_SOURCE a clone of the operator's
// repository.
//
// A test that needs missing charts is skipped with the reason.
package charts

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// Data unpacks the charts' data into one folder for each release and returns the parent folder.
func Data(t testing.TB) string {
	t.Helper()
	archive := material.Path(t, "data/upstream/gpu-operator-charts/charts-data.tar.xz")
	if _, err := exec.LookPath("xz"); err != nil {
		material.Skip(t, "tool-absent", errors.New("install xz, which unpacks the data of the charts"))
	}
	dir := t.TempDir()
	if out, err := exec.Command("tar", "-xJf", archive, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	return dir
}

// Read decodes a JSON file in the folder that Data returns. If the file cannot be read or decoded, the test fails.
func Read(t testing.TB, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Whole returns the folder of complete charts. It skips the test if GPU_OPERATOR_CHARTS is not set.
func Whole(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("GPU_OPERATOR_CHARTS")
	if dir == "" {
		t.Skip("SKIP charts-absent: set GPU_OPERATOR_CHARTS to a folder of gpu-operator charts")
	}
	return dir
}

// Source returns the clone of the operator's repository. It skips the test if GPU_OPERATOR_SOURCE is not set.
func Source(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("GPU_OPERATOR_SOURCE")
	if dir == "" {
		material.Skip(t, "operator-source-absent",
			errors.New("set GPU_OPERATOR_SOURCE to a clone of github.com/NVIDIA/gpu-operator"))
	}
	return dir
}

// All reports whether tests should cover every release, platform and feature (GPUOP_ALL=1, set by make ci-rest).
// Otherwise they use a sample.
func All() bool { return os.Getenv("GPUOP_ALL") == "1" }

// Sample returns n items (at least two) spread evenly over all, including the first and the last. It always returns the
// same items. If All returns true, or there are at most n items, it returns all.
func Sample[T any](all []T, n int) []T {
	if All() || len(all) <= n {
		return all
	}
	out := make([]T, n)
	for i := range out {
		out[i] = all[i*(len(all)-1)/(n-1)]
	}
	return out
}
