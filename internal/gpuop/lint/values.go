package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/finding"
)

// Sources of the facts.
const (
	sourceValues     = "gpu-operator values.yaml, tags v1.7.0 to v26.7.0"
	sourceTemplates  = "gpu-operator deployments/gpu-operator/templates"
	sourceOperator   = "gpu-operator controllers/object_controls.go"
	sourceMatrix     = "GPU Operator component matrix"
	sourceDocs       = "GPU Operator documentation"
	sourceCRD        = "gpu-operator custom resource definitions, v26.7.0"
	sourceKubernetes = "Kubernetes documentation: schedule GPUs, device plugins"
)

// rules are the rules about values, in the order in which they run: later ones look at what earlier ones dropped.
var rules = []func(*installation){
	(*installation).keys, (*installation).twice, (*installation).types, (*installation).gaps, (*installation).tolerationValues, (*installation).images,
	(*installation).dead, (*installation).contradictions, (*installation).oldDefaults, (*installation).versions, (*installation).discovery,
}

// judge runs every rule on the installation.
func (in *installation) judge() {
	for _, rule := range rules {
		rule(in)
	}
}

// keyRules say what to report about a path, by how it stands to the chart's keys.
var keyRules = map[chart.Status]func(*installation, *setting, chart.Verdict){
	chart.Unknown:   (*installation).unknown,
	chart.Misspelt:  (*installation).misspelt,
	chart.Free:      (*installation).free,
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
	for _, s := range in.settings {
		v := in.table.Judge(in.version, s.path)
		if rule := keyRules[v.Status]; rule != nil {
			rule(in, s, v)
		}
	}
	for path, i := range in.deep {
		in.fixTooDeep(path, i)
	}
}

// addKey reports a name that is wrong: all settings below one wrong name are one finding, at the name.
func (in *installation) addKey(id string, severity finding.Severity, reason, fix, source string, s *setting, v chart.Verdict) {
	parent := s.path[:v.Bad+1]
	at := id + " " + parent.String()
	if i, seen := in.byParent[at]; seen {
		m := &in.mistakes[i]
		m.settings = append(m.settings, s)
		m.Severity = max(m.Severity, severity)
		return
	}
	in.byParent[at] = len(in.mistakes)
	in.add(id, severity, reason, fix, source, s)
	m := &in.mistakes[len(in.mistakes)-1]
	m.Subject = parent.String()
	if v.Bad == len(s.path)-1 {
		m.Subject = s.name()
	} else if v.Bad < len(s.keys) {
		m.Line, m.Column = s.keys[v.Bad].Line+s.shift, s.keys[v.Bad].Column
	}
}

// instead is the name that is meant, to the depth of the wrong one where only that one differs.
func instead(s *setting, v chart.Verdict) chart.Path {
	if len(v.Nearest) == len(s.path) && slices.Equal(v.Nearest[v.Bad+1:], s.path[v.Bad+1:]) {
		return v.Nearest[:v.Bad+1]
	}
	return v.Nearest
}

func (in *installation) unknown(s *setting, v chart.Verdict) {
	fix := "delete it, unless something of yours reads it"
	if v.Nearest != nil {
		fix = "write " + instead(s, v).String()
		in.move(s, v.Nearest)
	}
	in.addKey("unknown-key", finding.Error, fmt.Sprintf("no version of the chart has this key; %s ignores it without a word", in.version), fix, sourceValues, s, v)
}

// move lets the setting take another place, where nothing stands yet.
func (in *installation) move(s *setting, to chart.Path) {
	if in.explicit(to.String()) == nil {
		s.renamed = to
	}
}

// free judges a name where the chart takes any: inside a type of Kubernetes' own not any name will do.
func (in *installation) free(s *setting, _ chart.Verdict) {
	at, near, ok := kubePath(s.path)
	if !ok || at == len(s.path) {
		return
	}
	fix := ""
	if near != "" {
		to := slices.Clone(s.path)
		to[at] = near
		fix = "write " + to[:at+1].String()
		in.move(s, to)
	}
	in.addKey("unknown-key", finding.Error, fmt.Sprintf("Kubernetes has no %s here: the API server drops it or refuses the pods", s.path[at]), fix, sourceAPI, s, chart.Verdict{Bad: at})
}

