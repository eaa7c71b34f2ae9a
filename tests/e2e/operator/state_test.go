//go:build e2e

package operator

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

type object map[string]any

// at returns the value at a path of keys, or nil.
func (o object) at(path ...string) any {
	var v any = map[string]any(o)
	for _, key := range path {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

func (o object) text(path ...string) string {
	s, _ := o.at(path...).(string)
	return s
}

func (o object) key() string {
	return o.text("kind") + " " + o.text("metadata", "namespace") + "/" + o.text("metadata", "name")
}

// A state is a file in the folder states.
type state struct {
	name string
	// About describes the cluster, and From names the sources of its facts.
	About, From string
	// Base means that the cluster also has the objects of base.yaml and of the chart. Otherwise, it has only the
	// objects of the state's file.
	Base bool
	// Pods lists the pods of DaemonSets that are not running and ready.
	Pods []podState
	// PodsSince is the time since the pods were started.
	PodsSince time.Duration `yaml:"podsSince"`
	// LabelsSince is the time since the node labels were written.
	LabelsSince time.Duration `yaml:"labelsSince"`
	// User is the user who runs gpuop; by default the administrator.
	User string
	// Expect maps a command line to all its errors and warnings. Each is "severity node subject", with "-" as the node
	// of findings about the cluster. A trailing asterisk matches any suffix. The findings were written by hand.
	Expect map[string][]string
	// First maps a command line to a part of the first line of its text output, which must name the cause.
	First map[string]string

	objects []object
}

// A podState is the status that a kubelet reports for the pod of a DaemonSet on a node.
type podState struct {
	DaemonSet, Node string
	// Container is not ready: it waits, for Reason and with Message, or runs if Reason is empty. Init means that it is
	// an init container.
	Container, Reason, Message string
	Init                       bool
	Restarts                   int
}

// load reads a state. If Base is set, the objects in its file are patches to those in base.yaml.
func load(t *testing.T, name string) *state {
	t.Helper()
	docs := documents(t, filepath.Join("states", name+".yaml"))
	s := &state{name: name}
	head, err := yaml.Marshal(docs[0])
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(head))
	decoder.KnownFields(true)
	if err := decoder.Decode(s); err != nil {
		t.Fatalf("states/%s.yaml: %v", name, err)
	}
	if s.Base {
		s.objects = documents(t, filepath.Join("states", "base.yaml"))
	}
	for _, patch := range docs[1:] {
		i := slices.IndexFunc(s.objects, func(o object) bool { return o.key() == patch.key() })
		switch {
		case patch["$delete"] == true && i < 0:
			t.Fatalf("states/%s.yaml deletes %s, which is not in base.yaml", name, patch.key())
		case patch["$delete"] == true:
			s.objects = slices.Delete(s.objects, i, i+1)
		case i < 0:
			s.objects = append(s.objects, patch)
		default:
			s.objects[i] = merged(map[string]any(s.objects[i]), map[string]any(patch)).(map[string]any)
		}
	}
	return s
}

// merged applies a JSON Merge Patch (RFC 7396).
func merged(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	t, ok := target.(map[string]any)
	if !ok {
		t = map[string]any{}
	}
	t = maps.Clone(t)
	for k, v := range p {
		if v == nil {
			delete(t, k)
		} else {
			t[k] = merged(t[k], v)
		}
	}
	return t
}

func documents(t *testing.T, path string) []object {
	t.Helper()
	return parse(t, path, []byte(folder.Read(t, path)))
}

func parse(t *testing.T, path string, data []byte) []object {
	t.Helper()
	var all []object
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var o map[string]any
		switch err := decoder.Decode(&o); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatalf("%s: %v", path, err)
		case len(o) > 0:
			all = append(all, o)
		}
	}
}

// stateNames returns the names of the files in states, sorted and without "base".
func stateNames(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, f := range folder.Files(t, "states", "*.yaml") {
		if name := strings.TrimSuffix(filepath.Base(f), ".yaml"); name != "base" {
			names = append(names, name)
		}
	}
	return names
}
