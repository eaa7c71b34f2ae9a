package cluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
)

// maxBytes limits the total size of a folder's files. The pods of 5,000 nodes are about 200 MiB of YAML.
const maxBytes = 512 << 20

// maxLog is how many bytes are kept from the end of a log, where the error is.
const maxLog = 256 << 10

// Folder is the path of a folder or file with gathered objects of a cluster: the output of NVIDIA's must-gather script,
// or files written by kubectl get -o yaml or json.
type Folder string

// Read reads the kinds from the files. A kind without a file, or with an invalid file, is listed in Missing. A kind
// with an incomplete list, such as the pods of one namespace, is in both the state and Missing. State.At is the newest
// time in the files or, if they have none, their newest modification time. An invalid file is an error only if its name
// does not say which kind it contains. Errors wrap ErrInput or are ctx.Err().
func (f Folder) Read(ctx context.Context, kinds ...Kind) (*State, error) {
	g := &gathering{
		State: &State{Title: string(f), DriverLogs: map[string]string{}}, found: map[Kind]bool{},
		missing: map[Kind]Missing{}, seen: map[string]bool{}, namespaces: map[Kind]map[string]bool{},
	}
	root, err := filepath.EvalSymlinks(string(f))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInput, f, err)
	}
	err = filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", ErrInput, err)
		case ctx.Err() != nil:
			return ctx.Err()
		case !entry.Type().IsRegular():
			return nil
		}
		name, err := filepath.Rel(root, at)
		if err != nil || name == "." {
			name = filepath.Base(at)
		}
		if err := g.file(at, name); err != nil {
			return fmt.Errorf("%w: %w", ErrInput, err)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case len(g.found) == 0 && len(g.missing) == 0:
		return nil, fmt.Errorf("%w: %s contains no Kubernetes objects: "+
			"expected the output of NVIDIA's must-gather.sh, or files of kubectl get -o yaml", ErrInput, f)
	}
	g.finish(kinds)
	return g.State, nil
}

// gathering is the state of one call of Read.
type gathering struct {
	*State
	bytes   int64 // total size of the files read so far
	found   map[Kind]bool
	missing map[Kind]Missing // kinds with invalid files, and incomplete lists
	seen    map[string]bool  // the objects read so far, because two files may contain the same one
	// namespaces are those of the objects of each kind.
	namespaces map[Kind]map[string]bool
	written    time.Time // newest modification time of the files
	// events are the files with the output of kubectl describe for pods and DaemonSets.
	events []described
}

// described is the output of kubectl describe for objects of a kind, such as "Pod".
type described struct{ kind, text string }

var (
	// driverLog matches the file names of driver pods' logs in must-gather.sh's folder. The log from before a
	// container's restart ends in .previous.log.
	driverLog = regexp.MustCompile(`^gpu_operand_pod_(.*driver.*?)(?:\.previous)?\.log$`)
	// dated matches the times of past events in YAML and JSON, and in the output of kubectl describe. The newest one is
	// close to the time of gathering.
	dated = regexp.MustCompile(`\b(?:creationTimestamp|lastTransitionTime|lastHeartbeatTime|lastUpdateTime|startTime|` +
		`startedAt|finishedAt|time)["']?:\s*["']?([^"'\s,}]+)|\b(\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4})\b`)
)