func (in *installation) misspelt(s *setting, v chart.Verdict) {
	if _, _, ok := kubePath(s.path); ok {
		in.free(s, v)
		return
	}
	in.move(s, v.Nearest)
	in.addKey("misspelt-key", finding.Warning, fmt.Sprintf("the chart has %s here; this adds another entry beside it", instead(s, v)), "write "+instead(s, v).String(), sourceValues, s, v)
}

func (in *installation) belowList(s *setting, v chart.Verdict) {
	v.Bad--
	in.addKey("wrong-type", finding.Error, "found a group of keys, want a list", "", sourceValues, s, v)
}

// harmless reports whether the setting says what happens anyway: the chart's default where it has the key.
func (s *setting) harmless(k *chart.Key) bool {
	if s.path.String() != k.Path.String() || s.unknown {
		return false
	}
	for _, d := range k.Defaults() {
		if scalarText(d.Value) == s.text() && s.text() != "" {
			return true
		}
	}
	return false
}

func (in *installation) groupGone(s *setting, v chart.Verdict) {
	if in.version.Before(v.Key.Since()) {
		in.early(s, v)
	} else {
		in.gone(s, v)
	}
}

func (in *installation) early(s *setting, v chart.Verdict) {
	severity := finding.Error
	if s.harmless(v.Key) {
		severity = finding.Warning
	}
	s.dropped = true
	in.addKey("key-not-yet", severity, fmt.Sprintf("came with %s; %s ignores it without a word", v.Key.Since(), in.version),
		"delete it, or install "+v.Key.Since().String()+" or later", sourceValues, s, v)
}

func (in *installation) gone(s *setting, v chart.Verdict) {
	severity := finding.Error
	if s.harmless(v.Key) {
		severity = finding.Warning
	}
	next, _ := in.table.Next(v.Key.Until())
	fix := chart.Advice(s.path)
	if fix == "" {
		fix = "delete it"
	}
	s.dropped = true
	if v.Nearest != nil {
		if verdict := in.table.Judge(in.version, v.Nearest); verdict.Status == chart.Known {
			in.carry(s, v.Nearest)
		}
	}
	in.addKey("key-gone", severity, fmt.Sprintf("removed in %s: nothing in the values, templates and custom resources of %s reads it", next, in.version), fix, sourceValues, s, v)
}

// carry moves the value of a key that is gone to its successor, where the value means the same there.
func (in *installation) carry(s *setting, to chart.Path) {
	switch s.path.String() {
	case "driver.useOpenKernelModules":
		if s.text() == "true" {
			s.added = []string{to.String() + "=open"}
		}
	case "kataManager.enabled":
	default:
		if in.explicit(to.String()) == nil {
			s.renamed, s.dropped = to, false
		}
	}
}

// later notes that a key of this version is gone in the newest.
func (in *installation) later(s *setting, v chart.Verdict) {
	until := v.Key.Until()
	if until == (chart.Version{}) || !in.flags && in.repeatsDefault(s) {
		return
	}
	next, _ := in.table.Next(until)
	in.add("key-goes", finding.Info, fmt.Sprintf("works with %s, but went with %s", in.version, next), chart.Advice(s.path), sourceValues, s)
}

func (in *installation) valueOfGroup(s *setting, _ chart.Verdict) {
	if _, isMap := s.value.(map[string]any); isMap || s.value == nil || s.unknown {
		return
	}
	var doc yaml.Node
	if text, isText := s.value.(string); isText && yaml.Unmarshal([]byte(text), &doc) == nil && len(doc.Content) == 1 && doc.Content[0].Kind == yaml.MappingNode {
		s.tree = doc.Content[0]
		in.add("wrong-type", finding.Error, fmt.Sprintf("%s is a group of settings in %s, found a text that holds them", s.name(), in.version), "write them as keys, without the |", sourceValues, s)
		return
	}
	in.add("wrong-type", finding.Error, fmt.Sprintf("%s is a group of settings in the chart, not a value of its own", s.name()),
		"set one of its keys, for example "+in.example(s.path), sourceValues, s)
}

