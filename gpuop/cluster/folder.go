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
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
)

// maxBytes limits the total size of a folder's files. The pods of 5,000 nodes are about 200 MiB of YAML.
const maxBytes = 512 << 20

// maxLog is how many bytes are kept from the end of a log, where the error is.
const maxLog = 256 << 10

// Folder reads gathered objects of a cluster: the output of NVIDIA's must-gather script, or files written by kubectl
// get -o yaml or json.
type Folder struct {
	path, root string // root is path with symbolic links resolved
	// ManagedFields keeps managedFields and kubectl's last-applied annotation, except of nodes, pods, events and CRDs.
	ManagedFields bool
}

// OpenFolder returns a Folder for a folder or a single file. Its files are read by Read. Errors wrap ErrInput.
func OpenFolder(path string) (*Folder, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	root, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	return &Folder{path: path, root: root}, nil
}

// Read reads the kinds from the files. A kind without a file, or with an invalid file, is listed in Missing. A kind
// with an incomplete list, such as the pods of one namespace, is in both the state and Missing. State.At is the newest
// time in the objects or, if they have none, the newest modification time of the files. An invalid file is an error
// only if its name does not say which kind it contains. Errors wrap ErrInput or are ctx.Err().
func (f *Folder) Read(ctx context.Context, kinds ...Kind) (*State, error) {
	g := &gathering{
		state: &State{Title: f.path, DriverLogs: map[string]string{}}, trim: newTrimmer(f.ManagedFields),
		files: map[Kind]string{}, partial: map[Kind]string{},
		broken: map[Kind]string{}, seen: map[string]bool{},
	}
	if err := g.walk(ctx, f.root); err != nil {
		return nil, err
	}
	if len(g.files) == 0 && len(g.broken) == 0 {
		return nil, fmt.Errorf("%w: %s contains no Kubernetes objects: "+
			"expected the output of NVIDIA's must-gather.sh, or files of kubectl get -o yaml", ErrInput, f.path)
	}
	return g.finish(kinds), nil
}

// gathering is the state of one call of Read.
type gathering struct {
	bytes   int // total size of the files read so far
	state   *State
	trim    *trimmer
	files   map[Kind]string // a file with each kind, or "" if no file has it
	partial map[Kind]string // why the list of a kind is incomplete
	broken  map[Kind]string // parse error of an invalid file, by the kind that its name indicates
	seen    map[string]bool // the objects read so far, because two files may contain the same one
	newest  time.Time       // newest time in the objects
	// described are the warnings in the output of kubectl describe.
	described []describedWarning
	written   time.Time // newest modification time of the files
}

// walk reads the file at root, or the files below it in lexical order. It skips symbolic links and files that wanted
// rejects.
func (g *gathering) walk(ctx context.Context, root string) error {
	return filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", ErrInput, err)
		case ctx.Err() != nil:
			return ctx.Err()
		case !entry.Type().IsRegular() || !wanted(at):
			return nil
		}
		f, err := os.Open(at)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrInput, err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrInput, err)
		}
		name, err := filepath.Rel(root, at)
		if err != nil || name == "." {
			name = filepath.Base(at)
		}
		return g.file(name, f, info.ModTime())
	})
}

// driverLog matches the file names of driver pods' logs in must-gather.sh's folder. The log from before a container's
// restart ends in .previous.log.
var driverLog = regexp.MustCompile(`^gpu_operand_pod_(.*driver.*?)(?:\.previous)?\.log$`)

func wanted(name string) bool {
	switch filepath.Ext(name) {
	case ".log":
		return driverLog.MatchString(filepath.Base(name))
	case ".yaml", ".yml", ".json", ".descr", ".missing":
		return true
	}
	return false
}

