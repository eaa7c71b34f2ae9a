package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/apiserver"
)

type object = map[string]any

func meta(namespace, name string, labels object) object {
	return object{"namespace": namespace, "name": name, "labels": labels, "managedFields": []any{object{"manager": "kubelet"}},
		"annotations": object{"kubectl.kubernetes.io/last-applied-configuration": "{}"}}
}

func gpuNode(name string) object {
	return object{"metadata": meta("", name, object{"nvidia.com/gpu.present": "true"}), "status": object{
		"capacity": object{"nvidia.com/gpu": "8"}, "images": []any{object{"names": []any{"x"}}}, "nodeInfo": object{"architecture": "amd64"}}}
}

func pod(namespace, name, node string, gpus string) object {
	container := object{"name": "main", "image": "x", "env": []any{object{"name": "PASSWORD", "value": "secret"}}}
	if gpus != "" {
		container["resources"] = object{"limits": object{"nvidia.com/gpu": gpus}}
	}
	return object{"metadata": meta(namespace, name, nil), "spec": object{"nodeName": node, "containers": []any{container}}, "status": object{"phase": "Running"}}
}

func open(t *testing.T, opt cluster.Options) *cluster.Client {
	t.Helper()
	c, err := cluster.Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// readFrom starts the server, and reads the kinds from it.
func readFrom(t *testing.T, s *apiserver.Server, kinds ...cluster.Kind) *cluster.State {
	t.Helper()
	got, err := open(t, cluster.Options{Kubeconfig: s.Start(t).Kubeconfig(t)}).Read(t.Context(), kinds...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// unauthorized rejects a request's credentials.
func unauthorized(w http.ResponseWriter) bool {
	apiserver.Status(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
	return true
}

func podNames(s *cluster.State) []string {
	var out []string
	for _, p := range s.Pods {
		out = append(out, p.Namespace+"/"+p.Name)
	}
	return out
}

func TestReadKeepsWhatChecksRead(t *testing.T) {
	s := (&apiserver.Server{}).
		Add(t, "/api/v1/nodes", gpuNode("gpu-1"), object{"metadata": meta("", "cpu-1", nil)}).
		Add(t, "/api/v1/pods", pod("ml", "train", "gpu-1", "2"), pod("web", "shop", "cpu-1", ""), pod("web", "noisy", "gpu-1", ""), pod("gpu-operator", "nfd-gc", "cpu-1", "")).
		Add(t, "/apis/nvidia.com/v1/clusterpolicies", object{"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": meta("", "cluster-policy", nil),
			"status": object{"namespace": "gpu-operator"}}).
		Add(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", object{"metadata": object{"name": "clusterpolicies.nvidia.com"}})
	got := readFrom(t, s, cluster.Nodes, cluster.Pods, cluster.ClusterPolicies, cluster.CRDs, cluster.ConfigMaps, cluster.NVIDIADrivers)
	if want := []string{"ml/train", "web/noisy", "gpu-operator/nfd-gc"}; !cmp.Equal(want, podNames(got)) {
		t.Errorf("pods %v, want %v", podNames(got), want)
	}
	if got.Version != "v1.36.3" || got.Namespace != "gpu-operator" || len(got.CRDs) != 1 || len(got.ClusterPolicies) != 1 {
		t.Errorf("version %q, namespace %q, CRDs %v, %d ClusterPolicies; want v1.36.3, gpu-operator, one CRD and one ClusterPolicy", got.Version, got.Namespace, got.CRDs, len(got.ClusterPolicies))
	}
	n := got.Nodes[0]
	if len(n.ManagedFields) != 0 || n.Status.Images != nil || len(n.Annotations) != 0 || n.Status.NodeInfo.Architecture != "amd64" {
		t.Errorf("trimmed node = %+v, want only the fields that checks read", n)
	}
	if env := got.Pods[0].Spec.Containers[0].Env; len(env) != 0 {
		t.Errorf("environment of a user's pod = %v, want none", env)
	}
	if got.ConfigMaps == nil || got.NVIDIADrivers != nil {
		t.Errorf("ConfigMaps = %v, NVIDIADrivers = %v; want an empty list and nil", got.ConfigMaps, got.NVIDIADrivers)
	}
	// NVIDIADrivers are not served, and quotas were not requested
	for kind, want := range map[cluster.Kind]cluster.Why{cluster.NVIDIADrivers: cluster.Absent, cluster.Quotas: cluster.Unread} {
		if m := got.Lacks(kind); m == nil || m.Why != want {
			t.Errorf("%s: missing = %+v, want %s", kind, m, want)
		}
	}
	if m := got.Lacks(cluster.Nodes); m != nil {
		t.Errorf("nodes: missing = %+v, want nil", m)
	}
}

func TestReadAsksForPages(t *testing.T) {
	s := (&apiserver.Server{}).Generate("/api/v1/nodes", 1201, func(i int) []byte {
		return fmt.Appendf(nil, `{"metadata":{"name":"node-%04d"}}`, i)
	})
	got := readFrom(t, s, cluster.Nodes, cluster.Nodes, cluster.Namespaces)
	if n := len(got.Nodes); n != 1201 || got.Nodes[1200].Name != "node-1200" {
		t.Errorf("nodes = %d, want 1201, and node-1200 as the last", n)
	}
	lists, pages := s.Lists()
	if lists["/api/v1/nodes"] != 1 || pages["/api/v1/nodes"] != 3 || lists["/api/v1/namespaces"] != 1 {
		t.Errorf("lists = %v, pages = %v; want one list of nodes in 3 pages and one list of namespaces", lists, pages)
	}
	for _, r := range s.Requests() {
		if strings.Contains(r, "/nodes") && !strings.Contains(r, "limit=500") {
			t.Errorf("request = %s, want limit=500", r)
		}
	}
}

func TestForbiddenKindIsMissing(t *testing.T) {
	s := (&apiserver.Server{Forbidden: map[string]bool{"/api/v1/pods": true}}).Add(t, "/api/v1/nodes", gpuNode("gpu-1"))
	got := readFrom(t, s, cluster.Pods, cluster.Nodes)
	want := []cluster.Missing{{Kind: cluster.Pods, Why: cluster.Forbidden,
		Detail: `pods is forbidden: User "jane" cannot list resource "pods" in API group "" at the cluster scope`}}
	if diff := cmp.Diff(want, got.Missing); diff != "" || got.Pods != nil || len(got.Nodes) != 1 {
		t.Errorf("pods = %v, nodes = %d, want nil and 1; missing (-want +got):\n%s", got.Pods, len(got.Nodes), diff)
	}
}

// Read reads the schemas of the operator's CRDs, and only the names of other CRDs.
func TestReadKeepsTheSchemasOfTheOperatorsCRDs(t *testing.T) {
	crd := func(name string) object {
		schema := object{"openAPIV3Schema": object{"properties": object{"spec": object{"type": "object"}}}}
		return object{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": object{"name": name},
			"spec": object{"versions": []any{object{"name": "v1alpha1"}, object{"name": "v1", "schema": schema}}}}
	}
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	s := (&apiserver.Server{}).Add(t, path, crd("servicemonitors.monitoring.coreos.com"), crd("clusterpolicies.nvidia.com"))
	got := readFrom(t, s, cluster.CRDs)
	want := []cluster.CRD{{Name: "servicemonitors.monitoring.coreos.com"},
		{Name: "clusterpolicies.nvidia.com", Schema: object{"properties": object{"spec": object{"type": "object"}}}}}
	if diff := cmp.Diff(want, got.CRDs); diff != "" {
		t.Errorf("CRDs (-want +got):\n%s", diff)
	}
	if requests := strings.Join(s.Requests(), "\n"); !strings.Contains(requests, "fieldSelector=metadata.name%3Dclusterpolicies.nvidia.com") {
		t.Errorf("requests:\n%s\nwant one with fieldSelector=metadata.name=clusterpolicies.nvidia.com", requests)
	}
}

// If a page fails, the earlier pages of the list are discarded.
func TestFailedPageDiscardsTheList(t *testing.T) {
	s := &apiserver.Server{Before: func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("continue") != "" {
			apiserver.Status(w, http.StatusGone, "Expired", "The provided continue parameter is too old")
			return true
		}
		return false
	}}
	s.Generate("/api/v1/nodes", 700, func(i int) []byte { return fmt.Appendf(nil, `{"metadata":{"name":"node-%d"}}`, i) })
	got := readFrom(t, s, cluster.Nodes)
	if m := got.Lacks(cluster.Nodes); got.Nodes != nil || m == nil || m.Why != cluster.Failed {
		t.Errorf("nodes = %d, missing = %+v; want no nodes and failed", len(got.Nodes), m)
	}
}

func TestBadKubeconfig(t *testing.T) {
	t.Setenv("KUBECONFIG", t.TempDir()+"/none")
	t.Setenv("HOME", t.TempDir())
	path := (&apiserver.Server{URL: "http://127.0.0.1:1"}).Kubeconfig(t)
	for name, c := range map[string]struct {
		opt  cluster.Options
		want string
	}{
		"none":          {cluster.Options{}, "no kubeconfig at"},
		"no contexts":   {cluster.Options{Context: "test"}, "no kubeconfig at"},
		"absent file":   {cluster.Options{Kubeconfig: "/nowhere/config"}, "/nowhere/config"},
		"wrong context": {cluster.Options{Kubeconfig: path, Context: "production"}, `no context "production": choose one with --context (available: test)`},
		"near context":  {cluster.Options{Kubeconfig: path, Context: "tesst"}, `did you mean "test"?`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := cluster.Open(c.opt)
			if !errors.Is(err, cluster.ErrInput) || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("error = %v, want ErrInput with %q", err, c.want)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	hung := make(chan struct{})
	t.Cleanup(func() { close(hung) })
	serve := func(before func(http.ResponseWriter, *http.Request) bool) *apiserver.Server {
		return (&apiserver.Server{Before: before}).Start(t)
	}
	for name, c := range map[string]struct {
		server *apiserver.Server
		want   string
	}{
		"refused":       {&apiserver.Server{URL: "http://127.0.0.1:1"}, "connection refused"},
		"token expired": {serve(func(w http.ResponseWriter, _ *http.Request) bool { return unauthorized(w) }), "rejected the kubeconfig's credentials"},
		"token expires": {serve(func(w http.ResponseWriter, r *http.Request) bool {
			return strings.HasPrefix(r.URL.Path, "/api/") && unauthorized(w)
		}), "rejected the kubeconfig's credentials"},
		"a web page": {serve(func(w http.ResponseWriter, _ *http.Request) bool {
			_, err := w.Write([]byte("<html>log in</html>"))
			return err == nil
		}), "is not a Kubernetes API server"},
		"hangs": {serve(func(_ http.ResponseWriter, r *http.Request) bool {
			select {
			case <-hung:
			case <-r.Context().Done():
			}
			return true
		}), "did not answer within 1s"},
	} {
		t.Run(name, func(t *testing.T) {
			client := open(t, cluster.Options{Kubeconfig: c.server.Kubeconfig(t), Timeout: time.Second})
			if _, err := client.Read(t.Context(), cluster.Nodes); !errors.Is(err, cluster.ErrUnreachable) || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("error = %v, want ErrUnreachable with %q", err, c.want)
			}
		})
	}
}

// The time of a credential plugin does not count toward the server's timeout. A plugin that hangs is abandoned at the
// caller's deadline.
func TestCredentialPlugins(t *testing.T) {
	plain, err := url.Parse((&apiserver.Server{}).Start(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(plain)) // client-go sends the kubeconfig's credentials only over TLS
	t.Cleanup(s.Close)
	plugin := func(script string) cluster.Options {
		dir := t.TempDir()
		program, config := filepath.Join(dir, "plugin"), filepath.Join(dir, "config")
		if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\nclusters: [{name: a, cluster: {server: %q, insecure-skip-tls-verify: true}}]\n"+
			"users: [{name: a, user: {exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: %q}}}]\n", s.URL, program)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return cluster.Options{Kubeconfig: config, Timeout: 300 * time.Millisecond}
	}
	const token = `echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"x"}}'` + "\n"
	t.Run("slow", func(t *testing.T) {
		if _, err := open(t, plugin("sleep 1\n"+token)).Read(t.Context(), cluster.Nodes); err != nil {
			t.Errorf("credential plugin that takes one second: error %v, want none", err)
		}
	})
	t.Run("hanging", func(t *testing.T) {
		// the script ends when the test deletes the folder
		client := open(t, plugin("while [ -d "+t.TempDir()+" ]; do sleep 0.1; done\n"+token))
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := client.Read(ctx, cluster.Nodes)
		if !errors.Is(err, cluster.ErrUnreachable) || !strings.Contains(fmt.Sprint(err), "credential plugin") {
			t.Errorf("error = %v, want ErrUnreachable that names the credential plugin", err)
		}
	})
}

func TestReadReturnsTheContextError(t *testing.T) {
	client := open(t, cluster.Options{Kubeconfig: new(apiserver.Server).Start(t).Kubeconfig(t)})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.Read(ctx, cluster.Nodes); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want context.Canceled", err)
	}
}

// Read keeps the time of the last write to a label, and drops other managedFields of the node.
func TestReadKeepsLabelTimes(t *testing.T) {
	entry := func(manager, time string, fields object) object {
		return object{
			"manager": manager, "operation": "Update", "apiVersion": "v1", "time": time,
			"fieldsType": "FieldsV1", "fieldsV1": fields,
		}
	}
	state := object{"f:metadata": object{"f:labels": object{"f:nvidia.com/mig.config.state": object{}, "f:other": object{}}}}
	n := object{"metadata": object{"name": "gpu-1", "labels": object{"nvidia.com/gpu.present": "true"}, "managedFields": []any{
		entry("kubelet", "2026-09-01T12:00:00Z", object{"f:status": object{"f:conditions": object{}}}),
		entry("nvidia-mig-manager", "2026-09-01T11:00:00Z", state),
	}}}
	s := readFrom(t, new(apiserver.Server).Add(t, "/api/v1/nodes", n), cluster.Nodes)
	if len(s.Nodes) != 1 {
		t.Fatalf("nodes = %d, want 1; missing: %v", len(s.Nodes), s.Missing)
	}
	got := s.Nodes[0].ManagedFields
	if len(got) != 1 || got[0].Time.UTC().Format("15:04") != "11:00" || cluster.Owns(got[0], "metadata", "labels", "nvidia.com/mig.config.state") != 3 {
		t.Errorf("managed fields = %v, want only the entry of 11:00", got)
	}
}
