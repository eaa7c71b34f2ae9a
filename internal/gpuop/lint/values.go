package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/chart"
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

// judge runs every rule on the installation.
func (in *installation) judge() {
	in.keys()
	in.types()
	in.images()
	in.dead()
	in.contradictions()
	in.oldDefaults()
	in.versions()
	in.discovery()
}

// keys judges each setting's path against the chart's keys.
func (in *installation) keys() {
	deep := map[string]int{}
	for _, s := range in.settings {
		v := in.table.Judge(in.version, s.path)
		switch v.Status {
		case chart.Unknown:
			in.unknown(s, v)
		case chart.Misspelt:
			s.renamed = v.Nearest
			in.add("misspelt-key", finding.Warning, fmt.Sprintf("the chart has %s here; this adds another entry beside it", v.Nearest),
				"write "+v.Nearest.String(), sourceValues, s)
		case chart.TooDeep:
			if i, seen := deep[v.Key.Path.String()]; seen {
				in.mistakes[i].settings = append(in.mistakes[i].settings, s)
				in.mistakes[i].Subject += ", " + s.name()
				continue
			}
			deep[v.Key.Path.String()] = len(in.mistakes)
			in.tooDeep(s, v)
		case chart.NotYet:
			in.early(s, v.Key)
		case chart.Gone:
			in.gone(s, v.Key, v.Nearest)
		case chart.GroupGone:
			if in.version.Before(v.Key.Since) {
				in.early(s, v.Key)
			} else {
				in.gone(s, v.Key, v.Nearest)
			}
		case chart.Known:
			in.later(s, v.Key)
		case chart.Group:
			if _, isMap := s.value.(map[string]any); !isMap && s.value != nil {
				s.dropped = true
				in.add("wrong-type", finding.Error, fmt.Sprintf("%s is a group of settings in the chart, not a value of its own", s.name()),
					"set one of its keys, for example "+in.example(s.path), sourceValues, s)
			}
		}
	}
	for path, i := range deep {
		in.fixTooDeep(path, i)
	}
	in.twice()
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

func (in *installation) unknown(s *setting, v chart.Verdict) {
	fix := "delete it"
	s.dropped = true
	if v.Nearest != nil {
		fix = "write " + v.Nearest.String()
		s.renamed, s.dropped = v.Nearest, false
	}
	in.add("unknown-key", finding.Error, fmt.Sprintf("no version of the chart has this key; %s ignores it without a word", in.version), fix, sourceValues, s)
}

// harmless reports whether the setting says what happens anyway: the chart's default where it has the key.
func (s *setting) harmless(k *chart.Key) bool {
	if s.path.String() != k.Path.String() || s.unknown {
		return false
	}
	for _, d := range k.Defaults() {
		if d.Known && scalarText(d.Value) == s.text() && s.text() != "" {
			return true
		}
	}
	return false
}

func (in *installation) early(s *setting, k *chart.Key) {
	severity := finding.Error
	if s.harmless(k) {
		severity = finding.Warning
	}
	s.dropped = true
	in.add("key-not-yet", severity, fmt.Sprintf("came with %s; %s ignores it without a word", k.Since, in.version),
		"delete it, or install "+k.Since.String()+" or later", sourceValues, s)
}

func (in *installation) gone(s *setting, k *chart.Key, to chart.Path) {
	severity := finding.Error
	if s.harmless(k) {
		severity = finding.Warning
	}
	next, _ := in.table.Next(k.Until)
	fix := chart.Advice(s.path)
	if fix == "" {
		fix = "delete it"
	}
	s.dropped = true
	if to != nil {
		if verdict := in.table.Judge(in.version, to); verdict.Status == chart.Known {
			in.carry(s, to)
		}
	}
	in.add("key-gone", severity, fmt.Sprintf("removed in %s; %s ignores it without a word", next, in.version), fix, sourceValues, s)
}

// carry moves the value of a key that is gone to its successor, where the value means the same there.
func (in *installation) carry(s *setting, to chart.Path) {
	switch s.path.String() {
	case "driver.useOpenKernelModules":
		if s.text() == "true" {
			s.added = []string{to.String() + "=open"}
		}
	case "driver.licensingConfig.configMapName", "kataManager.enabled":
	default:
		s.renamed, s.dropped = to, false
	}
}

// later notes that a key of this version is gone in the newest.
func (in *installation) later(s *setting, k *chart.Key) {
	if k.Until == (chart.Version{}) || !in.flags && in.repeatsDefault(s) {
		return
	}
	next, _ := in.table.Next(k.Until)
	fix := chart.Advice(s.path)
	in.add("key-goes", finding.Info, fmt.Sprintf("works with %s, but went with %s", in.version, next), fix, sourceValues, s)
}

// tooDeep reports keys below a string, the mistake of writing image.repository as other charts want it.
func (in *installation) tooDeep(s *setting, v chart.Verdict) {
	path := v.Key.Path.String()
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
	for _, s := range m.settings {
		s.dropped = true
	}
	component, isImage := strings.CutSuffix(path, ".image")
	if !isImage {
		return
	}
	m.Fix = fmt.Sprintf("set %s.repository, %s.image and %s.version", component, component, component)
	var added []string
	for _, s := range m.settings {
		value := s.text()
		switch s.path[len(s.path)-1] {
		case "repository", "name":
			repository, image, found := cutLast(value, "/")
			if !found {
				repository, image = "", value
			}
			if repository != "" {
				added = append(added, component+".repository="+repository)
			}
			if k, known := in.table.Key(chart.ParsePath(path)); known && image != "" {
				if since, old := replacedAt(k, image); !old || in.version.Before(since) {
					added = append(added, path+"="+image)
				}
			}
		case "tag", "version":
			if !slices.Contains(releasedWithChart, component) || sameVersion(value, in.version.String()) {
				added = append(added, component+".version="+value)
			}
		case "pullPolicy":
			added = append(added, component+".imagePullPolicy="+value)
		}
	}
	if len(added) > 0 {
		m.settings[0].added = added
		m.Fix = "write " + strings.Join(added, "\n      ")
		if in.flags {
			m.Fix = "--set " + strings.Join(added, " \\\n--set ")
		}
	}
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

// enumerations are the values that a key accepts, from the chart's comments and the custom resource definitions.
var enumerations = map[string][]string{
	"mig.strategy":                               {"none", "single", "mixed"},
	"sandboxWorkloads.defaultWorkload":           {"container", "vm-passthrough", "vm-vgpu"},
	"sandboxWorkloads.mode":                      {"kubevirt", "kata"},
	"daemonsets.updateStrategy":                  {"RollingUpdate", "OnDelete"},
	"driver.kernelModuleType":                    {"auto", "open", "proprietary"},
	"driver.nvidiaDriverCRD.driverType":          {"gpu", "vgpu", "vgpu-host-manager"},
	"ccManager.defaultMode":                      {"on", "off", "devtools"},
	"dcgmExporter.service.internalTrafficPolicy": {"Cluster", "Local"},
	"operator.logging.timeEncoding":              {"epoch", "millis", "nano", "iso8601", "rfc3339", "rfc3339nano"},
}

var pullPolicies = []string{"Always", "IfNotPresent", "Never"}

// types judges the value of each setting against what the chart has there.
func (in *installation) types() {
	for _, s := range in.settings {
		k, ok := in.table.Key(s.path)
		if !ok || !k.In(in.version) || s.unknown || s.value == nil {
			continue
		}
		allowed := enumerations[s.name()]
		if s.path[len(s.path)-1] == "imagePullPolicy" {
			allowed = pullPolicies
		}
		if s.name() == "migManager.config.default" && !in.version.Before(mustVersion(in.table, "v26.3.0")) {
			allowed = []string{"all-disabled", ""}
		}
		_, isList := s.value.([]any)
		_, isMap := s.value.(map[string]any)
		empty := s.text() == "" && !isList && !isMap
		switch {
		case k.Shape == chart.List && !isList && !empty:
			in.add("wrong-type", finding.Error, fmt.Sprintf("found %s, want a list", describe(s.value)), "", sourceValues, s)
		case k.Shape == chart.Map && !isMap && !empty:
			in.add("wrong-type", finding.Error, fmt.Sprintf("found %s, want a group of keys", describe(s.value)), "", sourceValues, s)
		case k.Shape == chart.Scalar && (isList || isMap):
			in.add("wrong-type", finding.Error, fmt.Sprintf("found %s, want a single value", describe(s.value)), "", sourceValues, s)
		case allowed != nil && !slices.Contains(allowed, s.text()):
			in.enumeration(s, allowed)
		case in.boolean(k):
			in.bool(s)
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

// boolean reports whether the key's default is true or false.
func (in *installation) boolean(k *chart.Key) bool {
	value, known := k.Default(in.version)
	_, isBool := value.(bool)
	return known && isBool
}

func (in *installation) bool(s *setting) {
	text := s.text()
	if text == "true" || text == "false" {
		return
	}
	fix := "write true or false"
	if near := finding.Nearest(strings.ToLower(text), []string{"true", "false"}); near != "" {
		fix = "write " + near
		s.changed = &near
	} else if lower := strings.ToLower(text); lower == "yes" || lower == "on" || lower == "1" {
		value := "true"
		fix, s.changed = "write true", &value
	} else if lower == "no" || lower == "off" || lower == "0" {
		value := "false"
		fix, s.changed = "write false", &value
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
