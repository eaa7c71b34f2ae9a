package runtimemapper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gpu-telemetry/dcgm-exporter/internal/attribution"
	"github.com/gpu-telemetry/dcgm-exporter/internal/deviceid"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// patience bounds every wait for an expected result.
const patience = 30 * time.Second

func newMapper(socket string, allowed ...string) *Mapper {
	opt := Options{Socket: socket, Metrics: NewMetrics(prometheus.NewRegistry())}
	for _, a := range allowed {
		opt.LabelAllowed = append(opt.LabelAllowed, regexp.MustCompile(a))
	}
	return New(opt)
}

func attribute(t *testing.T, m *Mapper, topology *gpu.Topology) *gpu.Owners {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	o, err := m.Attribute(ctx, topology)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// labelsByRow and users return the labels of each row that has any, and the containers that use each row.
func labelsByRow(o *gpu.Owners) map[string]string {
	got := map[string]string{}
	for row, name := range rowNames {
		var all []string
		for _, l := range o.Of(row) {
			all = append(all, l.Name+"="+l.Value)
		}
		if all != nil {
			got[name] = strings.Join(all, " ")
		}
	}
	return got
}

func users(o *gpu.Owners) map[string]string {
	got := map[string]string{}
	for row, name := range rowNames {
		var all []string
		for _, owner := range o.UseOf(row).Owners {
			all = append(all, owner.Container)
		}
		if all != nil {
			got[name] = strings.Join(all, " ")
		}
	}
	return got
}

func TestAttribute(t *testing.T) {
	type m = map[string]string
	labeled := sees("a", "0")
	labeled.labels = m{"com.docker.compose.project": "web", "com.docker.compose.service": "api", "secret": "x", "team": strings.Repeat("x", maxLabelValue+1)}
	nameless := sees("", "0")
	tests := map[string]struct {
		version       string
		containers    []container
		labels, users m
		unmatched     string
	}{
		"no owner":                            {containers: []container{{name: "a", inspection: `"HostConfig":{"Runtime":"runc"}`}}},
		"one":                                 {containers: []container{sees("a", "0")}, labels: m{"0": "container=a"}, users: m{"0": "a"}},
		"an API without a version":            {version: "none", containers: []container{sees("a", "0")}, labels: m{"0": "container=a"}, users: m{"0": "a"}},
		"an older API":                        {version: "1.41", containers: []container{sees("a", "0")}, labels: m{"0": "container=a"}, users: m{"0": "a"}},
		"two apart":                           {containers: []container{sees("a", "0"), sees("b", "MIG-dddd")}, labels: m{"0": "container=a", "2.1": "container=b"}, users: m{"0": "a", "2.1": "b"}},
		"two share":                           {containers: []container{sees("b", "0,1"), sees("a", "GPU-bbbb")}, labels: m{"0": "container=b"}, users: m{"0": "b", "1": "a b"}},
		"one device by two names":             {containers: []container{sees("a", "0,GPU-aaaa")}, labels: m{"0": "container=a"}, users: m{"0": "a"}},
		"all devices, and a MIG device":       {containers: []container{sees("a", "all"), sees("b", "MIG-dddd")}, labels: m{"0": "container=a", "1": "container=a", "2.5": "container=a"}, users: m{"0": "a", "1": "a", "2": "a", "2.1": "a b", "2.5": "a"}},
		"an unknown GPU":                      {containers: []container{sees("a", "GPU-ffff")}, unmatched: "gpu_uuid"},
		"container without a name":            {containers: []container{nameless}, labels: m{"0": "container=000000000000"}, users: m{"0": "000000000000"}},
		"container ended after it was listed": {containers: []container{{name: "b"}, sees("a", "0")}, labels: m{"0": "container=a"}, users: m{"0": "a"}},
		"allowed labels": {
			containers: []container{labeled}, users: m{"0": "a"},
			labels: m{"0": "container=a com.docker.compose.project=web com.docker.compose.service=api"},
		},
		"Podman's CDI": {
			containers: []container{{name: "a", inspection: `"HostConfig":{"Runtime":"oci","Devices":[{"PathOnHost":"/dev/nvidia0"},{"PathOnHost":"/dev/nvidiactl"}]},"Config":{"Env":["container=podman"]}`}},
			labels:     m{"1": "container=a"}, users: m{"1": "a"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := startDaemon(t)
			d.set(func() {
				switch tt.version {
				case "":
				case "none":
					d.version = ""
				default:
					d.version = tt.version
				}
				for i, c := range tt.containers {
					d.containers[fmt.Sprintf("%064x", i)] = c
				}
			})
			mapper := newMapper("unix://"+d.socket, `^com\.docker\.compose`, "team")
			got := attribute(t, mapper, node())
			for what, pair := range map[string][2]m{"labels": {tt.labels, labelsByRow(got)}, "users": {tt.users, users(got)}} {
				want := pair[0]
				if want == nil {
					want = m{}
				}
				if diff := cmp.Diff(want, pair[1]); diff != "" {
					t.Errorf("%s (-want +got):\n%s", what, diff)
				}
			}
			const name = "dcgm_exporter_container_devices_unmatched"
			want := ""
			if tt.unmatched != "" {
				want = fmt.Sprintf("# HELP %s %s\n# TYPE %[1]s gauge\n%[1]s{form=%[3]q} 1\n", name,
					"Devices of running containers that match no GPU or GPU instance of this node, by form of the name.", tt.unmatched)
			}
			if err := testutil.CollectAndCompare(mapper.metrics.unmatched, strings.NewReader(want)); err != nil {
				t.Error(err)
			}
		})
	}
}

// Containers that start, end or are renamed are noticed at once. Each is inspected once per topology. Without
// changes, Attribute returns the same pointer. The exporter's own container owns nothing.
func TestFollows(t *testing.T) {
	d := startDaemon(t)
	m, topology := newMapper(d.socket), node()
	m.self = "5e1f"
	d.set(func() { d.containers["5e1f"] = sees("exporter", "all"); d.containers["a1"] = sees("a", "0") })
	first := attribute(t, m, topology)
	if again := attribute(t, m, topology); again != first {
		t.Error("same containers: Attribute returned new owners, want the previous ones")
	}
	steps := []struct {
		change func()
		want   map[string]string
	}{
		{func() {}, map[string]string{"0": "a"}},
		{func() { d.containers["b1"] = sees("b", "0") }, map[string]string{"0": "a b"}},
		{func() { delete(d.containers, "a1") }, map[string]string{"0": "b"}},
		{func() { d.containers["b1"] = sees("c", "0") }, map[string]string{"0": "c"}},
		{func() { delete(d.containers, "b1"); d.containers["b2"] = sees("c", "1") }, map[string]string{"1": "c"}},
		{func() { clear(d.containers) }, map[string]string{}},
	}
	last := first
	for i, step := range steps {
		d.set(step.change)
		got := attribute(t, m, topology)
		if diff := cmp.Diff(step.want, users(got)); diff != "" {
			t.Errorf("step %d: owners (-want +got):\n%s", i, diff)
		}
		if (got != last) != (i > 0) {
			t.Errorf("step %d: Attribute returned the previous owners: %t, want %t", i, got == last, i == 0)
		}
		last = got
	}
	if n := d.known(); n != 3 {
		t.Errorf("inspected %d times, want once for each of three containers", n)
	}
	if len(m.grants) != 0 {
		t.Errorf("containers remembered = %d, want 0: none is running", len(m.grants))
	}
	d.set(func() { d.containers["b3"] = sees("c", "1") })
	attribute(t, m, topology)
	attribute(t, m, node())
	if n := d.known(); n != 5 {
		t.Errorf("inspected %d times, want twice for two topologies", n-3)
	}
}

// Each failure of the runtime has its own error. It ends when the runtime recovers, and never exceeds the caller's
// deadline.
func TestFaults(t *testing.T) {
	forever := make(chan struct{})
	defer close(forever)
	always := func(answer func(http.ResponseWriter, *http.Request)) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool { answer(w, r); return true }
	}
	tests := map[string]struct {
		instead func(http.ResponseWriter, *http.Request) bool
		is      error
		reason  string
	}{
		"hangs": {instead: always(func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-forever:
			}
		}), is: gpu.ErrTimeout},
		"dies mid-answer": {instead: always(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "[{")
			panic(http.ErrAbortHandler)
		}), is: gpu.ErrUnavailable},
		"is broken": {instead: always(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }), reason: "error"},
		"refuses":   {instead: always(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }), is: gpu.ErrPermission},
		"sends elsewhere": {instead: always(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://localhost/v1.51/containers/json", http.StatusFound)
		}), reason: "error"},
		"is not a runtime": {instead: func(w http.ResponseWriter, r *http.Request) bool {
			_, _ = io.WriteString(w, "<html>")
			return true
		}, reason: "error"},
		"sends an endless answer": {instead: func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/_ping" {
				return false
			}
			block := bytes.Repeat([]byte("["), 1<<20)
			for {
				if _, err := w.Write(block); err != nil {
					return true
				}
			}
		}, is: ErrTooLarge},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := startDaemon(t)
			d.set(func() { d.containers["a1"] = sees("a", "0"); d.instead = tt.instead })
			wait := patience
			if errors.Is(tt.is, gpu.ErrTimeout) {
				wait = 50 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(context.Background(), wait)
			defer cancel()
			m := newMapper(d.socket)
			_, err := m.Attribute(ctx, node())
			if err == nil || tt.is != nil && !errors.Is(err, tt.is) || tt.reason != "" && gpu.Reason(err) != tt.reason {
				t.Errorf("Attribute: error %v, want %v%s", err, tt.is, tt.reason)
			}
			d.set(func() { d.instead = nil })
			if diff := cmp.Diff(map[string]string{"0": "a"}, users(attribute(t, m, node()))); diff != "" {
				t.Errorf("owners after recovery (-want +got):\n%s", diff)
			}
		})
	}
}