// file reads a file. It ignores files whose names must-gather.sh and kubectl do not use.
func (g *gathering) file(path, name string) error {
	base, _, _ := strings.Cut(strings.ToLower(filepath.Base(name)), ".")
	extension, log := filepath.Ext(name), driverLog.FindStringSubmatch(filepath.Base(name))
	if !slices.Contains([]string{".yaml", ".yml", ".json", ".descr", ".missing"}, extension) && log == nil {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if g.bytes += info.Size(); g.bytes > maxBytes {
		return fmt.Errorf("%s: the folder exceeds %d MiB", name, maxBytes>>20)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if info.ModTime().After(g.written) {
		g.written = info.ModTime()
	}
	kind := kindIn(base)
	isDescribed := extension == ".descr" // must-gather.sh writes one for all nodes, and one for each DaemonSet and pod
	switch {
	case log != nil:
		g.DriverLogs[log[1]] += string(data[max(0, len(data)-maxLog):])
		return nil
	case isDescribed && kind == Nodes:
		g.describedNodes(name, string(data))
	case isDescribed && strings.Contains(base, "_ds"):
		g.events = append(g.events, described{"DaemonSet", string(data)})
	case isDescribed:
		g.events = append(g.events, described{"Pod", string(data)})
	case extension != ".missing": // must-gather.sh leaves an empty file if it found no objects
		err = g.documents(data)
	}
	for _, m := range dated.FindAllSubmatch(data, -1) {
		for i, layout := range []string{time.RFC3339, time.RFC1123Z} {
			if t, err := time.Parse(layout, string(m[i+1])); err == nil && t.After(g.At) {
				g.At = t
			}
		}
	}
	if err != nil {
		err = fmt.Errorf("%s: %s", name, strings.TrimPrefix(firstLine(err), "error converting YAML to JSON: yaml: "))
	}
	switch {
	case kind == "":
		return err
	case err != nil:
		g.missing[kind] = Missing{kind, Failed, err.Error()}
	case !isDescribed && len(bytes.TrimSpace(data)) > 0, extension == ".missing":
		g.found[kind] = true
	}
	return nil
}

// documents reads the objects in a YAML or JSON file.
func (g *gathering) documents(data []byte) error {
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		var document runtime.RawExtension
		switch err := decoder.Decode(&document); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		var about struct {
			Kind          string
			ServerVersion struct{ GitVersion string }
		}
		if json.Unmarshal(document.Raw, &about) != nil || about.Kind == "" {
			g.Version = cmp.Or(about.ServerVersion.GitVersion, g.Version) // the output of kubectl version -o yaml
			continue
		}
		object, _, err := unstructured.UnstructuredJSONScheme.Decode(document.Raw, nil, nil)
		if err != nil {
			return err
		}
		switch o := object.(type) {
		case *unstructured.Unstructured:
			err = g.take(o)
		case *unstructured.UnstructuredList:
			o.SetKind(strings.TrimSuffix(o.GetKind(), "List"))
			if k, known := kindOf(&unstructured.Unstructured{Object: o.Object}); known {
				g.found[k] = true
			}
			for i := range o.Items {
				err = cmp.Or(err, g.take(&o.Items[i]))
			}
		}
		if err != nil {
			return err
		}
	}
}

// take adds an object to the list of its kind. Unknown kinds and duplicates are skipped.
func (g *gathering) take(u *unstructured.Unstructured) error {
	k, known := kindOf(u)
	key := string(k) + " " + u.GetNamespace() + "/" + u.GetName()
	if !known || g.seen[key] {
		return nil
	}
	g.found[k], g.seen[key] = true, true
	if g.namespaces[k] == nil {
		g.namespaces[k] = map[string]bool{}
	}
	g.namespaces[k][u.GetNamespace()] = true
	object, err := builtIns.New(u.GroupVersionKind())
	if err != nil {
		return g.add(k, u)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, object); err != nil {
		return fmt.Errorf("%s: %w", u.GetKind(), err)
	}
	return g.add(k, object)
}

var (
	describedCondition = regexp.MustCompile(`(?m)^\s+([A-Z]\w+)\s+(True|False|Unknown)` +
		`\s+(\w{3}, .*? [+-]\d{4})\s+(\w{3}, .*? [+-]\d{4})\s+(\S+)`)
	describedCordon = regexp.MustCompile(`(?m)^Unschedulable:\s+true`)
	describedEvents = regexp.MustCompile(`(?ms)^Events:\s*$(.*)`)
	// describedEvent matches a warning: reason, days, age, source and message.
	describedEvent = regexp.MustCompile(`(?m)^\s+Warning\s+(\S+)\s+(?:(\d+)d)?((?:\d+[hms])*)` +
		`(?:\s+\(x\d+ over [^)]*\))?\s+(\S+)\s+(.*)$`)
)

// describedNodes reads the output of kubectl describe nodes. must-gather.sh writes nodes only in this format.
func (g *gathering) describedNodes(name, text string) {
	g.found[Nodes] = true
	g.missing[Nodes] = Missing{Nodes, Partial, name + " lists only nodes with nvidia.com/gpu.present=true"}
	for i, text := range strings.Split("\n"+text, "\nName:")[1:] {
		n, ok := node.Described([]byte("Name:" + text))
		if !ok {
			detail := fmt.Sprintf("%s: the description of node %d is incomplete", name, i+1)
			g.missing[Nodes] = Missing{Nodes, Partial, detail}
			continue
		}
		if g.seen[string(Nodes)+" /"+n.Name] {
			continue
		}
		g.seen[string(Nodes)+" /"+n.Name] = true
		n.Spec.Unschedulable = describedCordon.MatchString(text)
		for _, m := range describedCondition.FindAllStringSubmatch(text, -1) {
			c := corev1.NodeCondition{
				Type: corev1.NodeConditionType(m[1]), Status: corev1.ConditionStatus(m[2]), Reason: m[5],
			}
			c.LastHeartbeatTime.Time, _ = time.Parse(time.RFC1123Z, m[3])
			c.LastTransitionTime.Time, _ = time.Parse(time.RFC1123Z, m[4])
			n.Status.Conditions = append(n.Status.Conditions, c)
		}
		g.Nodes = append(g.Nodes, *n)
	}
}

// describedEvents adds the warnings in the output of kubectl describe. must-gather.sh writes the operands' events only
// in this format. It skips a warning if the state has one with the same object name and reason.
func (g *gathering) describedEvents(kind, text string) {
	name, _, _ := strings.Cut(text, "\n")
	name = strings.TrimSpace(name)
	for n, m := range describedEvent.FindAllStringSubmatch(describedEvents.FindString(text), -1) {
		days, _ := strconv.Atoi(m[2])
		age, err := time.ParseDuration(m[3])
		if err != nil && m[2] == "" {
			continue // the age is unknown
		}
		e := corev1.Event{
			InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: g.Namespace, Name: name},
			Type:           corev1.EventTypeWarning, Reason: m[1], Message: m[5],
			Source: corev1.EventSource{Component: m[4]},
		}
		e.Namespace, e.Name = g.Namespace, fmt.Sprintf("%s.%d", name, n)
		e.LastTimestamp.Time = g.At.Add(-age).AddDate(0, 0, -days)
		isKnown := func(known corev1.Event) bool {
			return known.InvolvedObject.Name == name && known.Reason == e.Reason
		}
		if !slices.ContainsFunc(g.State.Events, isKnown) {
			g.State.Events = append(g.State.Events, e)
			g.found[Events] = true
		}
	}
}

