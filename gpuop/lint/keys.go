package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// keyRules say what to report about a path, by how it stands to the chart's keys.
var keyRules = map[chart.Status]func(*installation, *model.Setting, chart.Verdict){
	chart.Unknown:   (*installation).unknown,
	chart.Misspelt:  (*installation).misspelt,
	chart.TooDeep:   (*installation).tooDeep,
	chart.BelowList: (*installation).belowList,
	chart.NotYet:    (*installation).early,
	chart.Gone:      (*installation).gone,
	chart.GroupGone: (*installation).groupGone,
	chart.Known:     (*installation).later,
	chart.Group:     (*installation).valueOfGroup,
}

// keys judges each setting's path against the chart's keys.
func (in *installation) keys() {
	in.byParent, in.deep = map[string]int{}, map[string]int{}
	for _, s := range in.Settings {
		v := in.Verdict(s)
		if rule := keyRules[v.Status]; rule != nil {
			rule(in, s, v)
		}
	}
	for path, i := range in.deep {
		in.fixTooDeep(path, i)
	}
}

// addKey reports a wrong name: all settings below it are one finding, at the name.
func (in *installation) addKey(id report.ID, severity report.State, reason, fix, source string, s *model.Setting, v chart.Verdict) {
	parent := s.Path[:v.Bad+1]
	at := string(id) + " " + parent.String()
	if i, seen := in.byParent[at]; seen {
		m := &in.mistakes[i]
		m.settings = append(m.settings, s)
		m.State = max(m.State, severity)
		return
	}
	in.byParent[at] = len(in.mistakes)
	in.add(id, severity, reason, fix, source, s)
	m := &in.mistakes[len(in.mistakes)-1]
	m.Subject = parent.String()
	if v.Bad == len(s.Path)-1 {
		m.Subject = s.Name()
	} else if v.Bad < len(s.Keys) {
		m.Line, m.Column = s.Keys[v.Bad].Line+s.Shift, s.Keys[v.Bad].Column
	}
}

// instead is the name that is meant, to the depth of the wrong one where only that one differs.
func instead(s *model.Setting, v chart.Verdict) chart.Path {
	if len(v.Nearest) == len(s.Path) && slices.Equal(v.Nearest[v.Bad+1:], s.Path[v.Bad+1:]) {
		return v.Nearest[:v.Bad+1]
	}
	return v.Nearest
}

func (in *installation) unknown(s *model.Setting, v chart.Verdict) {
	fix := "delete it, unless something of yours reads it"
	if v.Nearest != nil {
		fix = "write " + instead(s, v).String()
		in.move(s, v.Nearest)
	}
	in.addKey("unknown-key", report.Failed, fmt.Sprintf("no version of the chart has this key; %s ignores it without a word", in.Version), fix, sourceValues, s, v)
}

// move lets the setting take another place, where nothing stands yet.
func (in *installation) move(s *model.Setting, to chart.Path) {
	if in.Explicit(to.String()) == nil {
		s.Edit.Rename = to
	}
}

func (in *installation) misspelt(s *model.Setting, v chart.Verdict) {
	in.move(s, v.Nearest)
	in.addKey("misspelt-key", report.Warning, fmt.Sprintf("the chart has %s here; this adds another entry beside it", instead(s, v)), "write "+instead(s, v).String(), sourceValues, s, v)
}

func (in *installation) belowList(s *model.Setting, v chart.Verdict) {
	v.Bad--
	in.addKey("wrong-type", report.Failed, "found a group of keys, want a list", "", sourceValues, s, v)
}

func (in *installation) groupGone(s *model.Setting, v chart.Verdict) {
	if in.Version.Before(v.Key.Since()) {
		in.early(s, v)
	} else {
		in.gone(s, v)
	}
}

func (in *installation) early(s *model.Setting, v chart.Verdict) {
	severity := report.Failed
	if s.Harmless(v.Key) {
		severity = report.Note
	}
	s.Edit.Drop = true
	in.addKey("key-not-yet", severity, fmt.Sprintf("came with %s; %s ignores it without a word", v.Key.Since(), in.Version),
		"delete it, or install "+v.Key.Since().String()+" or later", sourceValues, s, v)
}

func (in *installation) gone(s *model.Setting, v chart.Verdict) {
	severity := report.Failed
	switch advice := chart.Advice(s.Path); {
	case s.Harmless(v.Key):
		severity = report.Note
	case strings.HasPrefix(advice, "drop it"): // the release does without by itself
		severity = report.Warning
	}
	next, _ := in.Table.Next(v.Key.Until())
	fix := chart.Advice(s.Path)
	if fix == "" {
		fix = "delete it"
	}
	s.Edit.Drop = true
	if v.Nearest != nil {
		if verdict := in.Table.Judge(in.Version, v.Nearest); verdict.Status == chart.Known {
			in.carry(s, v.Nearest)
		}
	}
	in.addKey("key-gone", severity, fmt.Sprintf("removed in %s: nothing in the values, templates and custom resources of %s reads it", next, in.Version), fix, sourceValues, s, v)
}

// carry moves the value of a key that is gone to a successor of the same meaning.
func (in *installation) carry(s *model.Setting, to chart.Path) {
	switch s.Path.String() {
	case "driver.useOpenKernelModules":
		if s.Text() == "true" {
			s.Added = []string{to.String() + "=open"}
		}
	case "kataManager.enabled":
	default:
		if in.Explicit(to.String()) == nil {
			s.Edit.Rename, s.Edit.Drop = to, false
		}
	}
}

