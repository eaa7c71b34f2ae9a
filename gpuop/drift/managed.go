package drift

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// An Owner is the last writer of a field by metadata.managedFields. Its zero value is unknown.
type Owner struct {
	// Manager is the field manager's name: helm, gpu-operator, kubectl-edit.
	Manager string
	// Operation is Update or Apply.
	Operation string
	// Time is when the manager wrote last; zero where the API server does not say.
	Time time.Time
}

// String names the owner in a sentence.
func (o Owner) String() string {
	if o.Manager == "" {
		return "unknown"
	}
	s := report.OneLine(o.Manager) + " (" + string(o.Operation) + ")"
	if !o.Time.IsZero() {
		s += " on " + o.Time.UTC().Format("2006-01-02 15:04:05") + " UTC"
	}
	return s
}

// seen returns a field of the owner as evidence, with its value as a sentence shows it.
func (o Owner) seen(object, field, value string) report.Evidence {
	return report.Seen("field", object, "%s: %s, written by %s", field, value, o).At(o.Time)
}

// ownerIn is the writer of an entry.
func ownerIn(e metav1.ManagedFieldsEntry) Owner {
	o := Owner{Manager: e.Manager, Operation: string(e.Operation)}
	if e.Time != nil {
		o.Time = e.Time.Time
	}
	return o
}

// owned ends a sentence with the owner of a field with this value.
func owned(entries []metav1.ManagedFieldsEntry, o Owner, value any) string {
	switch {
	case o.Manager != "":
		return "; owner: " + o.String()
	case len(entries) == 0:
		return "; owner: unknown, as the object has no managedFields (kubectl get --show-managed-fields keeps them)"
	case empty(value):
		return "" // what is not there has no owner
	}
	return "; owner: none that the API server knows"
}

// deploys reports whether a field manager is one of what installs a chart. Helm's own name is written
// in two ways.
func deploys(manager string) bool { return slices.Contains(deployers, strings.ToLower(manager)) }

// deployers are the field managers of what installs a chart: their writes are the release's.
// kubectl's names are none of them, since they apply what is typed.
var deployers = []string{"helm", "helm-controller", "argocd-controller", "argocd-application-controller", "kustomize-controller"}

// operators are the field managers of what makes and counts the DaemonSets.
var operators = []string{"gpu-operator", "kube-controller-manager"}

// a set is the content of a FieldsV1: names as f:NAME, elements of a list as k:{…} or v:…
type set map[string]any

func fieldsOf(entry metav1.ManagedFieldsEntry) set {
	var s set
	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &s) != nil {
		return nil
	}
	return s
}

// key is the element of a path that names a field; elements of lists are given as they stand.
func key(name string) string {
	if strings.HasPrefix(name, "k:{") || strings.HasPrefix(name, "v:") {
		return name
	}
	return "f:" + name
}

// depth returns how far the set owns the path: its length where it owns the field or what is below it,
// less where it owns a whole group or list that holds the field, 0 where it does not own it.
func (s set) depth(path []string) int {
	at := s
	for i, name := range path {
		inner, found := at[key(name)].(map[string]any)
		if !found {
			return 0
		}
		if len(inner) == 0 {
			return i + 1 // the whole of it is one value
		}
		at = inner
	}
	return len(path)
}

// OwnerOf returns who wrote the field at the path last. Where several did, the one that names it most
// closely, then the latest.
func OwnerOf(entries []metav1.ManagedFieldsEntry, path ...string) Owner {
	var best Owner
	deepest := 0
	for _, e := range entries {
		d := fieldsOf(e).depth(path)
		o := ownerIn(e)
		if d > deepest || d > 0 && d == deepest && o.Time.After(best.Time) {
			best, deepest = o, d
		}
	}
	return best
}

// An edit is a field below spec that a manager owns.
type edit struct {
	path  []string
	owner Owner
}

// name writes the edit's path as kubectl explain does, with elements of lists in brackets.
func (e edit) name() string {
	var out strings.Builder
	for _, p := range e.path {
		if rest, isElement := strings.CutPrefix(p, "k:"); isElement {
			var names map[string]any
			_ = json.Unmarshal([]byte(rest), &names)
			var words []string
			for _, k := range slices.Sorted(maps.Keys(names)) {
				words = append(words, fmt.Sprint(names[k]))
			}
			out.WriteString("[" + strings.Join(words, ",") + "]")
			continue
		}
		if out.Len() > 0 {
			out.WriteByte('.')
		}
		out.WriteString(p)
	}
	return report.OneLine(out.String())
}

// edits returns the fields below spec that others than the operators own, the deepest of each, in the order of
// their names.
func edits(entries []metav1.ManagedFieldsEntry) []edit {
	var out []edit
	for _, e := range entries {
		if e.Subresource != "" || slices.Contains(operators, e.Manager) {
			continue
		}
		o := ownerIn(e)
		spec, _ := fieldsOf(e)["f:spec"].(map[string]any)
		walk(spec, []string{"spec"}, func(path []string) { out = append(out, edit{path, o}) })
	}
	return out
}

func walk(s set, path []string, visit func([]string)) {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if name == "." || strings.HasPrefix(name, "v:") {
			continue
		}
		at := append(path[:len(path):len(path)], strings.TrimPrefix(name, "f:"))
		inner, _ := s[name].(map[string]any)
		if _, element := inner["."]; element && len(inner) == 1 || len(inner) == 0 {
			visit(at)
			continue
		}
		walk(inner, at, visit)
	}
}