// finish sets the time and the namespace, drops pods that no check needs, and adds the described events. It drops kinds
// that were not requested, and records missing ones.
func (g *gathering) finish(kinds []Kind) {
	if g.At.IsZero() {
		g.At = g.written
	}
	g.findNamespace()
	for k, name := range map[Kind]string{Pods: "pods", DaemonSets: "DaemonSets"} {
		// every cluster has objects in kube-system too
		if all := slices.Collect(maps.Keys(g.namespaces[k])); len(all) == 1 && g.missing[k].Why != Failed {
			g.missing[k] = Missing{k, Partial, "the folder contains only the " + name + " of the namespace " + all[0]}
			if k == Pods && g.Namespace == "" && g.found[ClusterPolicies] {
				g.Namespace = all[0]
			}
		}
	}
	g.keepPods()
	g.Namespace = cmp.Or(g.Namespace, defaultNamespace)
	for _, d := range g.events {
		for _, text := range strings.Split("\n"+d.text, "\nName:")[1:] {
			g.describedEvents(d.kind, text)
		}
	}
	for k := range lists {
		list, why := g.list(k), g.missing[k]
		if !g.found[k] && why.Why == "" {
			why = Missing{k, Unread, "the folder contains no " + string(k)}
		}
		switch {
		case !slices.Contains(kinds, k) || why.Why == Failed:
			list.SetZero()
		case g.found[k] && list.IsNil():
			list.Grow(1) // makes the list empty
		}
		if slices.Contains(kinds, k) && why.Why != "" {
			g.Missing = append(g.Missing, why)
		}
	}
	slices.SortFunc(g.Missing, func(a, b Missing) int { return cmp.Compare(a.Kind, b.Kind) })
}
