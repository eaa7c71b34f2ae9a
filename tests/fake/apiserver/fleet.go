package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// object is a Kubernetes object, or a part of one, as decoded from JSON.
type object = map[string]any

// Fleet serves a cluster of n nodes. It reads recorded files of kubectl get -o yaml in folder. The node gpu-1 and all
// its pods are repeated as node-00000 to node-(n-1). Other nodes and their pods are left out.
//
// Objects of other kinds are served as recorded. Nodes and pods are padded to realistic sizes: about 20 KiB for a node,
// with NFD's labels and a list of images, and 7 KiB for a pod. Each node has five additional pods, two of which request
// GPUs.
func (s *Server) Fleet(t testing.TB, folder string, n int) *Server {
	t.Helper()
	var node []byte
	var pods [][]byte
	rest := map[string][]any{}
	for _, o := range recorded(t, folder) {
		kind, _ := o["kind"].(string)
		about, _ := o["metadata"].(object)
		spec, _ := o["spec"].(object)
		switch {
		case kind == "Node" && about["name"] == "gpu-1":
			node = encoded(t, fillNode(o))
		case kind == "Node":
		case kind == "Pod" && spec["nodeName"] == "gpu-1":
			pods = append(pods, encoded(t, fillPod(o)))
		case kind == "Pod":
		default:
			rest[pathOf(o)] = append(rest[pathOf(o)], o)
		}
	}
	if node == nil || len(pods) == 0 {
		t.Fatalf("%s has no node gpu-1 with pods", folder)
	}
	const since = "2026-11-22T09:05:00Z"
	for i, name := range []string{"kube-proxy", "cilium", "node-exporter", "train", "infer"} {
		owner := object{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "controller": true, "uid": "0"}
		container := object{"name": name, "image": "registry.example.com/" + name + ":1"}
		if i >= 3 {
			owner["kind"] = "ReplicaSet"
			container["resources"] = object{"limits": object{"nvidia.com/gpu": "1"}}
		}
		running := object{"running": object{"startedAt": since}}
		pods = append(pods, encoded(t, fillPod(object{
			"metadata": object{
				"namespace": "kube-system", "name": name + "-aaaaa", "labels": object{"app": name},
				"ownerReferences": []any{owner},
			},
			"spec": object{"nodeName": "gpu-1", "containers": []any{container}},
			"status": object{
				"phase":             "Running",
				"conditions":        []any{object{"type": "Ready", "status": "True", "lastTransitionTime": since}},
				"containerStatuses": []any{object{"name": name, "ready": true, "state": running}},
			},
		})))
	}
	// the number is as long as the placeholder, because a protobuf template has length fields
	number := func(template []byte, i int) []byte {
		return bytes.ReplaceAll(template, []byte("-aaaaa"), fmt.Appendf(nil, "-%05d", i))
	}
	s.Generate("/api/v1/nodes", n, func(i int) []byte { return number(node, i) })
	s.Generate("/api/v1/pods", n*len(pods), func(i int) []byte { return number(pods[i%len(pods)], i/len(pods)) })
	wireNode, wirePods := wire(t, node, &corev1.Node{}), make([][]byte, len(pods))
	for i := range pods {
		wirePods[i] = wire(t, pods[i], &corev1.Pod{})
	}
	s.Wire = map[string]func(i int) []byte{
		"/api/v1/nodes": func(i int) []byte { return number(wireNode, i) },
		"/api/v1/pods":  func(i int) []byte { return number(wirePods[i%len(pods)], i/len(pods)) },
	}
	for path, objects := range rest {
		s.Add(t, path, objects...)
	}
	return s
}

// recorded reads the objects in all YAML files of a folder.
func recorded(t testing.TB, folder string) []object {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no YAML files in %s (error %v)", folder, err)
	}
	var all []object
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			Items []object `json:"items"`
		}
		if err := yaml.Unmarshal(data, &list); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		all = append(all, list.Items...)
	}
	return all
}

