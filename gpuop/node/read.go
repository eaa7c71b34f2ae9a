package node

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// ErrNode is returned if the input is not exactly one Node.
var ErrNode = errors.New("not a Node")

// Parse parses a Node from JSON, YAML or the text of kubectl describe. Errors wrap ErrNode.
func Parse(data []byte) (*corev1.Node, error) {
	var object struct {
		corev1.Node
		Items []corev1.Node `json:"items"`
	}
	err := yaml.Unmarshal(data, &object)
	n := &object.Node
	if strings.HasSuffix(n.Kind, "List") && len(object.Items) == 1 {
		n = &object.Items[0]
	}
	switch described, ok := Described(data); {
	case err == nil && (n.Kind == "Node" || n.Kind == "" && n.Labels != nil):
		return n, nil
	case ok && len(described.Labels) > 0:
		return described, nil
	}
	return nil, fmt.Errorf("%w: expected the output of kubectl get node NAME -o json (or yaml), "+
		"or of kubectl describe node NAME", ErrNode)
}

var (
	// section matches a heading of kubectl describe. Pasted text often has no indentation, so only headings separate
	// sections.
	section   = regexp.MustCompile(`^([A-Z][A-Za-z -]*):\s*(.*)$`)
	taintText = regexp.MustCompile(`^([A-Za-z0-9./_-]+)(?:=([A-Za-z0-9._-]*))?:` +
		`(NoSchedule|PreferNoSchedule|NoExecute)$`)
)

// Described parses the text of kubectl describe node. It returns false if the text has no name, Labels or Capacity.
func Described(data []byte) (*corev1.Node, bool) {
	n := &corev1.Node{}
	n.Labels = map[string]string{}
	n.Status.Capacity, n.Status.Allocatable = corev1.ResourceList{}, corev1.ResourceList{}
	info := &n.Status.NodeInfo
	once := map[string]*string{
		"Name":                      &n.Name,
		"Kernel Version":            &info.KernelVersion,
		"OS Image":                  &info.OSImage,
		"Operating System":          &info.OperatingSystem,
		"Architecture":              &info.Architecture,
		"Container Runtime Version": &info.ContainerRuntimeVersion,
		"Kubelet Version":           &info.KubeletVersion,
	}
	lists := map[string]corev1.ResourceList{"Capacity": n.Status.Capacity, "Allocatable": n.Status.Allocatable}
	seen := map[string]bool{}
	in := ""
	for line := range strings.Lines(string(data)) {
		rest := strings.TrimSpace(line)
		if m := section.FindStringSubmatch(rest); m != nil {
			in, rest = m[1], strings.TrimSpace(m[2])
			seen[in] = true
		} else if in == "" && rest != "" {
			break // not the output of kubectl describe
		}
		switch {
		case once[in] != nil && *once[in] == "":
			*once[in] = rest
		case in == "Labels":
			if key, value, found := strings.Cut(rest, "="); found {
				n.Labels[key] = value
			}
		case lists[in] != nil:
			name, amount, _ := strings.Cut(rest, ":")
			if q, err := resource.ParseQuantity(strings.TrimSpace(amount)); err == nil {
				lists[in][corev1.ResourceName(name)] = q
			}
		case in == "Taints":
			if m := taintText.FindStringSubmatch(rest); m != nil {
				n.Spec.Taints = append(n.Spec.Taints,
					corev1.Taint{Key: m[1], Value: m[2], Effect: corev1.TaintEffect(m[3])})
			}
		}
	}
	return n, n.Name != "" && seen["Labels"] && seen["Capacity"]
}
