//go:build linux && cgo

package nvml_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// A process can load only one libnvidia-ml, because go-nvml's calls stay bound to the first one. Tests of other builds
// of the library run this binary again.
const childEnv = "NVML_TEST_LIBRARY"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		os.Exit(child(path))
	}
	code := m.Run()
	if dir, err := libraryDir(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

var (
	libraryDir   = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "fakenvml") })
	buildLibrary = sync.OnceValues(func() (string, error) {
		dir, err := libraryDir()
		if err != nil {
			return "", err
		}
		return fakenvml.Build(dir)
	})
)

func library(t testing.TB) string {
	t.Helper()
	path, err := buildLibrary()
	fakenvml.Need(t, err)
	return path
}

// source returns a source with a library that runs the script.
func source(t testing.TB, script ...string) (*nvml.Source, *fakenvml.World) {
	t.Helper()
	path := library(t)
	world := fakenvml.NewWorld(t, script...)
	return nvml.New(path), world
}

// planOf returns a plan of catalog fields for all GPUs and instances.
func planOf(t testing.TB, ids ...gpu.FieldID) *gpu.Plan {
	t.Helper()
	plan := &gpu.Plan{Interval: time.Second, Devices: gpu.Selector{Flex: true}}
	for _, id := range ids {
		entry, ok := catalog.ByID(id)
		if !ok {
			t.Fatalf("field %d is not in the catalog", id)
		}
		f := entry.Field()
		if f.Levels.Has(gpu.KindNode) {
			f.Levels = gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance)
		}
		plan.Fields = append(plan.Fields, f)
	}
	return plan
}

func open(t testing.TB, src *nvml.Source, plan *gpu.Plan) *nvml.Session {
	t.Helper()
	s, err := src.Open(context.Background(), plan)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// read reads once and returns the result of each entity's fields: the value, or "fault:" and the reason.
func read(t testing.TB, s *nvml.Session, plan *gpu.Plan) map[string]string {
	t.Helper()
	var b gpu.Batch
	if err := s.Read(context.Background(), gpu.ReadRequest{}, &b); err != nil {
		t.Fatalf("Read: %v", err)
	}
	return results(s.Topology(), plan, &b)
}

func results(top *gpu.Topology, plan *gpu.Plan, b *gpu.Batch) map[string]string {
	found := map[string]string{}
	for _, x := range b.Samples {
		found[top.Devices[x.Row].Entity.String()+" "+plan.Fields[x.Field].Name] = x.Value.String()
	}
	for _, x := range b.XIDs {
		key, code := top.Devices[x.Row].Entity.String()+" XID", fmt.Sprint(x.Code)
		if x.OnInstance {
			code += fmt.Sprint(" of instance ", x.InstanceID)
		}
		found[key] = strings.TrimPrefix(found[key]+","+code, ",")
	}
	for _, x := range b.Peers {
		found[top.Devices[x.Row].Entity.String()+" to "+top.Devices[x.Peer].Entity.String()] = x.Status
	}
	for _, x := range b.Faults {
		key := "all"
		if x.Row != gpu.AllRows {
			key = top.Devices[x.Row].Entity.String()
		}
		switch x.Part {
		case gpu.PartEntity:
		case gpu.PartHealthChecks:
			key += " health"
		case gpu.PartPeerStates:
			key += " peers"
		default:
			key += " " + plan.Fields[x.Field].Name
		}
		found[key] = "fault:" + gpu.Reason(x.Err)
	}
	return found
}

// only returns the results of one entity by field.
func only(all map[string]string, entity string) map[string]string {
	some := map[string]string{}
	for key, value := range all {
		if name, ok := strings.CutPrefix(key, entity+" DCGM"); ok {
			some["DCGM"+name] = value
		}
	}
	return some
}

// shippedFields returns the IDs of all fields in the CSV files of etc, including commented-out ones, in the order of
// their first occurrence.
func shippedFields(t testing.TB) []gpu.FieldID {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "etc", "*.csv"))
	if err != nil || len(files) < 3 {
		t.Fatalf("counters files in etc = %v, %v; want at least 3", files, err)
	}
	var ids []gpu.FieldID
	seen := map[gpu.FieldID]bool{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			name, _, ok := strings.Cut(strings.TrimLeft(line, "# "), ",")
			if !ok {
				continue
			}
			named, ok := catalog.Lookup(strings.TrimSpace(name))
			if ok && !seen[named.Entry.ID] {
				seen[named.Entry.ID] = true
				ids = append(ids, named.Entry.ID)
			}
		}
	}
	if len(ids) < 50 {
		t.Fatalf("fields = %d in %v, want at least 50", len(ids), files)
	}
	return ids
}

func asSource(src *nvml.Source) collector.Source { return collector.SourceOf(src.Open) }

func render(found map[string]string, entities []string) string {
	var out strings.Builder
	for _, entity := range entities {
		fields := only(found, entity)
		fmt.Fprintf(&out, "[%s]\n", entity)
		for _, name := range sortedKeys(fields) {
			fmt.Fprintf(&out, "%s %s\n", name, fields[name])
		}
	}
	return out.String()
}
