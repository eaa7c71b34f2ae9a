package lint_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/charts"
)

// place is one entry of a values file.
type place struct {
	parent     *yaml.Node // the mapping that contains the entry
	at         int        // the index of key in parent
	outer      *yaml.Node // the mapping around parent, or nil at the root
	path       chart.Path
	key, value *yaml.Node
}

func places(n, outer *yaml.Node, path chart.Path, out []place) []place {
	if n.Kind != yaml.MappingNode {
		return out
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		p := append(path[:len(path):len(path)], n.Content[i].Value)
		out = append(out, place{n, i, outer, p, n.Content[i], n.Content[i+1]})
		out = places(n.Content[i+1], n, p, out)
	}
	return out
}

// freeBelow reports whether the path is below a map that accepts any name.
func freeBelow(path chart.Path) bool {
	for _, name := range path[:len(path)-1] {
		switch name {
		case "annotations", "labels", "nodeSelector", "featureGates", "additionalLabels":
			return true
		}
	}
	return false
}

// mutate changes the entry in one of four ways. It reports false if the entry cannot be changed in this way.
func mutate(r *rand.Rand, p place, kind int) bool {
	name := p.key.Value
	if freeBelow(p.path) || kind < 2 && len(name) < 3 {
		return false
	}
	switch kind {
	case 0: // remove a letter
		i := r.IntN(len(name))
		p.key.Value = name[:i] + name[i+1:]
	case 1: // replace a letter or swap two
		i := 1 + r.IntN(len(name)-1)
		letters := []byte(name)
		if r.IntN(2) == 0 {
			letters[i], letters[i-1] = letters[i-1], letters[i]
		} else {
			letters[i] = "xqzj"[r.IntN(4)]
		}
		p.key.Value = string(letters)
	case 2: // move the entry one level up
		if p.outer == nil || slices.ContainsFunc(p.outer.Content, func(n *yaml.Node) bool { return n.Value == name }) {
			return false
		}
		p.parent.Content = slices.Delete(p.parent.Content, p.at, p.at+2)
		p.outer.Content = append(p.outer.Content, p.key, p.value)
	default: // change the type of the value
		if p.value.Tag == "!!null" {
			return false
		}
		isMapping := p.value.Kind == yaml.MappingNode
		x := &yaml.Node{Kind: yaml.ScalarNode, Value: "x"}
		*p.value = yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{x, x}}
		if isMapping {
			*p.value = yaml.Node{Kind: yaml.ScalarNode, Value: "text", Style: yaml.DoubleQuotedStyle}
		}
	}
	return kind != 1 || p.key.Value != name
}

func TestMutationsOfRealValuesAreReported(t *testing.T) {
	dir := charts.Data(t)
	releases := chart.Load().Versions()
	releases = releases[len(releases)-3:]
	r := rand.New(rand.NewPCG(7, 11))
	wanted := 400
	if charts.All() {
		wanted = 2000
	}
	done, reported, placed := 0, 0, 0
	kinds := [4]int{}
	for attempt := 0; done < wanted && attempt < 20*wanted; attempt++ {
		v := releases[r.IntN(len(releases))]
		data := read(t, dir, v.String(), "values.yaml")
		var doc yaml.Node
		if err := yaml.Unmarshal(data, &doc); err != nil {
			t.Fatal(err)
		}
		all := places(doc.Content[0], nil, nil, nil)
		p := all[r.IntN(len(all))]
		kind := attempt % 4
		if !mutate(r, p, kind) {
			continue
		}
		var out bytes.Buffer
		if err := yaml.NewEncoder(&out).Encode(&doc); err != nil {
			t.Fatal(err)
		}
		path := slices.Clone(p.path)
		path[len(path)-1] = p.key.Value
		if kind == 2 {
			path = slices.Delete(path, len(path)-2, len(path)-1)
		}
		if status := chart.Load().Lookup(v, path).Status; kind < 3 && (status == chart.Known || status == chart.Group) {
			continue // the changed name is another valid key
		}
		lines := linesOf(t, out.Bytes(), path)
		done++
		kinds[kind]++
		got := judge(t, lint.Options{Version: v.String(), Files: []lint.Input{{Name: "values.yaml", Data: out.Bytes()}}})
		if !got.Report.AtLeast(check.Warning) {
			if kind != 3 || done-reported < 60 {
				t.Logf("mutation not reported: %s, kind %d: %s", v, kind, path)
			}
			continue
		}
		reported++
		right := false
		for _, f := range got.Report.Findings {
			right = right || lines[f.Line] || f.Severity >= check.Warning && (f.Subject == path.String() || strings.HasPrefix(f.Subject, path.String()+"."))
		}
		if right {
			placed++
		} else {
			t.Logf("mutation reported in the wrong place: %s, kind %d, %s: %v", v, kind, path, brief(got.Report))
		}
	}
	t.Logf("%d mutations %v: %d reported, %d at the right place", done, kinds, reported, placed)
	if done < wanted || reported < done*99/100 || placed < done*95/100 {
		t.Errorf("mutations = %d, reported = %d, at the right place = %d; want %d, at least %d and at least %d", done, reported, placed, wanted, done*99/100, done*95/100)
	}
}

// linesOf returns the line of the key at the path, and the lines of the entries directly below it.
func linesOf(t *testing.T, data []byte, path chart.Path) map[int]bool {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	out := map[int]bool{}
	for _, p := range places(doc.Content[0], nil, nil, nil) {
		if slices.Equal(p.path, path) {
			for _, n := range append(p.value.Content, p.key) {
				out[n.Line] = true
			}
		}
	}
	return out
}
