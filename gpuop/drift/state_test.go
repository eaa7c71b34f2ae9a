package drift_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/drift"
)

// load reads a file written by kubectl get -o yaml --show-managed-fields. State.At is one hour after the last time in
// the managedFields of the Secrets.
func load(t *testing.T, name string) *cluster.State {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	s := &cluster.State{
		Title: name, Namespace: "gpu-operator",
		Secrets: []corev1.Secret{}, ClusterPolicies: []unstructured.Unstructured{},
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		var list unstructured.UnstructuredList
		if err := decoder.Decode(&list); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, u := range list.Items {
			add(t, s, u)
		}
	}
	for i := range s.Secrets {
		for _, e := range s.Secrets[i].ManagedFields {
			if at := e.Time.Add(time.Hour); at.After(s.At) {
				s.At = at
			}
		}
	}
	return s
}

func add(t *testing.T, s *cluster.State, u unstructured.Unstructured) {
	t.Helper()
	switch u.GetKind() {
	case "Node", "Pod", "DaemonSet", "ConfigMap": // drift does not use these kinds
	case "Secret":
		s.Secrets = append(s.Secrets, typed[corev1.Secret](t, u))
	case "ClusterPolicy":
		s.ClusterPolicies = append(s.ClusterPolicies, u)
	default:
		t.Fatalf("unexpected kind %s in testdata", u.GetKind())
	}
}

func typed[T any](t *testing.T, u unstructured.Unstructured) T {
	t.Helper()
	var out T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// intended returns the values in testdata/values.yaml.
func intended(t *testing.T) drift.Options {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := yaml.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return drift.Options{Table: chart.Load(), Intended: v, From: "values.yaml", Flags: "-f values.yaml"}
}

// wrong returns the findings that are not OK.
func wrong(findings []check.Finding) []check.Finding {
	var out []check.Finding
	for _, v := range findings {
		if v.Severity != check.OK {
			out = append(out, v)
		}
	}
	return out
}
