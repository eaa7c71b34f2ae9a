package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/telemetry"
)

// answers serves an answer for each path; "" is for all others.
func answers(t *testing.T, by map[string]func(http.ResponseWriter, *http.Request)) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := by[r.URL.Path]; f != nil {
			f(w, r)
			return
		}
		by[""](w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func says(status int, kind, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

const (
	api     = "application/json"
	vector  = `{"status":"success","data":{"resultType":"vector","result":[]}}`
	matrix  = `{"status":"success","data":{"resultType":"matrix","result":[]}}`
	noNames = `{"status":"success","data":[]}`
	some    = `{"status":"success","data":["DCGM_FI_DEV_FB_USED","up"]}`
)

// What --prometheus may name by mistake, and the sentence for it.
func TestServerFaults(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	html := says(200, "text/html; charset=utf-8", "<!DOCTYPE html><html><title>Status</title></html>")
	for _, tt := range []struct {
		name     string
		by       map[string]func(http.ResponseWriter, *http.Request)
		url      string
		selector string
		is       error
		says     string
	}{
		{"no address", nil, "prometheus:9090", "", telemetry.ErrInput, `"prometheus:9090" is no address of a Prometheus, want http://HOST:PORT`},
		{"refused", nil, "http://" + closed.Addr().String(), "", telemetry.ErrUnreachable, "connection refused"},
		{"no such host", nil, "http://prometheus.invalid:9090", "", telemetry.ErrUnreachable, "prometheus.invalid"},
		{"Grafana", map[string]func(http.ResponseWriter, *http.Request){"": says(200, "text/html", "<html><title>Grafana</title></html>")}, "", "", telemetry.ErrInput, "a page of Grafana"},
		{"web page", map[string]func(http.ResponseWriter, *http.Request){"": html}, "", "", telemetry.ErrInput, "a web page (200 OK)"},
		{"an exporter", map[string]func(http.ResponseWriter, *http.Request){"": says(404, "text/plain", "404 page not found")}, "", "", telemetry.ErrInput, "404 Not Found with text/plain, not with Prometheus' HTTP API; for an exporter's page use --scrape"},
		{"unauthorized", map[string]func(http.ResponseWriter, *http.Request){"": says(401, "text/plain", "Unauthorized")}, "", "", telemetry.ErrUnreachable, "refuses the credentials: 401 Unauthorized: Unauthorized; a token goes into --bearer-token-file"},
		{"gateway", map[string]func(http.ResponseWriter, *http.Request){"": says(502, "text/plain", "bad gateway\nmore")}, "", "", telemetry.ErrUnreachable, "502 Bad Gateway: bad gateway"},
		{"not JSON", map[string]func(http.ResponseWriter, *http.Request){"": says(200, api, "oops")}, "", "", telemetry.ErrInput, "not Prometheus' HTTP API"},
		{"half an answer", map[string]func(http.ResponseWriter, *http.Request){"": says(200, api, vector[:20])}, "", "", telemetry.ErrInput, "not Prometheus' HTTP API"},
		{"bad selector", map[string]func(http.ResponseWriter, *http.Request){"": says(400, api, `{"status":"error","errorType":"bad_data","error":"parse error: unexpected }"}`)}, "", "x=", telemetry.ErrInput, "parse error: unexpected }"},
		{"too much", map[string]func(http.ResponseWriter, *http.Request){"": says(422, api, `{"status":"error","errorType":"execution","error":"query processing would load too many samples"}`)}, "", "", telemetry.ErrUnreachable, "execution: query processing would load too many samples"},
		{"without our series", map[string]func(http.ResponseWriter, *http.Request){"": says(200, api, vector), "/api/v1/label/__name__/values": says(200, api, noNames)}, "", "", telemetry.ErrNoSeries, "has no series of a GPU exporter; looked for dcgm_pod_gpu_utilization_ratio,"},
		{"empty window", map[string]func(http.ResponseWriter, *http.Request){"": says(200, api, vector), "/api/v1/label/__name__/values": says(200, api, some), "/api/v1/query_range": says(200, api, matrix)}, "", "", telemetry.ErrNoSamples, "(DCGM_FI_DEV_FB_USED), and none has a sample between 2026-11-15T00:00:00Z and 2026-11-22T00:00:00Z"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url := tt.url
			if tt.by != nil {
				url = answers(t, tt.by).URL
			}
			s := &telemetry.Server{URL: url, Selector: tt.selector}
			_, err := s.Usage(t.Context(), 7*24*time.Hour, time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC))
			if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("%v, want %v with %q", err, tt.is, tt.says)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than a line: %q", err)
			}
		})
	}
}