func (g *gathering) file(name string, in io.Reader, written time.Time) error {
	data, err := io.ReadAll(io.LimitReader(in, int64(maxBytes-g.bytes+1)))
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInput, name, err)
	}
	g.bytes += len(data)
	if g.bytes > maxBytes {
		return fmt.Errorf("%w: %s: the folder exceeds %d MiB", ErrInput, name, maxBytes>>20)
	}
	if written.After(g.written) {
		g.written = written
	}
	base, _, _ := strings.Cut(strings.ToLower(filepath.Base(name)), ".")
	kind, known := kindIn(base)
	switch filepath.Ext(name) {
	case ".missing": // must-gather writes this file if a kind has no objects
		if known && g.files[kind] == "" {
			g.files[kind] = name
		}
		return nil
	case ".log":
		pod := driverLog.FindStringSubmatch(filepath.Base(name))[1]
		g.state.DriverLogs[pod] += string(data[max(0, len(data)-maxLog):])
		return nil
	case ".descr":
		switch { // must-gather.sh writes one file for all nodes, and one for each DaemonSet and pod
		case kind == Nodes:
			g.describedNodes(name, data)
		case strings.Contains(base, "_ds"):
			g.describedEvents(name, "DaemonSet", data)
		case strings.Contains(base, "_pod"):
			g.describedEvents(name, "Pod", data)
		}
		return nil
	}
	if known && g.files[kind] == "" && len(bytes.TrimSpace(data)) > 0 {
		g.files[kind] = name
	}
	if err := g.documents(name, data); err != nil {
		if !known {
			return fmt.Errorf("%w: %w", ErrInput, err)
		}
		g.broken[kind] = err.Error()
	}
	return nil
}

// documents reads the objects in a YAML or JSON file. Errors name the file.
func (g *gathering) documents(name string, data []byte) error {
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		var document any
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if root, isMap := document.(map[string]any); err == nil && isMap {
			err = g.object(root, name)
		}
		if err != nil {
			return fmt.Errorf("%s: %s", name,
				strings.TrimPrefix(firstLine(err), "error converting YAML to JSON: yaml: "))
		}
	}
}

// object adds an object or, if it is a list, its items.
func (g *gathering) object(root map[string]any, name string) error {
	kind, _ := root["kind"].(string)
	version, _ := root["apiVersion"].(string)
	if server, found, _ := unstructured.NestedString(root, "serverVersion", "gitVersion"); found {
		g.state.Version = server // the output of kubectl version -o yaml
	}
	items, isList := root["items"].([]any)
	single, cut := strings.CutSuffix(kind, "List")
	if !isList || !cut {
		return g.take(root, name)
	}
	if k, known := kindOf(version, single); known && g.files[k] == "" {
		g.files[k] = name
	}
	for _, each := range items {
		item, ok := each.(map[string]any)
		if !ok {
			return fmt.Errorf("expected an object, found %v", each)
		}
		// items of a typed list do not repeat the kind
		if item["kind"] == nil {
			item["kind"] = single
		}
		if item["apiVersion"] == nil {
			item["apiVersion"] = version
		}
		if err := g.take(item, name); err != nil {
			return err
		}
	}
	return nil
}

// take adds an object to the list of its kind. Unknown kinds and duplicates are skipped.
func (g *gathering) take(object map[string]any, file string) error {
	u := unstructured.Unstructured{Object: object}
	k, known := kindOf(u.GetAPIVersion(), u.GetKind())
	key := string(k) + " " + u.GetNamespace() + "/" + u.GetName()
	if !known || g.seen[key] {
		return nil
	}
	g.seen[key] = true
	if g.files[k] == "" {
		g.files[k] = file
	}
	data, err := json.Marshal(object)
	if err != nil {
		return err
	}
	for _, m := range dated.FindAllSubmatch(data, -1) {
		g.addTime(time.Parse(time.RFC3339, string(m[1])))
	}
	o, err := lists[k].decode(data)
	if err != nil {
		return fmt.Errorf("%s: %w", u.GetKind(), err)
	}
	trim := g.trim
	if k == Pods {
		trim = nil // the pods to keep are only known after all files are read
	}
	lists[k].take(g.state, trim, o)
	return nil
}

// dated matches the times of past events in an object. The newest one is close to the time of gathering.
var dated = regexp.MustCompile(`"(?:creationTimestamp|lastTransitionTime|lastHeartbeatTime|lastUpdateTime|startTime|` +
	`startedAt|finishedAt|time)":"([^"]+)"`)

