package node

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
)

// ErrNode is returned for input that is not one Node.
var ErrNode = errors.New("not a Node")

// ErrTaint is returned for a taint that cannot be read.
var ErrTaint = errors.New("unreadable taint")

// Node has the fields of a Kubernetes Node that are judged.
type Node struct {
	Name   string
	Labels map[string]string
	// Capacity and Allocatable are quantities as they are written, of every vendor.
	Capacity, Allocatable map[string]string
	// Taints are the lasting ones; Kubernetes takes its own away when the trouble is over.
	Taints []corev1.Taint
	// System are the rows of kubectl describe's System Info, by their names: "Kubelet Version". It is
	// read from that text alone.
	System map[string]string
	// Lines are where labels and resources stand, and CapacityLine where the capacity begins; from
	// 1, and 0 where it is not known.
	Lines        map[string]int
	CapacityLine int
}

var taintText = regexp.MustCompile(`^([A-Za-z0-9./_-]+)(?:=([A-Za-z0-9._-]*))?:(NoSchedule|PreferNoSchedule|NoExecute)$`)

// ParseTaint reads a taint as kubectl taint writes it. The error wraps ErrTaint.
func ParseTaint(s string) (corev1.Taint, error) {
	m := taintText.FindStringSubmatch(s)
	if m == nil {
		return corev1.Taint{}, fmt.Errorf("%w %q, want key[=value]:NoSchedule, PreferNoSchedule or NoExecute", ErrTaint, s)
	}
	return corev1.Taint{Key: m[1], Value: m[2], Effect: corev1.TaintEffect(m[3])}, nil
}

// Stays reports whether a taint is none of those that Kubernetes sets on trouble.
func Stays(t corev1.Taint) bool {
	return t.Key != "" && !strings.HasPrefix(t.Key, "node.kubernetes.io/") && !strings.HasPrefix(t.Key, "node.cloudprovider.kubernetes.io/")
}

// Parse reads one Node from JSON, YAML, or the text of kubectl describe. Its errors wrap ErrNode.
func Parse(data []byte) (*Node, error) {
	reader := &fields.Reader{}
	if root := reader.Document(data); root != nil {
		kind := fields.Text(root, "kind")
		if strings.HasSuffix(kind, "List") {
			items := fields.Items(fields.Get(root, "items"))
			if len(items) != 1 {
				return nil, fmt.Errorf("%w: a list of %d, want one (kubectl get node NAME -o json)", ErrNode, len(items))
			}
			root = items[0]
			kind = fields.Text(root, "kind")
		}
		if kind == "Node" || kind == "" && fields.Get(root, "metadata", "labels") != nil {
			return Object(root), nil
		}
		if kind != "" {
			return nil, fmt.Errorf("%w but a %s", ErrNode, kind)
		}
	}
	if n, ok := Described(data); ok && len(n.Labels) > 0 {
		return n, nil
	}
	return nil, fmt.Errorf("%w: want the output of kubectl get node NAME -o json (or yaml), or of kubectl describe node NAME", ErrNode)
}

// Object reads the Node that a mapping holds.
func Object(root *yaml.Node) *Node {
	n := &Node{Name: fields.Text(root, "metadata", "name"), Lines: map[string]int{}}
	read := func(names ...string) map[string]string {
		out := map[string]string{}
		for _, f := range fields.Of(fields.Get(root, names...)) {
			if value := fields.Resolve(f.Value); value.Kind == yaml.ScalarNode {
				out[f.Name], n.Lines[f.Name] = value.Value, f.Key.Line
			}
		}
		return out
	}
	n.Capacity = read("status", "capacity")
	n.Allocatable = read("status", "allocatable")
	n.Labels = read("metadata", "labels")
	if c := fields.Get(root, "status", "capacity"); c != nil {
		n.CapacityLine = c.Line
	}
	for _, item := range fields.Items(fields.Get(root, "spec", "taints")) {
		var t corev1.Taint
		if err := item.Decode(&t); err == nil && Stays(t) {
			n.Taints = append(n.Taints, t)
		}
	}
	return n
}

// section is a heading of kubectl describe. Sections are found by their headings, since the
// indentation is often lost when the text is pasted.
var section = regexp.MustCompile(`^([A-Z][A-Za-z -]*):\s*(.*)$`)

// Described reads the text of kubectl describe node, and reports whether the text is one.
func Described(data []byte) (*Node, bool) {
	n := &Node{Labels: map[string]string{}, Capacity: map[string]string{}, Allocatable: map[string]string{}, Lines: map[string]int{}}
	seen := map[string]bool{}
	in, number := "", 0
	for line := range strings.Lines(string(data)) {
		number++
		rest := strings.TrimSpace(line)
		if m := section.FindStringSubmatch(rest); m != nil {
			in, rest = m[1], m[2]
			seen[in] = true
			if in == "Capacity" {
				n.CapacityLine = number
			}
		} else if in == "" && rest != "" {
			return nil, false // what comes before the name is something else
		}
		n.described(in, strings.TrimSpace(rest), number)
	}
	return n, n.Name != "" && seen["Labels"] && seen["Capacity"]
}

// described reads one line of a section.
func (n *Node) described(in, rest string, number int) {
	switch in {
	case "Name":
		if rest != "" && n.Name == "" {
			n.Name = rest
		}
	case "Kernel Version", "OS Image", "Operating System", "Architecture", "Container Runtime Version", "Kubelet Version":
		if rest != "" {
			if n.System == nil {
				n.System = map[string]string{}
			}
			n.System[in] = rest
		}
	case "Labels":
		if key, value, found := strings.Cut(rest, "="); found {
			n.Labels[key], n.Lines[key] = value, number
		}
	case "Capacity", "Allocatable":
		if i := strings.LastIndex(rest, ":"); i >= 0 {
			quantities := map[string]map[string]string{"Capacity": n.Capacity, "Allocatable": n.Allocatable}
			quantities[in][strings.TrimSpace(rest[:i])] = strings.TrimSpace(rest[i+1:])
		}
	case "Taints":
		if t, err := ParseTaint(rest); err == nil && Stays(t) {
			n.Taints = append(n.Taints, t)
		}
	}
}

// GPUResources are the extended resources of nvidia.com that the node has.
func (n *Node) GPUResources() map[string]int { return ofNVIDIA(n.Capacity) }

func ofNVIDIA(quantities map[string]string) map[string]int {
	out := map[string]int{}
	for name, q := range quantities {
		if count, err := strconv.Atoi(q); err == nil && strings.HasPrefix(name, "nvidia.com/") {
			out[name] = count
		}
	}
	return out
}