// A server that takes the connection and says nothing is given up after five seconds.
func TestHangingServer(t *testing.T) {
	release := make(chan struct{})
	s := answers(t, map[string]func(http.ResponseWriter, *http.Request){"": func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}})
	defer close(release)
	began := time.Now()
	_, err := (&telemetry.Server{URL: s.URL}).Usage(t.Context(), time.Hour, time.Now())
	if !errors.Is(err, telemetry.ErrUnreachable) || time.Since(began) > 20*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&telemetry.Server{URL: s.URL}).Usage(ctx, time.Hour, time.Now()); !errors.Is(err, context.Canceled) {
		t.Errorf("%v after a cancellation", err)
	}
}

func TestPasswordsAreNotShown(t *testing.T) {
	_, err := (&telemetry.Server{URL: "http://u:secret@127.0.0.1:1"}).Usage(t.Context(), time.Hour, time.Now())
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
	_, err = (&telemetry.Pages{Places: []string{"http://u:secret@127.0.0.1:1"}}).Usage(t.Context())
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

func TestTokenAndWarnings(t *testing.T) {
	var mu = make(chan string, 1000)
	s := answers(t, map[string]func(http.ResponseWriter, *http.Request){
		"": func(w http.ResponseWriter, r *http.Request) {
			mu <- r.Header.Get("Authorization")
			says(200, api, strings.Replace(`{"status":"success","warnings":["store gpu-3 did not answer"],"data":{"resultType":"vector","result":[RESULT]}}`, "RESULT", `{"metric":{"UUID":"GPU-a","gpu":"0"},"value":[0,"512"]}`, 1))(w, r)
		},
		"/api/v1/label/__name__/values": says(200, api, some),
		"/api/v1/query_range":           says(200, api, matrix),
	})
	u, err := (&telemetry.Server{URL: s.URL + "/graph", Token: "t0ken"}).Usage(t.Context(), time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if got := <-mu; got != "Bearer t0ken" {
		t.Errorf("Authorization: %q", got)
	}
	if diff := cmp.Diff([]string{"store gpu-3 did not answer"}, u.Warnings); diff != "" {
		t.Error(diff)
	}
	if len(u.GPUs) != 1 || u.GPUs[0].Memory.Max != 512<<20 {
		t.Errorf("%+v", u.GPUs)
	}
}

func read(pages map[string]string) func(string) ([]byte, error) {
	return func(path string) ([]byte, error) {
		if text, ok := pages[path]; ok {
			return []byte(text), nil
		}
		return nil, errors.New("open " + path + ": no such file or directory")
	}
}

func TestPageFaults(t *testing.T) {
	broken := answers(t, map[string]func(http.ResponseWriter, *http.Request){
		"/metrics": says(200, "text/plain", "up 1\n"), "/html": says(200, "text/html", "<html></html>"),
		"/gone": says(404, "text/plain", "no"), "": says(503, "text/plain", "starting\n"),
		"/cut": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, "DCGM_FI_DEV_FB_USED")
		},
	})
	for _, tt := range []struct {
		place string
		is    error
		says  string
	}{
		{"http://", telemetry.ErrInput, "is no address"},
		{"http://127.0.0.1:1", telemetry.ErrUnreachable, "connection refused"},
		{broken.URL, telemetry.ErrNoSeries, "has no series of a GPU exporter"},
		{broken.URL + "/html", telemetry.ErrInput, "is a web page, not an exporter's /metrics"},
		{broken.URL + "/gone", telemetry.ErrInput, "404 Not Found"},
		{broken.URL + "/busy", telemetry.ErrUnreachable, "503 Service Unavailable: starting"},
		{broken.URL + "/cut", telemetry.ErrUnreachable, "it broke off after 19 bytes"},
		{"absent.prom", telemetry.ErrInput, "no such file"},
		{"garbage", telemetry.ErrInput, "garbage is not a page of Prometheus' text format: text format parsing error in line 2"},
		{"empty", telemetry.ErrNoSeries, "looked for"},
	} {
		p := &telemetry.Pages{Places: []string{tt.place}, Read: read(map[string]string{"garbage": "up 1\nup{ 2\n", "empty": ""})}
		_, err := p.Usage(t.Context())
		if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %v with %q", tt.place, err, tt.is, tt.says)
		}
	}
}

