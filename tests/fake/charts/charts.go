// Package charts finds the real charts that tests of gpuop compare with: the data of every
// release, kept beside the repository, whole charts in the folder that GPU_OPERATOR_CHARTS names,
// and the operator's source in the clone that GPU_OPERATOR_SOURCE names.
//
// It is for tests alone. Where the charts are absent the test is skipped with the reason.
package charts

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// Data unpacks the data of the charts, a folder for each release, and returns the folder.
func Data(t testing.TB) string {
	t.Helper()
	archive := material.Path(t, "data/upstream/gpu-operator-charts/charts-data.tar.xz")
	if _, err := exec.LookPath("xz"); err != nil {
		t.Skip("SKIP tool-absent: xz, which unpacks the charts' data")
	}
	dir := t.TempDir()
	if out, err := exec.Command("tar", "-xJf", archive, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	return dir
}

// Read reads a JSON file of the data.
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

// Whole returns the folder of whole charts, and skips the test without it.
func Whole(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("GPU_OPERATOR_CHARTS")
	if dir == "" {
		t.Skip("SKIP charts-absent: GPU_OPERATOR_CHARTS names no folder of whole charts")
	}
	return dir
}

// Source returns the clone of the operator's repository that GPU_OPERATOR_SOURCE names, and skips the test without it.
func Source(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("GPU_OPERATOR_SOURCE")
	if dir == "" {
		material.Skip(t, "operator-source-absent", errors.New("GPU_OPERATOR_SOURCE names no clone of github.com/NVIDIA/gpu-operator"))
	}
	return dir
}

// All reports whether GPUOP_ALL=1 requests every release, platform and feature, as make ci-rest
// does; a plain test run takes a sample.
func All() bool { return os.Getenv("GPUOP_ALL") == "1" }

// Sample returns n items, at least two, spread evenly over all of them, the first and the last
// included, and the same ones in each run; with GPUOP_ALL=1, or when there are no more than n, all
// of them.
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
