package prom

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// Promtool returns the path of promtool, from PATH or from "make prometheus". If there is none, it skips the test and
// counts the skip; on CI the test fails. The test must run two folders below the repository's root.
func Promtool(t testing.TB) string {
	t.Helper()
	const name = "promtool"
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	path, err := filepath.Abs(filepath.Join("../../.cache/prometheus/usr/bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		err = fmt.Errorf("%s not found: run make prometheus", name)
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		material.Skip(t, name+"-unavailable", err)
	}
	return path
}
