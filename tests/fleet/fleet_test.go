package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

// serve serves a fleet until the test ends.
func serve(t *testing.T, nodes int) (*fleet, *httptest.Server) {
	t.Helper()
	f, err := newFleet(nodes)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	for _, n := range f.nodes {
		go func() { ended <- n.run(ctx) }() // start all at once instead of spread over the interval
	}
	server := httptest.NewServer(f)
	t.Cleanup(func() {
		server.Close()
		cancel()
		for range f.nodes {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	if err := f.awaitPages(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f, server
}

// Every target serves the page of its node. The page has eight GPUs. Their UUIDs, the hostname and the pods are on no
// other page.
func TestTargetsAreNodes(t *testing.T) {
	_, server := serve(t, 3)
	var groups []struct {
		Targets []string
		Labels  map[string]string
	}
	if err := json.Unmarshal(get(t, server.URL+"/targets"), &groups); err != nil || len(groups) != 3 {
		t.Fatal(err, groups)
	}
	seen := map[string]string{} // maps the values of the labels in own to the instance whose page has them
	for _, g := range groups {
		instance := g.Labels["instance"]
		gpus := map[string]bool{}
		for s := range prom.Samples(t, get(t, "http://"+g.Targets[0]+g.Labels["__metrics_path__"])) {
			own := []string{"UUID", "hostname", "pod"}
			s.Labels.Range(func(l labels.Label) {
				if !slices.Contains(own, l.Name) || l.Value == "" {
					return
				}
				if other, ok := seen[l.Value]; ok && other != instance {
					t.Fatalf("label %s=%q is on the pages of %s and %s, want it on only one page", l.Name, l.Value,
						other, instance)
				}
				seen[l.Value] = instance
			})
			if s.Labels.Get("__name__") == "dcgm_exporter_entity_up" {
				gpus[s.Labels.Get("UUID")] = true
			}
		}
		delete(gpus, "")
		if len(gpus) != 8 || seen[strings.TrimSuffix(instance, ":9400")] != instance {
			t.Errorf("%s: GPUs = %d, want 8; instance of each label value = %v, want one for the hostname", instance,
				len(gpus), seen)
		}
	}
	if pods := len(seen) - 3*8 - 3; pods < 3 {
		t.Errorf("pods on three nodes = %d, want at least 3", pods)
	}
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(url, response.Status, err)
	}
	return body
}

// TestReport checks rows of each table of the report: the measurements, the node models and the queries.
func TestReport(t *testing.T) {
	f, _ := serve(t, 3)
	queries, err := dashboardQueries("../../grafana/fleet.json")
	if err != nil {
		t.Fatal(err)
	}
	m := &measurement{
		series: 3000, samples: 100, ownCPU: 0.003, block: &block{chunks: 300, index: 50},
		took: make([]time.Duration, len(queries)), instead: make([]time.Duration, len(queries)),
	}
	m.block.Stats.NumSamples, m.block.Stats.NumSeries = 200, 1
	m.took[0], m.took[1], m.instead[0] = 1500*time.Millisecond, failed, 2*time.Millisecond
	var b bytes.Buffer
	if err := report(&b, f, 2*time.Minute, queries, m, m); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| series | 3000 | 3000 |", "| block: chunks, bytes per sample | 1.50 | 1.50 |",
		"| exporter: CPU per node, ms per second | 1.00 | 1.00 |",
		"| GPUs | now | 1.500 | 1.500 | 0.002 |", "| Allocated | now | failed | failed | 0.000 |",
	} {
		if !strings.Contains(b.String(), want+"\n") {
			t.Errorf("report does not have the line %s:\n%s", want, &b)
		}
	}
	for _, want := range []string{"`b200` \\| 2", "`h100x8` \\| 1", "Clocks limited, by reason \\| 2m0s"} {
		if !regexp.MustCompile(fmt.Sprintf(`(?m)^\| %s \|`, want)).Match(b.Bytes()) {
			t.Errorf("report does not have the row %s:\n%s", want, &b)
		}
	}
}