// One machine in both vocabularies, and as NVIDIA's exporter has it: the same usage, as far as it is
// reported.
func TestNamesOfEveryExporter(t *testing.T) {
	classic := `DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-a",modelName="NVIDIA A30",Hostname="n1",namespace="x",pod="p-0",container="c"} 0.25
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",modelName="NVIDIA A30",Hostname="n1",namespace="x",pod="p-0",container="c"} 90
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",modelName="NVIDIA A30",Hostname="n1",namespace="x",pod="p-0",container="c"} 1024
DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-a",modelName="NVIDIA A30",Hostname="n1",namespace="x",pod="p-0",container="c"} 22528
DCGM_FI_DEV_FB_RESERVED{gpu="0",UUID="GPU-a",modelName="NVIDIA A30",Hostname="n1",namespace="x",pod="p-0",container="c"} 1024
`
	current := strings.NewReplacer("GR_ENGINE_ACTIVE", "GR_ENGINE_UTIL_RATIO", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO", "} 90", "} 0.9",
		"FB_USED", "FB_USED_BYTES", "FB_FREE", "FB_FREE_BYTES", "FB_RESERVED", "FB_RESERVED_BYTES", "} 1024", "} 1073741824", "} 22528", "} 23622320128").Replace(classic)
	renamed := strings.NewReplacer(`namespace="x",pod="p-0",container="c"`, `exported_namespace="x",exported_pod="p-0",exported_container="c",namespace="gpu-operator",pod="nvidia-dcgm-exporter-abcde",container="nvidia-dcgm-exporter"`).Replace(classic)
	want := telemetry.GPU{Node: "n1", Index: "0", UUID: "GPU-a", Model: "NVIDIA A30", MemoryBytes: 24 << 30, Profiled: true,
		Active: telemetry.Stat{Samples: 1, Mean: 0.25, P95: 0.25, Max: 0.25},
		Memory: telemetry.Stat{Samples: 1, Mean: 1 << 30, P95: 1 << 30, Max: 1 << 30}}
	want.Pods = []telemetry.Pod{{Namespace: "x", Name: "p-0", Container: "c", Active: want.Active, Memory: want.Memory}}
	for name, text := range map[string]string{"classic": classic, "current": current, "renamed": renamed} {
		u, err := (&telemetry.Pages{Places: []string{name}, Read: read(map[string]string{name: text})}).Usage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]telemetry.GPU{want}, u.GPUs, cmpopts.IgnoreFields(telemetry.Pod{}, "Steps")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	idle := strings.NewReplacer(`namespace="x",pod="p-0",container="c"`, `namespace="gpu-operator",pod="nvidia-dcgm-exporter-abcde",container="nvidia-dcgm-exporter"`).Replace(classic)
	u, err := (&telemetry.Pages{Places: []string{"idle"}, Read: read(map[string]string{"idle": idle})}).Usage(t.Context())
	if err != nil || len(u.GPUs) != 1 || len(u.GPUs[0].Pods) != 0 {
		t.Errorf("an exporter's own pod is taken for an owner: %+v, %v", u, err)
	}
}

// Two pods are beside each other only while both are there.
func TestBeside(t *testing.T) {
	at := func(minutes ...int) (all []telemetry.Point) {
		for _, m := range minutes {
			all = append(all, telemetry.Point{At: time.Unix(int64(60*m), 0)})
		}
		return all
	}
	for _, tt := range []struct {
		p, q telemetry.Pod
		want bool
	}{
		{telemetry.Pod{Steps: at(1, 2, 3)}, telemetry.Pod{Steps: at(3, 4, 5)}, false}, // one after the other
		{telemetry.Pod{Steps: at(1, 2, 3)}, telemetry.Pod{Steps: at(2, 3, 4)}, true},
		{telemetry.Pod{Steps: at(1)}, telemetry.Pod{Steps: at(1)}, true},
		{telemetry.Pod{Steps: at(1)}, telemetry.Pod{Steps: at(2)}, false},
		{telemetry.Pod{}, telemetry.Pod{}, false},
		{telemetry.Pod{Sharing: "none"}, telemetry.Pod{}, false},
		{telemetry.Pod{Sharing: "mps"}, telemetry.Pod{Steps: at(1)}, true},
		{telemetry.Pod{Replicas: 4}, telemetry.Pod{}, true},
	} {
		if got := tt.p.Beside(&tt.q); got != tt.want || tt.q.Beside(&tt.p) != tt.want {
			t.Errorf("%+v beside %+v: %v", tt.p, tt.q, got)
		}
	}
}

// An address is scraped twice, some time apart; a file once.
func TestTwoScrapes(t *testing.T) {
	n := 0
	s := answers(t, map[string]func(http.ResponseWriter, *http.Request){"": func(w http.ResponseWriter, _ *http.Request) {
		n++
		fmt.Fprintf(w, "DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID=\"GPU-a\",gpu=\"0\"} 0.%d\n", n)
	}})
	u, err := (&telemetry.Pages{Places: []string{s.URL}, Apart: time.Millisecond}).Usage(t.Context())
	if err != nil || n != 2 || u.GPUs[0].Active.Samples != 2 || u.GPUs[0].Active.Max != 0.2 {
		t.Errorf("%d scrapes, %+v, %v", n, u, err)
	}
}
