package app

import (
	"bytes"
	"context"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestBuildUsesToolchainRecords(t *testing.T) {
	recorded := &debug.BuildInfo{Main: debug.Module{Version: "v0.9.0"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "abc"},
		{Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
		{Key: "vcs.modified", Value: "true"},
	}}
	linked, none := build{"v1.0.0", "def", "2026-02-03T00:00:00Z"}, build{"unknown", "unknown", "unknown"}
	unversioned := &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}
	for _, tt := range []struct {
		name  string
		given build
		info  *debug.BuildInfo
		want  build
	}{
		{"no build information", build{}, nil, none},
		{"values set by the linker take precedence", linked, recorded, linked},
		{"go install", build{}, recorded, build{"v0.9.0", "abc-dirty", "2026-01-02T03:04:05Z"}},
		{"a module without a version", build{}, unversioned, none},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, completed(tt.given, tt.info)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestVersionOutput(t *testing.T) {
	var out bytes.Buffer
	p := Process{
		Args: []string{"--version"}, Env: func(string) (string, bool) { return "", false }, Out: &out,
		Version: "v0.1.0", Revision: "abc", Date: "2026-01-02T03:04:05Z",
	}
	if err := Run(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	want := "dcgm-exporter v0.1.0\n  revision: abc\n  date:     2026-01-02T03:04:05Z\n" +
		"  go:       " + runtime.Version() + "\n  platform: " + runtime.GOOS + "/" + runtime.GOARCH + "\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestBuildInfoMetric(t *testing.T) {
	want := `# HELP dcgm_exporter_build_info Version and build of the exporter; the value is 1.
# TYPE dcgm_exporter_build_info gauge
dcgm_exporter_build_info{date="2026-01-02T03:04:05Z",goarch="` + runtime.GOARCH + `",goos="` + runtime.GOOS +
		`",goversion="` + runtime.Version() + `",revision="abc",version="v0.1.0"} 1
`
	reg := newRegistry(build{Version: "v0.1.0", Revision: "abc", Date: "2026-01-02T03:04:05Z"})
	if err := testutil.GatherAndCompare(reg, bytes.NewBufferString(want), "dcgm_exporter_build_info"); err != nil {
		t.Error(err)
	}
}
