package images_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/images"
)

// aRegistry starts a registry with an image, and returns its host.
func aRegistry(t *testing.T, image string) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	reference, err := name.ParseReference(host + "/" + image)
	if err == nil {
		err = remote.Write(reference, empty.Image)
	}
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// refusing starts a registry that answers every request with a status, and returns its host.
func refusing(t *testing.T, status int) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func TestCheckAsksTheRegistry(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	host := aRegistry(t, "nvidia/driver:580.105.08-ubuntu24.04")
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	nobody := strings.TrimPrefix(gone.URL, "http://")
	want := []images.Checked{
		{Image: images.Image{Name: host + "/nvidia/driver:580.105.08-ubuntu24.04"}, Answer: images.Exists},
		{Image: images.Image{Name: host + "/nvidia/driver:580.105.08-rhel9"}, Answer: images.Missing},
		{Image: images.Image{Name: host + "/nvidia/drivers:580.105.08-ubuntu24.04"}, Answer: images.Missing},
		{Image: images.Image{Name: refusing(t, http.StatusUnauthorized) + "/a:1"}, Answer: images.Unknown, Why: "access denied"},
		{Image: images.Image{Name: refusing(t, http.StatusForbidden) + "/a:1"}, Answer: images.Unknown, Why: "access denied"},
		{Image: images.Image{Name: refusing(t, http.StatusTooManyRequests) + "/a:1"}, Answer: images.Unknown, Why: "429"},
		{Image: images.Image{Name: nobody + "/a:1"}, Answer: images.Unknown, Why: "connection refused"},
		{Image: images.Image{Name: host + "/nvidia/driver:580.105.08", Note: "one image for each operating system"}, Answer: images.Unknown, Why: "not certain"},
		{Image: images.Image{Name: "no image"}, Answer: images.Unknown, Why: "could not parse"},
	}
	var list []images.Image
	for _, w := range want {
		list = append(list, w.Image)
	}
	got := images.Check(t.Context(), list)
	for i, w := range want {
		if got[i].Image != w.Image || got[i].Answer != w.Answer || !strings.Contains(got[i].Why, w.Why) || (w.Why == "") != (got[i].Why == "") {
			t.Errorf("%s: %s (%s), want %s (%s)", w.Name, got[i].Answer, got[i].Why, w.Answer, w.Why)
		}
		if strings.Contains(got[i].Why, "\n") {
			t.Errorf("%s: the reason has several lines: %q", w.Name, got[i].Why)
		}
	}
}

// Check sends only GET and HEAD requests.
func TestCheckOnlyReads(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	methods := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		methods <- r.Method
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(server.Close)
	images.Check(t.Context(), []images.Image{{Name: strings.TrimPrefix(server.URL, "http://") + "/a:1"}})
	close(methods)
	n := 0
	for method := range methods {
		n++
		if !slices.Contains([]string{http.MethodGet, http.MethodHead}, method) {
			t.Errorf("request method = %s, want GET or HEAD", method)
		}
	}
	if n == 0 {
		t.Error("the registry got no request, want at least one")
	}
}