// If a proxy hides /_ping, the mapper still works.
func TestNoPing(t *testing.T) {
	for _, status := range []int{http.StatusForbidden, http.StatusNotFound, http.StatusInternalServerError} {
		d := startDaemon(t)
		d.set(func() {
			d.version, d.containers["a1"] = "", sees("a", "0")
			d.instead = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != "/_ping" {
					return false
				}
				w.WriteHeader(status)
				return true
			}
		})
		var log bytes.Buffer
		m := New(Options{Socket: d.socket, Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.NewTextHandler(&log, nil))})
		for range 2 {
			if diff := cmp.Diff(map[string]string{"0": "a"}, users(attribute(t, m, node()))); diff != "" {
				t.Errorf("status %d: owners (-want +got):\n%s", status, diff)
			}
		}
		if n := strings.Count(log.String(), "does not report its API version"); n != 1 {
			t.Errorf("status %d: logged %d times, want once:\n%s", status, n, &log)
		}
	}
}

// TestSocket checks sockets that are missing, abandoned or replaced.
func TestSocket(t *testing.T) {
	d := startDaemon(t)
	d.set(func() { d.containers["a1"] = sees("a", "0") })
	m := newMapper(d.socket)
	m.sockets = []string{filepath.Join(t.TempDir(), "absent"), d.socket}
	attribute(t, m, node())

	d.stop()
	if _, err := os.Stat(d.socket); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("socket after the stop: %v, want os.ErrNotExist", err)
	}
	_, err := m.Attribute(context.Background(), node())
	if !errors.Is(err, gpu.ErrUnavailable) || !strings.Contains(err.Error(), d.socket) {
		t.Errorf("missing socket: error = %v, want gpu.ErrUnavailable that names %s", err, d.socket)
	}
	if err := os.WriteFile(d.socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Attribute(context.Background(), node()); !errors.Is(err, gpu.ErrUnavailable) {
		t.Errorf("socket without a listener: error = %v, want gpu.ErrUnavailable", err)
	}
	if err := os.Remove(d.socket); err != nil {
		t.Fatal(err)
	}
	d.listen()
	if diff := cmp.Diff(map[string]string{"0": "a"}, users(attribute(t, m, node()))); diff != "" {
		t.Errorf("owners after the socket was replaced (-want +got):\n%s", diff)
	}

	if os.Geteuid() == 0 {
		t.Skip("the rest needs a user whom permissions bind; this is root")
	}
	if err := os.Chmod(d.socket, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Attribute(context.Background(), node()); !errors.Is(err, gpu.ErrPermission) {
		t.Errorf("socket without permission: error = %v, want gpu.ErrPermission", err)
	}
}

// A slow runtime cannot describe all containers before one deadline, so they are inspected over several cycles. A
// container that cannot be inspected does not affect the others.
func TestSlowInspection(t *testing.T) {
	d := startDaemon(t)
	var log bytes.Buffer
	m := newMapper(d.socket)
	m.log = slog.New(slog.NewTextHandler(&log, nil))
	topology := node()
	ctx, cancel := context.WithCancel(context.Background())
	d.set(func() {
		d.containers["a1"], d.containers["b1"], d.containers["bad"] = sees("a", "0"), sees("b", "1"), sees("bad", "2")
		d.instead = func(w http.ResponseWriter, r *http.Request) bool {
			switch {
			case strings.Contains(r.URL.Path, "/bad/"):
				w.WriteHeader(http.StatusInternalServerError)
				return true
			case strings.HasSuffix(r.URL.Path, "/json") && !strings.HasSuffix(r.URL.Path, "/containers/json") && d.known() == 1:
				cancel() // the deadline passes at the second container
				<-r.Context().Done()
				return true
			}
			return false
		}
	})
	if _, err := m.Attribute(ctx, topology); err == nil {
		t.Error("Attribute after the deadline succeeded, want an error")
	}
	if len(m.grants) != 1 {
		t.Errorf("containers known = %d, want 1", len(m.grants))
	}
	d.set(func() { d.inspects = 10 })
	for range 2 {
		o := attribute(t, m, topology)
		if diff := cmp.Diff(map[string]string{"0": "a", "1": "b"}, users(o)); diff != "" {
			t.Errorf("owners (-want +got):\n%s", diff)
		}
		if o.UseOf(0).Incomplete || !o.UseOf(2).Incomplete {
			t.Errorf("owners unknown: GPU 0 = %t, GPU 2 = %t; want false and true", o.UseOf(0).Incomplete, o.UseOf(2).Incomplete)
		}
	}
	if n := d.known(); n != 11 {
		t.Errorf("inspected %d more, want 1", n-10)
	}
	if n := testutil.ToFloat64(m.metrics.failed.WithLabelValues("error")); n < 2 {
		t.Errorf("failures of the bad container = %v, want at least 2", n)
	}
	if n := strings.Count(log.String(), "container=bad"); n != 1 {
		t.Errorf("bad container logged %d times, want once:\n%s", n, &log)
	}
}

// Lists and names of any length that a runtime returns are limited.
func TestCrowd(t *testing.T) {
	m := newMapper("")
	m.topology = node()
	m.resolver = deviceid.NewResolver(m.topology)
	var c inspected
	c.HostConfig.Runtime = "nvidia"
	c.Config.Env = []string{"NVIDIA_VISIBLE_DEVICES=" + strings.Repeat("0,0,1,", 5000)}
	m.grants["a1"] = grant(&c)
	if n := len(m.grants["a1"]); n != 2 {
		t.Errorf("devices = %d, want 2", n)
	}
	running := slices.Repeat([]listed{{ID: "a1", Names: []string{"/a"}}}, 1000)
	if got := distinct(append(slices.Clone(running), listed{ID: "b1"})); len(got) != 2 || got[0].ID != "a1" || got[1].ID != "b1" {
		t.Errorf("distinct containers = %v, want a1 and b1", got)
	}
	uses := m.uses(running)
	if n := len(uses[0].Owners); n != attribution.MaxOwners {
		t.Errorf("%d owners, want %d", n, attribution.MaxOwners)
	}
	if n := testutil.ToFloat64(m.metrics.omitted); n != 2*(1000-attribution.MaxOwners) {
		t.Errorf("dropped owners counted = %v, want %d", n, 2*(1000-attribution.MaxOwners))
	}
}

// TestBudgets checks the limits on one container's labels.
func TestBudgets(t *testing.T) {
	c := listed{ID: "a1", Labels: map[string]string{"empty": "", "long": strings.Repeat("x", maxLabelValue+1)}}
	for i := range maxLabels + 3 {
		c.Labels[fmt.Sprintf("key%02d", i)] = "v"
	}
	m := newMapper("", ".")
	got, dropped := m.labelsOf(&c)
	if len(got) != maxLabels || dropped != 4 || got[0].Name != "key00" {
		t.Errorf("%d labels from %s on, %d dropped; want %d from key00 on, 4 dropped", len(got), got[0].Name, dropped, maxLabels)
	}
}

// A name that is longer than any runtime allows is omitted.
func TestNameWithoutEnd(t *testing.T) {
	c := listed{ID: "0123456789abcdef", Names: []string{"/" + strings.Repeat("x", 1<<20)}}
	if name := nameOf(&c); name != "0123456789ab" {
		t.Errorf("name of %d bytes, want 0123456789ab", len(name))
	}
}