// example is the first key of a group.
func (in *installation) example(group chart.Path) string {
	for _, k := range in.table.Keys(in.version) {
		if len(k.Path) > len(group) && slices.Equal(k.Path[:len(group)], group) {
			return k.Path.String()
		}
	}
	return group.String()
}

// tooDeep reports keys below a string, the mistake of writing image.repository as other charts want it.
func (in *installation) tooDeep(s *setting, v chart.Verdict) {
	path := v.Key.Path.String()
	if i, seen := in.deep[path]; seen {
		in.mistakes[i].settings = append(in.mistakes[i].settings, s)
		in.mistakes[i].Subject += ", " + s.name()
		return
	}
	in.deep[path] = len(in.mistakes)
	reason := fmt.Sprintf("%s is a single value in this chart, not a group of keys", path)
	source := sourceValues
	if v.Key.Path[len(v.Key.Path)-1] == "image" {
		reason = fmt.Sprintf(`%s is a string in this chart; with keys below it the image's name becomes "map[…]" and cannot be pulled`, path)
		source = sourceTemplates
	}
	in.add("below-a-value", finding.Error, reason, "", source, s)
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
		s.dropped = true
	}
	m.settings[0].added = added
	m.Fix = "write " + strings.Join(added, "\n      ")
	if in.flags {
		m.Fix = "--set " + strings.Join(added, " \\\n--set ")
	}
}