// pathOf returns the path at which an API server lists objects like o.
func pathOf(o object) string {
	version, _ := o["apiVersion"].(string)
	kind, _ := o["kind"].(string)
	about, _ := o["metadata"].(object)
	for plural, k := range kinds {
		if k != kind {
			continue
		}
		root := "/apis/" + version + "/"
		if !strings.Contains(version, "/") {
			root = "/api/" + version + "/"
		}
		if kind == "ConfigMap" || kind == "ResourceQuota" || kind == "Secret" {
			return fmt.Sprintf("%snamespaces/%v/%s", root, about["namespace"], plural)
		}
		return root + plural
	}
	return "/unknown/" + kind
}

func encoded(t testing.TB, o any) []byte {
	t.Helper()
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(data, []byte(`"gpu-1"`), []byte(`"node-aaaaa"`))
}

// wire returns an object in protobuf, as kube-apiserver returns it to clients that accept it.
func wire(t testing.TB, data []byte, o interface{ Marshal() ([]byte, error) }) []byte {
	t.Helper()
	if err := json.Unmarshal(data, o); err != nil {
		t.Fatal(err)
	}
	out, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// fillNode adds what NFD, the kubelet and the API server write to a node.
func fillNode(o object) object {
	about, _ := o["metadata"].(object)
	labels, _ := about["labels"].(object)
	fields := object{}
	for i := range 90 {
		key := fmt.Sprintf("feature.node.kubernetes.io/cpu-cpuid.FEATURE%02d", i)
		labels[key], fields["f:"+key] = "true", object{}
	}
	about["annotations"] = object{
		"nfd.node.kubernetes.io/feature-labels": strings.Repeat("cpu-cpuid.FEATURE,", 90),
		"csi.volume.kubernetes.io/nodeid":       `{"ebs.csi":"i-0"}`,
	}
	kept, _ := about["managedFields"].([]any)
	about["managedFields"] = append(kept, written("nfd-master", object{"f:metadata": object{"f:labels": fields}}))
	status, _ := o["status"].(object)
	var images []any
	for i := range 50 {
		images = append(images, object{"sizeBytes": 123456789, "names": []any{
			fmt.Sprintf("registry.example.com/team/image-%02d@sha256:%064d", i, i),
			fmt.Sprintf("registry.example.com/team/image-%02d:v1.2.3", i),
		}})
	}
	status["images"] = images
	status["nodeInfo"] = object{
		"architecture": "amd64", "osImage": "Ubuntu 22.04.5 LTS", "kernelVersion": "5.15.0-130-generic",
		"containerRuntimeVersion": "containerd://2.1.4", "kubeletVersion": "v1.36.3",
		"machineID": strings.Repeat("0", 32),
	}
	return o
}

// written returns a managedFields entry which says that the manager wrote the fields.
func written(manager string, fields object) object {
	return object{
		"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields,
	}
}

// fillPod pads a pod to a realistic size with managedFields, volumes, environment variables and mounts.
func fillPod(o object) object {
	about, _ := o["metadata"].(object)
	fields := object{}
	for i := range 60 {
		fields[fmt.Sprintf(`f:env%02d`, i)] = object{".": object{}, "f:name": object{}, "f:value": object{}}
	}
	about["managedFields"] = []any{written("kube-controller-manager", fields)}
	spec, _ := o["spec"].(object)
	spec["volumes"] = []any{
		object{"name": "run-nvidia", "hostPath": object{"path": "/run/nvidia", "type": "Directory"}},
		object{"name": "kube-api-access-aaaaa", "projected": object{
			"sources": []any{object{"serviceAccountToken": object{"path": "token"}}},
		}},
	}
	containers, _ := spec["containers"].([]any)
	for _, c := range containers {
		container, _ := c.(object)
		var env, mounts []any
		for i := range 20 {
			env = append(env, object{"name": fmt.Sprintf("SETTING_%02d", i), "value": "a value of some length"})
			mounts = append(mounts, object{"name": "run-nvidia", "mountPath": fmt.Sprintf("/run/nvidia/%02d", i)})
		}
		container["env"], container["volumeMounts"] = env, mounts
	}
	return o
}
