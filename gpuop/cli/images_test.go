package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// mirror starts a registry that lacks the driver for RHEL and denies access to the container toolkit. It returns the
// address.
func mirror(t *testing.T) string {
	t.Helper()
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "-rhel9"):
			w.WriteHeader(http.StatusNotFound)
		case strings.Contains(r.URL.Path, "/container-toolkit/"):
			w.WriteHeader(http.StatusForbidden)
		default:
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			w.Header().Set("Content-Length", "10")
			w.Header().Set("Docker-Content-Digest", "sha256:"+strings.Repeat("0", 64))
		}
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func TestImagesCheck(t *testing.T) {
	host := mirror(t)
	args := []string{"images", "--os", "rhel9.6", "--check"}
	for _, key := range []string{"operator", "driver", "driver.manager", "toolkit", "devicePlugin", "dcgmExporter", "migManager", "validator", "gfd"} {
		args = append(args, "--set", key+".repository="+host+"/nvidia")
	}
	args = append(args, "--set", "nfd.enabled=false")
	code, out, errOut := call("", args...)
	if code != exitFindings || !strings.Contains(out, "missing "+host+"/nvidia/driver:") || !strings.Contains(out, "unknown "+host+"/nvidia/container-toolkit:") ||
		!strings.Contains(out, "exists  "+host+"/nvidia/gpu-operator:") || strings.Contains(out, "error:") {
		t.Errorf("exit %d, want 1, a missing driver, an unknown toolkit and an existing operator\n%s", code, out)
	}
	if !strings.Contains(errOut, "error: "+host+"/nvidia/driver:") || !strings.Contains(errOut, "[image-missing]") ||
		!strings.Contains(errOut, "access denied") || strings.Count(errOut, "[image-") != 2 {
		t.Errorf("standard error lacks the two findings about the driver and the toolkit:\n%s", errOut)
	}
	if _, out, _ = call("", append(args, "--long")...); !strings.Contains(out, "missing driver                   "+host+"/nvidia/driver:") {
		t.Errorf("--long: output lacks the operand driver after the answer:\n%s", out)
	}
	_, out, _ = call("", append(args, "-o", "json")...)
	var printed struct {
		Result []struct{ Image, Registry, Reason string }
	}
	if err := json.Unmarshal([]byte(out), &printed); err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, i := range printed.Result {
		found[i.Registry]++
		if (i.Reason != "") != (i.Registry == "unknown") {
			t.Errorf("image %+v: want a reason only if the answer is unknown", i)
		}
	}
	if found["missing"] != 1 || found["unknown"] != 1 || found["exists"] != len(printed.Result)-2 || len(printed.Result) < 6 {
		t.Errorf("answers = %v of %d images, want one missing, one unknown and at least four that exist", found, len(printed.Result))
	}
}