// addTime records a parsed time if it is the newest so far. It ignores times that could not be parsed.
func (g *gathering) addTime(t time.Time, err error) {
	if err == nil && t.After(g.newest) {
		g.newest = t
	}
}

var (
	describedName      = regexp.MustCompile(`(?m)^Name:\s`)
	describedCondition = regexp.MustCompile(`(?m)^\s+([A-Z]\w+)\s+(True|False|Unknown)` +
		`\s+(\w{3}, .*? [+-]\d{4})\s+(\w{3}, .*? [+-]\d{4})\s+(\S+)`)
	describedCordon = regexp.MustCompile(`(?m)^Unschedulable:\s+true`)
)

// describedNodes reads the output of kubectl describe nodes. must-gather.sh writes nodes only in this format.
func (g *gathering) describedNodes(name string, data []byte) {
	g.files[Nodes] = name
	starts := describedName.FindAllIndex(data, -1)
	for i, start := range starts {
		end := len(data)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		text := data[start[0]:end]
		n, ok := node.Described(text)
		if !ok {
			g.partial[Nodes] = fmt.Sprintf("%s:%d: the description of a node is incomplete",
				name, 1+bytes.Count(data[:start[0]], []byte("\n")))
			continue
		}
		if g.seen[string(Nodes)+" /"+n.Name] {
			continue
		}
		g.seen[string(Nodes)+" /"+n.Name] = true
		n.Spec.Unschedulable = describedCordon.Match(text)
		for _, m := range describedCondition.FindAllSubmatch(text, -1) {
			var err error
			c := corev1.NodeCondition{Type: corev1.NodeConditionType(m[1]), Status: corev1.ConditionStatus(m[2]),
				Reason: string(m[5])}
			c.LastHeartbeatTime.Time, err = time.Parse(time.RFC1123Z, string(m[3]))
			g.addTime(c.LastHeartbeatTime.Time, err)
			c.LastTransitionTime.Time, _ = time.Parse(time.RFC1123Z, string(m[4]))
			n.Status.Conditions = append(n.Status.Conditions, c)
		}
		g.state.Nodes = append(g.state.Nodes, *n)
	}
	if g.partial[Nodes] == "" {
		g.partial[Nodes] = name + " lists only nodes with nvidia.com/gpu.present=true"
	}
}

var (
	describedNamespace = regexp.MustCompile(`(?m)^Namespace:\s+(\S+)`)
	describedEvents    = regexp.MustCompile(`(?ms)^Events:\s*$(.*)`)
	// describedEvent matches a warning: reason, age, source and message.
	describedEvent = regexp.MustCompile(`(?m)^\s+Warning\s+(\S+)\s+((?:\d+[dhms])+)` +
		`(?:\s+\(x\d+ over [^)]*\))?\s+(\S+)\s+(.*)$`)
	ageUnit = regexp.MustCompile(`(\d+)([dhms])`)
)

// describedEvents reads the warnings in the output of kubectl describe. must-gather.sh writes the operands' events only
// in this format. addDescribed later adds missing namespaces and converts ages to times.
func (g *gathering) describedEvents(name, kind string, data []byte) {
	for i, text := range bytes.Split(data, []byte("\nName:")) {
		text = bytes.TrimPrefix(text, []byte("Name:"))
		head, _, _ := bytes.Cut(text, []byte("\n"))
		events := describedEvents.FindSubmatch(text)
		if events == nil || i == 0 && !bytes.HasPrefix(data, []byte("Name:")) {
			continue
		}
		object := corev1.ObjectReference{Kind: kind, Name: string(bytes.TrimSpace(head))}
		if m := describedNamespace.FindSubmatch(text); m != nil {
			object.Namespace = string(m[1])
		}
		for n, m := range describedEvent.FindAllSubmatch(events[1], -1) {
			e := corev1.Event{InvolvedObject: object, Type: corev1.EventTypeWarning, Reason: string(m[1]),
				Message: string(m[4])}
			e.Name, e.Source.Component = fmt.Sprintf("%s.%d", object.Name, n), string(m[3])
			g.described = append(g.described, describedWarning{e, ageOf(string(m[2]))})
			g.files[Events] = cmp.Or(g.files[Events], name)
		}
	}
}

