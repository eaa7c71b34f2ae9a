package config

import (
	"strings"
	"testing"
)

// A setting without effect leads to a notice, and no other setting does.
func TestSettingsWithoutEffectHaveNotice(t *testing.T) {
	files := map[string]string{"/c.yaml": "version: 1"}
	for _, o := range table(&Config{}) {
		value, with := example(&o)
		c := mustParse(t, world{env: map[string]string{o.Variables()[0]: value}, files: files}, with...)
		spoken := false
		for _, n := range c.Notices {
			spoken = spoken || strings.HasPrefix(n, o.Variables()[0]+" ") || strings.HasPrefix(n, "--"+o.Name+" ")
		}
		if want := o.unused != ""; spoken != want {
			t.Errorf("%s: notice = %t, want %t: %q", o.ID(), spoken, want, c.Notices)
		}
	}
}

func TestHash(t *testing.T) {
	files := map[string]string{
		"/a.yaml": "version: 1\nmetrics: {fields: [{name: A, prometheusType: gauge}]}\n",
		"/b.yaml": "version: 1\nmetrics: {fields: [{name: A, prometheusType: counter}]}\n",
		"/c.yaml": "version: 1\ncollection: {watchGroups: [{name: g, interval: 1s, fields: [A]}]}\n",
		"/d.yaml": "version: 1\ncollection: {watchGroups: [{name: g, interval: 2s, fields: [A]}]}\n",
	}
	seen := map[uint64]string{}
	note := func(what string, h uint64) {
		if other, dup := seen[h]; dup {
			t.Errorf("%s and %s have the same hash, want different ones", what, other)
		}
		if float := float64(h); uint64(float) != h {
			t.Errorf("%s: hash = %d, want one that a float64 can represent", what, h)
		}
		seen[h] = what
	}
	w := world{files: files}
	plain := mustParse(t, w)
	note("the default", plain.Hash())
	note("a file", plain.Hash([]byte("x")))
	note("two files", plain.Hash([]byte("x"), []byte("y")))
	note("other files", plain.Hash([]byte("xy"), nil))
	note("an interval", mustParse(t, w, "-c=1000").Hash())
	for name := range files {
		c := mustParse(t, w, "--config-file="+name)
		c.Path = "" // the file's content matters, not its path
		note(name, c.Hash())
	}
	// Nodes with the same configuration may differ in these settings only.
	node := func(name string, more ...string) uint64 {
		w := world{files: files, env: map[string]string{"NODE_NAME": name}}
		return mustParse(t, w, more...).Hash([]byte("x"))
	}
	one := node("node-1", "--address=10.0.0.1:9400", "-r=10.0.0.1:5555")
	if two := node("node-2", "--address=10.0.0.2:9400", "-r=10.0.0.2:5555"); one != two {
		t.Errorf("hashes of two nodes with the same configuration = %d and %d, want equal ones", one, two)
	}
	if two := node("node-2", "--address=10.0.0.2:9400", "-r=10.0.0.2:5555", "-k=true"); one == two {
		t.Errorf("hash of a node with a different flag = %d, want a different one", two)
	}
	if a, b := plain.Hash([]byte("x")), mustParse(t, w, "-c=30000").Hash([]byte("x")); a != b {
		t.Errorf("hashes without and with a default flag = %d and %d, want equal ones", a, b)
	}
}
