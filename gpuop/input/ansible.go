package input

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
)

// A Task is one of Ansible that installs a chart, runs commands or applies an object.
type Task struct {
	// Use is the chart of kubernetes.core.helm; nil for other modules.
	Use *ChartUse
	// Script is the text of shell or command, and Object the definition of kubernetes.core.k8s.
	Script, Object *yaml.Node
}

var ansible = Carrier{chart: "chart_ref name release_name", version: "chart_version", values: "values release_values values_files"}

var (
	// nestedTasks are the keys below which a play or a block has tasks.
	nestedTasks = []string{"tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always"}
	// collections are the prefixes of the modules.
	collections = regexp.MustCompile(`^(ansible\.(builtin|legacy)|(kubernetes|community)\.(core|kubernetes|general))\.`)
	// beyondQuotes is what Ansible itself reads in the text of a task: white space, and backslashes that stand alone. Braces
	// mean something to a shell only.
	beyondQuotes = regexp.MustCompile(`"(?:\\.|[^"\\])*"|'[^']*'|\\\S|\$\{|\{|\s+(?:\\\s+)*`)
	// ofTheModule are options that a command in one line may end with.
	ofTheModule = regexp.MustCompile(`(?m)[ \t]+(chdir|creates|removes|executable|warn|stdin)=\S+`)
)

// Tasks returns those tasks of a playbook, or of a list of tasks, that this package knows.
func Tasks(data []byte) []Task {
	var doc yaml.Node
	if yaml.Unmarshal(data, &doc) != nil || len(doc.Content) == 0 {
		return nil
	}
	return tasks(doc.Content[0], nil)
}

func tasks(list *yaml.Node, out []Task) []Task {
	for _, item := range fields.Items(list) {
		for _, f := range fields.Of(item) {
			switch module := collections.ReplaceAllString(f.Name, ""); {
			case slices.Contains(nestedTasks, f.Name) && f.Value.Kind == yaml.SequenceNode:
				out = tasks(f.Value, out)
			case module == "helm" && fields.Get(f.Value, "chart_ref") != nil:
				use := ansible.use(f.Value, f.Value, f.Name)
				use.Raw, use.Parameters = true, []*yaml.Node{setValues(fields.Get(f.Value, "set_values"))}
				out = append(out, Task{Use: &use})
			case module == "shell" || module == "command":
				if n := commandOf(f.Value, module == "shell"); n != nil {
					out = append(out, Task{Script: n})
				}
			case module == "k8s":
				if n := fields.Resolve(fields.Get(f.Value, "definition")); n != nil {
					out = append(out, Task{Object: n})
				}
			}
		}
	}
	return out
}

// commandOf is the text that a task runs, at its place, as a shell reads it; nil for none.
func commandOf(n *yaml.Node, shell bool) *yaml.Node {
	for _, key := range []string{"cmd", "argv"} {
		if inner := fields.Get(n, key); inner != nil {
			n = fields.Resolve(inner)
		}
	}
	out := *n
	switch n.Kind {
	case yaml.ScalarNode:
		text := strings.TrimRight(ofTheModule.ReplaceAllString(n.Value, ""), " \n")
		out.Value = beyondQuotes.ReplaceAllStringFunc(text, func(s string) string {
			switch lines := strings.Count(s, "\n"); {
			case s == "{" && !shell:
				return "'{'"
			case strings.TrimLeft(s, " \t\\") == "" && strings.Contains(s, `\`):
				return " "
			case strings.TrimSpace(strings.ReplaceAll(s, `\`, "")) == "" && lines > 0 && !shell:
				return " " + strings.Repeat("\\\n", lines)
			}
			return s
		})
	case yaml.SequenceNode:
		words := make([]string, len(n.Content))
		for i, w := range n.Content {
			words[i] = Quote(w.Value)
		}
		out.Kind, out.Value = yaml.ScalarNode, strings.Join(words, " ")
	default:
		return nil
	}
	return &out
}

// setValues makes parameters of the list set_values, whose entries are name=value.
func setValues(list *yaml.Node) *yaml.Node {
	out := &yaml.Node{Kind: yaml.SequenceNode}
	for _, item := range fields.Items(list) {
		entry := fields.Get(item, "value")
		name, value, found := strings.Cut(fields.Text(item, "value"), "=")
		if kind := fields.Text(item, "value_type"); !found || kind == "json" || kind == "file" {
			continue
		}
		scalar := func(text string) *yaml.Node {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Line: entry.Line, Column: entry.Column}
		}
		out.Content = append(out.Content, &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{
			scalar("name"), scalar(name), scalar("value"), scalar(value), scalar("type"), scalar(fields.Text(item, "value_type"))}})
	}
	return out
}