// later notes that a key of this version is gone in the newest.
func (in *installation) later(s *model.Setting, v chart.Verdict) {
	until := v.Key.Until()
	if until == (chart.Version{}) || !in.flags && in.repeatsDefault(s) {
		return
	}
	next, _ := in.Table.Next(until)
	in.add("key-goes", report.Note, fmt.Sprintf("works with %s, but went with %s", in.Version, next), chart.Advice(s.Path), sourceValues, s)
}

// nullGroup judges a group whose keys are all commented out. Another file or flag may bring one, and then
// Helm has a group to put the defaults into.
func (in *installation) nullGroup(s *model.Setting) {
	below := func(other *model.Setting) bool {
		return len(other.Path) > len(s.Path) && slices.Equal(other.Path[:len(s.Path)], s.Path) && other.Value != nil
	}
	if in.opaque || !in.Table.Needed(in.Version, s.Path) || slices.ContainsFunc(in.Settings, below) {
		return
	}
	in.add("null-group", report.Failed, "it is empty, for which Helm deletes the chart's defaults below it, and the templates end in a nil pointer",
		"delete the key, or write one of its keys, for example "+in.example(s.Path), sourceTemplates, s)
}

func (in *installation) valueOfGroup(s *model.Setting, _ chart.Verdict) {
	if _, isMap := s.Value.(map[string]any); isMap || s.Unknown {
		return
	}
	if s.Value == nil {
		in.nullGroup(s)
		return
	}
	var doc yaml.Node
	if text, isText := s.Value.(string); isText && yaml.Unmarshal([]byte(text), &doc) == nil && len(doc.Content) == 1 && doc.Content[0].Kind == yaml.MappingNode {
		if s.Node != nil {
			s.Edit.Tree = doc.Content[0]
		}
		state := report.Failed
		if _, once := in.Table.Key(s.Path); once && in.assumed {
			state = report.Warning // it is a text in another release
		}
		in.add("wrong-type", state, fmt.Sprintf("%s is a group of settings in %s, found a text that holds them", s.Name(), in.Version), "write them as keys, without the |", sourceValues, s)
		return
	}
	in.add("wrong-type", report.Failed, fmt.Sprintf("%s is a group of settings in the chart, not a value of its own", s.Name()),
		"set one of its keys, for example "+in.example(s.Path), sourceValues, s)
}

// example is the first key of a group.
func (in *installation) example(group chart.Path) string {
	for _, k := range in.Table.Keys(in.Version) {
		if len(k.Path) > len(group) && slices.Equal(k.Path[:len(group)], group) {
			return k.Path.String()
		}
	}
	return group.String()
}

// tooDeep reports keys below a string, as image.repository of other charts.
func (in *installation) tooDeep(s *model.Setting, v chart.Verdict) {
	path := v.Key.Path.String()
	if i, seen := in.deep[path]; seen {
		in.mistakes[i].settings = append(in.mistakes[i].settings, s)
		in.mistakes[i].Subject += ", " + s.Name()
		return
	}
	in.deep[path] = len(in.mistakes)
	reason := fmt.Sprintf("%s is a single value in this chart, not a group of keys", path)
	source := sourceValues
	if v.Key.Path[len(v.Key.Path)-1] == "image" {
		reason = fmt.Sprintf(`%s is a string in this chart; with keys below it the image's name becomes "map[…]" and cannot be pulled`, path)
		source = sourceTemplates
	}
	in.add("below-a-value", report.Failed, reason, "", source, s)
}

// fixTooDeep writes the right settings for those below path, which mistake i is about.
func (in *installation) fixTooDeep(path string, i int) {
	m := &in.mistakes[i]
	m.Fix = "set " + path + " itself"
	component, isImage := strings.CutSuffix(path, ".image")
	if !isImage {
		return
	}
	m.Fix = fmt.Sprintf("set %s.repository, %s.image and %s.version", component, component, component)
	var added []string
	for _, s := range m.settings {
		added = append(added, in.imagePart(component, s)...)
	}
	if len(added) == 0 {
		return
	}
	for _, s := range m.settings {
		s.Edit.Drop = true
	}
	m.settings[0].Added = added
	m.Fix = "write " + strings.Join(added, "\n      ")
	if in.flags {
		m.Fix = "--set " + strings.Join(added, " \\\n--set ")
	}
}

// imagePart is what a key below image, as other charts have it, is in this chart.
func (in *installation) imagePart(component string, s *model.Setting) []string {
	value := s.Text()
	switch s.Path[len(s.Path)-1] {
	case "repository", "name":
		repository, image, found := cutLast(value, "/")
		if !found {
			repository, image = "", value
		}
		var parts []string
		if repository != "" {
			parts = append(parts, component+".repository="+repository)
		}
		if k, known := in.Table.Key(chart.ParsePath(component + ".image")); known && image != "" {
			if since, old := replacedAt(k, image); !old || in.Version.Before(since) {
				parts = append(parts, component+".image="+image)
			}
		}
		return parts
	case "tag", "version":
		if !in.releasedWithChart(component) || sameVersion(value, in.Version.String()) {
			return []string{component + ".version=" + value}
		}
	case "pullPolicy":
		return []string{component + ".imagePullPolicy=" + value}
	}
	return nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
