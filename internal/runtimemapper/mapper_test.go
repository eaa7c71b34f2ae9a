package runtimemapper

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
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

// users returns the containers that use each row, such as "0=a,b". The labels of a row follow in brackets, except for a
// label that only repeats the container's name.
func users(o *gpu.Owners) string {
	var rows []string
	for row, name := range rowNames {
		var all, labels []string
		for _, owner := range o.UseOf(row).Owners {
			all = append(all, owner.Container)
		}
		for _, l := range o.Of(row) {
			labels = append(labels, l.Name+"="+l.Value)
		}
		text := strings.Join(all, ",")
		if len(labels) != 1 || labels[0] != "container="+text {
			text += fmt.Sprint(labels)
		}
		if text != "[]" {
			rows = append(rows, name+"="+text)
		}
	}
	return strings.Join(rows, " ")
}

// has checks the containers of each row.
func has(t *testing.T, o *gpu.Owners, want string) {
	t.Helper()
	if got := users(o); got != want {
		t.Errorf("containers of rows = %q, want %q", got, want)
	}
}

// logging returns a mapper that logs to log.
func logging(socket string, log io.Writer) *Mapper {
	m := newMapper(socket)
	m.log = slog.New(slog.NewTextHandler(log, nil))
	return m
}

func TestAttribute(t *testing.T) {
	labeled := sees("a", "0")
	labeled.labels = map[string]string{
		"com.docker.compose.project": "web", "com.docker.compose.service": "api", "secret": "x",
		"team": strings.Repeat("x", maxLabelValue+1),
	}
	const cdi = `"Config":{"Env":["container=podman"]},` +
		`"HostConfig":{"Runtime":"oci","Devices":[{"PathOnHost":"/dev/nvidia0"},{"PathOnHost":"/dev/nvidiactl"}]}`
	type list []container
	for name, tt := range map[string]struct {
		version    string
		containers list
		users      string
		unmatched  string
	}{
		"no owner":                 {containers: list{{name: "a", inspection: `"HostConfig":{"Runtime":"runc"}`}}},
		"one":                      {containers: list{sees("a", "0")}, users: "0=a"},
		"an API without a version": {version: "none", containers: list{sees("a", "0")}, users: "0=a"},
		"an older API":             {version: "1.41", containers: list{sees("a", "0")}, users: "0=a"},
		"two apart":                {containers: list{sees("a", "0"), sees("b", "MIG-dddd")}, users: "0=a 2.1=b"},
		"two share":                {containers: list{sees("b", "0,1"), sees("a", "GPU-bbbb")}, users: "0=b 1=a,b[]"},
		"one device by two names":  {containers: list{sees("a", "0,GPU-aaaa")}, users: "0=a"},
		"all devices, and a MIG device": {
			containers: list{sees("a", "all"), sees("b", "MIG-dddd")}, users: "0=a 1=a 2=a[] 2.1=a,b[] 2.5=a",
		},
		"an unknown GPU":                      {containers: list{sees("a", "GPU-ffff")}, unmatched: "gpu_uuid"},
		"container without a name":            {containers: list{sees("", "0")}, users: "0=000000000000"},
		"container ended after it was listed": {containers: list{{name: "b"}, sees("a", "0")}, users: "0=a"},
		"allowed labels": {
			containers: list{labeled},
			users:      "0=a[container=a com.docker.compose.project=web com.docker.compose.service=api]",
		},
		"Podman's CDI": {containers: list{{name: "a", inspection: cdi}}, users: "1=a"},
	} {
		t.Run(name, func(t *testing.T) {
			d := startDaemon(t)
			d.set(func() {
				if d.version = cmp.Or(tt.version, d.version); d.version == "none" {
					d.version = ""
				}
				for i, c := range tt.containers {
					d.containers[fmt.Sprintf("%064x", i)] = c
				}
			})
			mapper := newMapper("unix://"+d.socket, `^com\.docker\.compose`, "team")
			has(t, attribute(t, mapper, node()), tt.users)
			reg := prometheus.NewPedanticRegistry()
			reg.MustRegister(mapper.metrics.unmatched)
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, f := range families {
				got += f.Metric[0].Label[0].GetValue()
			}
			if got != tt.unmatched {
				t.Errorf("forms of unmatched devices = %q, want %q", got, tt.unmatched)
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
		want   string
	}{
		{func() {}, "0=a"},
		{func() { d.containers["b1"] = sees("b", "0") }, "0=a,b[]"},
		{func() { delete(d.containers, "a1") }, "0=b"},
		{func() { d.containers["b1"] = sees("c", "0") }, "0=c"},
		{func() { delete(d.containers, "b1"); d.containers["b2"] = sees("c", "1") }, "1=c"},
		{func() { clear(d.containers) }, ""},
	}
	last := first
	for i, step := range steps {
		d.set(step.change)
		got := attribute(t, m, topology)
		has(t, got, step.want)
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
	type handler = func(http.ResponseWriter, *http.Request) bool
	always := func(answer http.HandlerFunc) handler {
		return func(w http.ResponseWriter, r *http.Request) bool { answer(w, r); return true }
	}
	status := func(code int) handler {
		return always(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
	}
	tests := map[string]struct {
		instead handler
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
		"is broken": {instead: status(http.StatusInternalServerError), reason: "error"},
		"refuses":   {instead: status(http.StatusForbidden), is: gpu.ErrPermission},
		"sends elsewhere": {instead: always(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://localhost/v1.51/containers/json", http.StatusFound)
		}), reason: "error"},
		"is not a runtime": {instead: always(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<html>")
		}), reason: "error"},
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
			has(t, attribute(t, m, node()), "0=a")
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
		m := logging(d.socket, &log)
		for range 2 {
			has(t, attribute(t, m, node()), "0=a")
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
	has(t, attribute(t, m, node()), "0=a")

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
	m := logging(d.socket, &log)
	topology := node()
	ctx, cancel := context.WithCancel(context.Background())
	d.set(func() {
		d.containers["a1"], d.containers["b1"], d.containers["bad"] = sees("a", "0"), sees("b", "1"), sees("bad", "2")
		d.instead = func(w http.ResponseWriter, r *http.Request) bool {
			switch {
			case strings.Contains(r.URL.Path, "/bad/"):
				w.WriteHeader(http.StatusInternalServerError)
				return true
			case strings.HasSuffix(r.URL.Path, "1/json") && d.known() == 1:
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
		has(t, o, "0=a 1=b")
		if o.UseOf(0).Incomplete || !o.UseOf(2).Incomplete {
			t.Errorf("owners unknown: GPU 0 = %t, GPU 2 = %t; want false and true",
				o.UseOf(0).Incomplete, o.UseOf(2).Incomplete)
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
	got := ordered(append(slices.Clone(running), listed{ID: "b1"}, listed{ID: "a1", Names: []string{"/c"}}))
	if len(got) != 2 || got[0].ID != "a1" || got[1].ID != "b1" {
		t.Errorf("containers of the list = %v, want a1 and b1", got)
	}
	uses := m.uses(running)
	if n := len(uses[0].Owners); n != attribution.MaxOwners {
		t.Errorf("%d owners, want %d", n, attribution.MaxOwners)
	}
	if n := testutil.ToFloat64(m.metrics.omitted); n != 2*(1000-attribution.MaxOwners) {
		t.Errorf("dropped owners counted = %v, want %d", n, 2*(1000-attribution.MaxOwners))
	}
}

// TestBudgets checks the limits on one container's labels, and that a name that is longer than any runtime allows is
// omitted.
func TestBudgets(t *testing.T) {
	c := listed{ID: "a1", Labels: map[string]string{"empty": "", "long": strings.Repeat("x", maxLabelValue+1)}}
	for i := range maxLabels + 3 {
		c.Labels[fmt.Sprintf("key%02d", i)] = "v"
	}
	m := newMapper("", ".")
	got, dropped := m.labelsOf(&c)
	if len(got) != maxLabels || dropped != 4 || got[0].Name != "key00" {
		t.Errorf("%d labels from %s on, %d dropped; want %d from key00 on, 4 dropped",
			len(got), got[0].Name, dropped, maxLabels)
	}
	c = listed{ID: "0123456789abcdef", Names: []string{"/" + strings.Repeat("x", 1<<20)}}
	if name := nameOf(&c); name != "0123456789ab" {
		t.Errorf("name of %d bytes, want 0123456789ab", len(name))
	}
}

// node has two GPUs without MIG, whose minor numbers are in reverse order, and one with two instances.
func node() *gpu.Topology {
	gpus := func(id uint32, uuid, bus string, minor uint32) gpu.Device {
		return gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPU, ID: id}, GPU: 4 + id, NVMLIndex: id, Minor: minor,
			UUID: uuid, PCIBusID: bus,
		}
	}
	instance := func(id, gi uint32, mig string) gpu.Device {
		return gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ParentKind: gpu.KindGPU, Parent: 2, ID: id},
			GPU:    6, NVMLIndex: 2, Minor: 2, UUID: "GPU-cccc", InstanceID: gi, MIGUUID: mig,
		}
	}
	return gpu.NewTopology([]gpu.Device{
		gpus(0, "GPU-aaaa", "00000000:1B:00.0", 1),
		gpus(1, "GPU-bbbb", "00000000:43:00.0", 0),
		gpus(2, "GPU-cccc", "00000000:5E:00.0", 2),
		instance(14, 1, "MIG-dddd"),
		instance(15, 5, "MIG-eeee"),
		{Entity: gpu.Entity{Kind: gpu.KindNVSwitch, ID: 0}},
	})
}

var rowNames = []string{"0", "1", "2", "2.1", "2.5", "switch"}

// TestGrant checks which device ids are derived from an inspected container.
func TestGrant(t *testing.T) {
	// request returns a request in the form in which docker run writes it.
	request := func(driver string, count int, ids, capabilities string) string {
		return fmt.Sprintf(`"DeviceRequests":[{"Driver":%q,"Count":%d,"DeviceIDs":%s,"Capabilities":%s,"Options":{}}]`,
			driver, count, ids, capabilities)
	}
	gpusAll := request("", -1, "null", `[["gpu"]]`)
	gpusDevices := request("", 0, `["0","GPU-bbbb"]`, `[["gpu"]]`)
	cdi := request("cdi", 0, `["nvidia.com/gpu=0","vendor.com/net=all"]`, "null")
	const none = `"DeviceRequests":null`
	const podmanCDI = none + `,"Devices":[{"PathOnHost":"/dev/nvidia0","PathInContainer":"/dev/nvidia0"},` +
		`{"PathOnHost":"/dev/nvidiactl"},{"PathOnHost":"/dev/nvidia-uvm"}]`
	tests := map[string]struct{ runtime, host, env, want string }{
		"--gpus all":                          {"runc", gpusAll, "", "all"},
		"--gpus all, capability utility":      {"runc", gpusAll, "NVIDIA_DRIVER_CAPABILITIES=utility", ""},
		"--gpus all, compute and utility":     {"runc", gpusAll, "NVIDIA_DRIVER_CAPABILITIES=compute,utility", "all"},
		"--gpus 2":                            {"runc", request("", 2, "null", `[["gpu"]]`), "", "0 1"},
		"--gpus device=":                      {"runc", gpusDevices, "NVIDIA_VISIBLE_DEVICES=all", "0 GPU-bbbb"},
		"a request overrides the environment": {"nvidia", gpusDevices, "NVIDIA_VISIBLE_DEVICES=all", "0 GPU-bbbb"},
		"compose, count: 1":                   {"runc", request("nvidia", 1, "null", `[["gpu"]]`), "", "0"},
		"--device with a CDI name":            {"runc", cdi, "NVIDIA_VISIBLE_DEVICES=void", "0"},
		"a GPU of AMD":                        {"runc", request("", -1, "null", `[["gpu","amd"]]`), "", ""},
		"another driver":                      {"runc", request("other", -1, `["0"]`, `[["tpu"]]`), "", ""},
		"--device /dev/nvidia0, or Podman":    {"oci", podmanCDI, "NVIDIA_VISIBLE_DEVICES=all", "/dev/nvidia0"},
		"--runtime nvidia":                    {"nvidia", none, "NVIDIA_VISIBLE_DEVICES=0, 1,", "0 1"},
		"--runtime nvidia, none":              {"nvidia", none, "NVIDIA_VISIBLE_DEVICES=none", ""},
		"--runtime nvidia, void":              {"nvidia-cdi", none, "NVIDIA_VISIBLE_DEVICES=void", ""},
		"--runtime nvidia, nothing":           {"nvidia", none, "PATH=/bin", ""},
		"a CUDA image without a GPU":          {"runc", none, "NVIDIA_VISIBLE_DEVICES=all", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var c inspected
			const form = `{"Config":{"Env":["A=b",%q]},"HostConfig":{"Runtime":%q,%s}}`
			text := fmt.Sprintf(form, tt.env, tt.runtime, tt.host)
			if err := json.Unmarshal([]byte(text), &c); err != nil {
				t.Fatal(err)
			}
			var words []string
			for _, id := range grant(&c) {
				words = append(words, cmp.Or(id.UUID, map[deviceid.Form]string{
					deviceid.FormAll: "all", deviceid.FormNode: fmt.Sprint("/dev/nvidia", id.Index),
					deviceid.FormNVMLIndex: fmt.Sprint(id.Index),
				}[id.Form]))
			}
			if diff := gocmp.Diff(tt.want, strings.Join(words, " ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSelf(t *testing.T) {
	const id = "3f1b2c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f809"
	docker := "/var/lib/docker/containers/" + id
	tests := map[string]struct{ line, want string }{
		"Docker":     {"650 640 8:1 " + docker + "/hostname /etc/hostname rw,relatime - ext4 /dev/sda1 rw", id},
		"Podman":     {"650 640 0:25 /s/overlay-containers/" + id + "/userdata/hosts /etc/hosts rw - tmpfs x rw", id},
		"a host":     {"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw", ""},
		"a volume":   {"650 640 8:1 " + docker + "/x /data rw - ext4 /dev/sda1 rw", ""},
		"Kubernetes": {"650 640 8:1 /var/lib/kubelet/pods/0a1b/etc-hosts /etc/hosts rw - ext4 /dev/sda1 rw", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := containerOf([]byte("21 1 0:4 / /proc rw - proc proc rw\n" + tt.line + "\n")); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// daemon is a fake container runtime that listens on its own socket.
type daemon struct {
	t      *testing.T
	socket string
	server *http.Server

	mu         sync.Mutex
	version    string // API version; "" if the daemon does not report one
	containers map[string]container
	inspects   int
	// instead, if not nil, handles a request before the daemon. It returns false to let the daemon handle it.
	instead func(w http.ResponseWriter, r *http.Request) bool
}

// container is what the daemon reports about a container.
type container struct {
	name   string
	labels map[string]string
	// inspection contains HostConfig and Config of the inspected container, without braces. It is "" for a container
	// that ended after it was listed.
	inspection string
}

func (c container) with(env string) container {
	const form = `"HostConfig":{"Runtime":"nvidia","DeviceRequests":null},"Config":{"Env":["PATH=/bin",%q]}`
	c.inspection = fmt.Sprintf(form, env)
	return c
}

// sees returns a container whose environment gives it devices.
func sees(name, devices string) container {
	return container{name: name}.with("NVIDIA_VISIBLE_DEVICES=" + devices)
}

func startDaemon(t *testing.T) *daemon {
	socket := filepath.Join(t.TempDir(), "runtime.sock")
	d := &daemon{t: t, socket: socket, version: "1.51", containers: map[string]container{}}
	d.listen()
	t.Cleanup(d.stop)
	return d
}

func (d *daemon) listen() {
	d.t.Helper()
	l, err := net.Listen("unix", d.socket)
	if err != nil {
		d.t.Fatal(err)
	}
	d.server = &http.Server{Handler: d}
	go func(s *http.Server) { _ = s.Serve(l) }(d.server)
}

func (d *daemon) stop() { _ = d.server.Close() }

// set changes the daemon's state under its lock.
func (d *daemon) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

func (d *daemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	instead := d.instead
	d.mu.Unlock()
	if instead != nil && instead(w, r) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	path := r.URL.Path
	if path == "/_ping" {
		if d.version != "" {
			w.Header().Set("Api-Version", d.version)
		}
		fmt.Fprint(w, "OK")
		return
	}
	if d.version != "" {
		var ok bool
		if path, ok = strings.CutPrefix(path, "/v"+d.version); !ok {
			w.WriteHeader(http.StatusBadRequest) // like Docker for an unsupported version
			return
		}
	}
	if path == "/containers/json" {
		list := []map[string]any{}
		for id, c := range d.containers {
			names := []string{"/other/alias", "/" + c.name}
			list = append(list, map[string]any{"Id": id, "Names": names, "Labels": c.labels, "State": "running"})
		}
		_ = json.NewEncoder(w).Encode(list)
		return
	}
	id := strings.TrimSuffix(strings.TrimPrefix(path, "/containers/"), "/json")
	c := d.containers[id]
	if c.inspection == "" {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"message":"No such container: `+id+`"}`)
		return
	}
	d.inspects++
	fmt.Fprintf(w, `{"Id":%q,"Name":%q,%s}`, id, "/"+c.name, c.inspection)
}

// known returns the number of inspected containers.
func (d *daemon) known() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inspects
}