// describedWarning is an event, with its age at the time of kubectl describe.
type describedWarning struct {
	corev1.Event
	age time.Duration
}

// ageOf parses an age as kubectl prints it, such as 3m21s or 2d5h.
func ageOf(text string) (age time.Duration) {
	units := map[string]time.Duration{"d": 24 * time.Hour, "h": time.Hour, "m": time.Minute, "s": time.Second}
	for _, m := range ageUnit.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[1]) // the pattern matches only digits
		age += time.Duration(n) * units[m[2]]
	}
	return age
}

// addDescribed adds the described events. It skips an event if the state has one with the same object name and reason.
func (g *gathering) addDescribed() {
	s := g.state
	for _, e := range g.described {
		e.InvolvedObject.Namespace = cmp.Or(e.InvolvedObject.Namespace, s.Namespace)
		e.Namespace = e.InvolvedObject.Namespace
		e.LastTimestamp.Time = s.At.Add(-e.age)
		isKnown := func(known corev1.Event) bool {
			return known.InvolvedObject.Name == e.InvolvedObject.Name && known.Reason == e.Reason
		}
		if !slices.ContainsFunc(s.Events, isKnown) {
			s.Events = append(s.Events, e.Event)
		}
	}
}

// finish sets the time and the namespace, trims the pods, and adds the described events. It drops kinds that were not
// requested, and records missing ones.
func (g *gathering) finish(kinds []Kind) *State {
	s := g.state
	s.At = g.newest
	if s.At.IsZero() {
		s.At = g.written
	}
	s.findNamespace()
	if one := onlyNamespace(s.Pods, func(p *corev1.Pod) string { return p.Namespace }); one != "" {
		g.partial[Pods] = "the folder contains only the pods of the namespace " + one
		if s.Namespace == "" && g.files[ClusterPolicies] != "" {
			s.Namespace = one
		}
	}
	if one := onlyNamespace(s.DaemonSets, func(d *appsv1.DaemonSet) string { return d.Namespace }); one != "" {
		g.partial[DaemonSets] = "the folder contains only the DaemonSets of the namespace " + one
	}
	g.trim.learn(s)
	s.Pods = slices.DeleteFunc(s.Pods, func(p corev1.Pod) bool { return !g.trim.keeps(&p) })
	for i := range s.Pods {
		g.trim.pod(&s.Pods[i])
	}
	s.Namespace = cmp.Or(s.Namespace, defaultNamespace)
	g.addDescribed()
	for _, k := range slices.Sorted(slices.Values(kinds)) {
		l := lists[k]
		switch {
		case g.broken[k] != "":
			s.Missing = append(s.Missing, Missing{Kind: k, Why: Failed, Detail: g.broken[k]})
			l.drop(s)
		case g.files[k] == "":
			s.Missing = append(s.Missing, Missing{Kind: k, Why: Unread, Detail: "the folder contains no " + string(k)})
		case !l.known(s):
			l.reset(s)
		}
		if g.partial[k] != "" && g.broken[k] == "" {
			s.Missing = append(s.Missing, Missing{Kind: k, Why: Partial, Detail: g.partial[k]})
		}
	}
	for k, l := range lists {
		if !slices.Contains(kinds, k) {
			l.drop(s)
		}
	}
	s.Missing = slices.Compact(s.Missing)
	return s
}

// onlyNamespace returns the namespace that all objects are in. It returns "" for objects in several namespaces, and for
// an empty list. A list with only one namespace is incomplete, because every cluster has objects in kube-system too.
func onlyNamespace[T any](all []T, namespace func(*T) string) string {
	one := ""
	for i := range all {
		n := namespace(&all[i])
		if one != "" && n != one {
			return ""
		}
		one = n
	}
	return one
}