// imagePart is what a key below image, as other charts have it, is in this chart.
func (in *installation) imagePart(component string, s *setting) []string {
	value := s.text()
	switch s.path[len(s.path)-1] {
	case "repository", "name":
		repository, image, found := cutLast(value, "/")
		if !found {
			repository, image = "", value
		}
		var parts []string
		if repository != "" {
			parts = append(parts, component+".repository="+repository)
		}
		if k, known := in.table.Key(chart.ParsePath(component + ".image")); known && image != "" {
			if since, old := replacedAt(k, image); !old || in.version.Before(since) {
				parts = append(parts, component+".image="+image)
			}
		}
		return parts
	case "tag", "version":
		if !slices.Contains(releasedWithChart, component) || sameVersion(value, in.version.String()) {
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

// twice reports flags that set the same key again; a file's duplicate keys are the reader's business.
func (in *installation) twice() {
	last := map[string]*setting{}
	for _, s := range in.settings {
		before := last[s.name()]
		last[s.name()] = s
		if before == nil || before.node != nil || s.node != nil {
			continue
		}
		before.dropped = true
		if before.text() == s.text() {
			in.add("set-twice", finding.Info, "set twice to the same value", "keep one", "Helm documentation: --set", s)
			continue
		}
		in.add("set-twice", finding.Warning, fmt.Sprintf("set twice; %q counts, %q is lost", s.text(), before.text()), "keep one", "Helm documentation: --set", s)
	}
}

// enumerations are the values that a key accepts where no custom resource definition says it; from the comments of
// values.yaml.
var enumerations = map[string][]string{
	"sandboxWorkloads.mode":                      {"kubevirt", "kata"},
	"driver.nvidiaDriverCRD.driverType":          {"gpu", "vgpu", "vgpu-host-manager"},
	"dcgmExporter.service.internalTrafficPolicy": {"Cluster", "Local"},
	"operator.logging.timeEncoding":              {"epoch", "millis", "nano", "iso8601", "rfc3339", "rfc3339nano"},
}

var pullPolicies = []string{"Always", "IfNotPresent", "Never"}

// allowed are the values that the setting may have; nil for any.
func (in *installation) allowed(s *setting) []string {
	last := s.path[len(s.path)-1]
	switch {
	case last == "imagePullPolicy" || s.name() == "node-feature-discovery.image.pullPolicy":
		return pullPolicies
	case s.name() == "migManager.config.default" && !in.version.Before(mustVersion(in.table, "v26.3.0")):
		return []string{"all-disabled", ""}
	}
	if list := enumerations[s.name()]; list != nil {
		return list
	}
	if f, ok := in.table.PolicyField(in.version, s.path); ok && f.Type == "string" {
		return f.Enum
	}
	return nil
}

// types judges the value of each setting against what the chart has there, and what is copied into a custom resource
// against its definition.
func (in *installation) types() {
	for _, s := range in.settings {
		v := in.table.Judge(in.version, s.path)
		if v.Status != chart.Known || s.unknown || s.value == nil || s.renamed != nil {
			continue
		}
		if k, ok := in.table.Key(s.path); ok && k.In(in.version) && s.element == "" && !in.shape(k, s) {
			continue
		}
		in.content(s, v.Key)
	}
}

// shape judges a setting against the key's shape; false says that it is of another.
func (in *installation) shape(k *chart.Key, s *setting) bool {
	_, isList := s.value.([]any)
	_, isMap := s.value.(map[string]any)
	empty := s.text() == "" && !isList && !isMap
	want := ""
	switch shape := k.Shape(in.version); {
	case shape == chart.List && !isList && !empty:
		want = "a list"
	case shape == chart.Map && !isMap && !empty:
		want = "a group of keys"
	case shape == chart.Scalar && (isList || isMap):
		want = "a single value"
	case shape == chart.Scalar:
		in.scalar(k, s)
		return false
	}
	if want != "" {
		in.add("wrong-type", finding.Error, fmt.Sprintf("found %s, want %s", describe(s.value), want), "", sourceValues, s)
	}
	return want == ""
}

// scalar judges a single value: words of an enumeration, booleans and numbers.
func (in *installation) scalar(k *chart.Key, s *setting) {
	if allowed := in.allowed(s); allowed != nil {
		if !slices.Contains(allowed, s.text()) {
			in.enumeration(s, allowed)
		}
		return
	}
	value, _ := k.Default(in.version)
	f, typed := in.table.PolicyField(in.version, s.path)
	_, isBool := value.(bool)
	_, isNumber := value.(float64)
	switch {
	case isBool || typed && f.Type == "boolean":
		in.bool(k, s)
	case isNumber && (!typed || f.Type != "int-or-string") || typed && f.Type == "integer":
		if _, err := strconv.ParseFloat(s.text(), 64); err != nil {
			in.add("wrong-value", finding.Error, fmt.Sprintf("found %s, want a number", describe(s.value)), "", sourceValues, s)
		}
	}
}

// content judges what the chart copies into the ClusterPolicy as it is.
func (in *installation) content(s *setting, k *chart.Key) {
	if k == nil || k.Use(in.version) != chart.Copied {
		return
	}
	f, ok := in.table.PolicyElement(in.version, s.path, listIndex.ReplaceAllString(s.element, "[]"))
	if !ok {
		return
	}
	node := s.node
	if node == nil {
		node = &yaml.Node{}
		if node.Encode(s.value) != nil {
			return
		}
	}
	j := &schemaJudge{table: in.table, version: in.version, kind: "ClusterPolicy", reader: &fields.Reader{}}
	j.value(f, s.name(), node)
	for _, found := range j.reader.Findings {
		m := mistake{found, []*setting{s}}
		m.File = s.file
		if s.node == nil {
			m.Line, m.Column = s.line, s.column
		} else {
			m.Line += s.shift
		}
		if found.ID == "unknown-field" {
			m.ID = "unknown-key"
		}
		if found.ID == "wrong-type" && f.Type == "string" && scalarText(s.value) != "" && in.alone(s) {
			s.asString = true
			m.Fix = "write --set-string"
		}
		if found.ID == "wrong-type" && s.node != nil && strings.HasPrefix(found.Fix, `write "`) {
			s.tree = quoted(cmp.Or(s.tree, s.node), found.Line, found.Column)
		}
		in.mistakes = append(in.mistakes, m)
	}
}

// quoted returns a copy of the value in which the scalar at the place is a text; nil when the value has anchors or
// aliases, which a copy would tear apart.
func quoted(n *yaml.Node, line, column int) *yaml.Node {
	if n.Anchor != "" || n.Kind == yaml.AliasNode {
		return nil
	}
	out := *n
	if n.Kind == yaml.ScalarNode && n.Line == line && n.Column == column {
		out.Tag, out.Style = "!!str", yaml.DoubleQuotedStyle
	}
	out.Content = make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		if out.Content[i] = quoted(c, line, column); out.Content[i] == nil {
			return nil
		}
	}
	return &out
}

// alone reports whether a --set flag may become --set-string, which Helm applies after every --set: no other flag may
// decide the same value.
func (in *installation) alone(s *setting) bool {
	return s.typed && !in.opaque && !slices.ContainsFunc(in.settings, func(other *setting) bool { return other != s && !other.dropped && other.name() == s.name() })
}

// gaps reports lists whose flags leave out an element: Helm fills the gap with null, which the API server refuses.
func (in *installation) gaps() {
	if in.opaque {
		return
	}
	seen := map[string]map[int]bool{}
	first := map[string]*setting{}
	for _, s := range in.settings {
		if m := elementText.FindStringSubmatch(s.element); m != nil {
			path := s.path.String()
			if seen[path] == nil {
				seen[path], first[path] = map[int]bool{}, s
			}
			at, _ := strconv.Atoi(m[1])
			seen[path][at] = true
		}
	}
	for _, path := range names(seen) {
		last := 0
		for at := range seen[path] {
			last = max(last, at)
		}
		if missing := last + 1 - len(seen[path]); missing > 0 {
			in.add("list-gap", finding.Error, fmt.Sprintf("the flags give %d elements of %d: Helm fills the gaps with null, and the API server refuses the ClusterPolicy", len(seen[path]), last+1),
				"number the elements from 0 without a gap", sourceHelm, first[path])
			in.mistakes[len(in.mistakes)-1].Subject = path
		}
	}
}

func (in *installation) enumeration(s *setting, allowed []string) {
	quoted := make([]string, len(allowed))
	for i, a := range allowed {
		quoted[i] = a
		if a == "" {
			quoted[i] = `""`
		}
	}
	fix := ""
	if near := finding.Nearest(strings.ToLower(s.text()), allowed); near != "" {
		fix = "write " + near
		s.changed = &near
	}
	in.add("wrong-value", finding.Error, fmt.Sprintf("found %q, want %s; the API server refuses the ClusterPolicy", s.text(), alternatives(quoted)), fix, sourceCRD, s)
}

// bool judges a switch. Kubernetes and Helm read YAML 1.1, in which yes and no are booleans too; a text, though, is true
// wherever a condition asks for it, even "false".
func (in *installation) bool(k *chart.Key, s *setting) {
	_, isText := s.value.(string)
	plain := isText && (s.node == nil && s.typed || s.node != nil && s.node.Style == 0)
	text := s.text()
	condition := s.name() == "nfd.enabled" || k.Use(in.version) == chart.Tested
	switch {
	case !isText && (text == "true" || text == "false"), plain && oldBools.MatchString(text):
		return
	case (text == "true" || text == "false") && !condition:
		return
	case text == "true" || text == "false":
		if text == "false" {
			in.add("wrong-type", finding.Error, `found the text "false", want false: Helm takes any text for true here, and the switch stays on`, "write false without quotes", sourceHelm, s)
		}
		return
	}
	fix := "write true or false"
	if near := finding.Nearest(strings.ToLower(text), []string{"true", "false"}); near != "" {
		fix = "write " + near
		s.changed = &near
	} else if text == "1" || text == "0" {
		value := strconv.FormatBool(text == "1")
		fix, s.changed = "write "+value, &value
	}
	in.add("wrong-value", finding.Error, fmt.Sprintf("found %s, want true or false", describe(s.value)), fix, sourceValues, s)
}

func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case []any:
		return "a list"
	case map[string]any:
		return "a group of keys"
	case string:
		return fmt.Sprintf("%q", v)
	default:
		return scalarText(v)
	}
}

func alternatives(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// mustVersion resolves a release that the table is known to have.
func mustVersion(t *chart.Table, s string) chart.Version {
	v, _, err := t.Resolve(s)
	if err != nil {
		return t.Latest()
	}
	return v
}
