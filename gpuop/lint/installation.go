package lint

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fix"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
)

// rule is a check of settings.
type rule struct {
	// ids are the IDs of its findings.
	// of lists the kinds of documents that it applies to.
	of    []kind
	check func(*installation)
}

var (
	ofValues   = []kind{kindValues}
	ofPolicies = []kind{kindValues, kindClusterPolicy, kindGPUCluster}
	ofAll      = []kind{kindValues, kindClusterPolicy, kindGPUCluster, kindNVIDIADriver}
)

// rules are in the order in which they run. Later rules ignore settings that earlier ones drop.
var rules = []rule{
	{ofValues, (*installation).keys},
	{ofValues, (*installation).twice},
	{ofValues, (*installation).types},
	{ofAll, (*installation).images},
	{ofPolicies, (*installation).dead},
	{ofAll, (*installation).precompiledVersion},
	{ofAll, (*installation).contradictions},
	{ofAll, (*installation).configs},
	{ofValues, (*installation).oldDefaults},
	{ofAll, (*installation).versions},
}

// installation is a set of values for one release of the chart, with the mistakes in it.
type installation struct {
	model.Values
	mistakes []mistake
	// corrections has the correction of each setting.
	corrections map[*model.Setting]*correction
	// flags means that the settings are flags of a command.
	flags bool
	// moreFlags means that there are further flags, with unknown content.
	moreFlags bool
	// upgraded means that the command was written for another release, so that it may repeat old defaults.
	upgraded bool
	// assumed means that the release is unknown, so that keys of an older release may be right.
	assumed bool
	// chartMissing means that the chart is in a folder that could not be read. It may be a custom chart.
	chartMissing bool
	// modified means that the values are those of a copy of the chart, which may have templates of its own.
	modified bool
	// keep keeps settings without effect, because the user wrote them.
	keep bool
	// kind is values or a custom resource. The chart fills in all fields of a custom resource.
	kind kind
}

// correction says how to change a setting.
type correction struct {
	fix.Edit
	// idle means that only commands drop the setting. The release reads it, so a file keeps it.
	idle bool
}

func newInstallation(table *chart.Table, v chart.Version, settings []*model.Setting) *installation {
	return &installation{kind: kindValues, Values: model.Values{Table: table, Version: v, Settings: settings}, corrections: map[*model.Setting]*correction{}}
}

// judge runs the rules that apply to the kind.
func (in *installation) judge() {
	for _, r := range rules {
		if slices.Contains(r.of, in.kind) {
			r.check(in)
		}
	}
	in.foldCopy()
}

// foldCopy replaces the findings about the defaults of another release by one, if the file is a copy of its values.yaml.
func (in *installation) foldCopy() {
	release := in.copyOf()
	if release == (chart.Version{}) || release == in.Version {
		return
	}
	before := len(in.mistakes)
	in.mistakes = slices.DeleteFunc(in.mistakes, func(m mistake) bool {
		return len(m.settings) > 0 && !slices.ContainsFunc(m.settings, func(s *model.Setting) bool { return !in.isDefaultOf(release, s) })
	})
	if len(in.mistakes) < before {
		in.mistakes = append(in.mistakes, mistake{Finding: check.Finding{Check: oldDefault, Severity: check.Warning, File: in.Settings[0].File,
			Reason: fmt.Sprintf("the file contains the defaults of %s; %d of them differ from the defaults of %s", release, before-len(in.mistakes), in.Version),
			Fix:    fmt.Sprintf("to check them for their release, add --version %s; to upgrade, use gpuop values migrate --from %s", release, release)}})
	}
}

// copyOf returns the release whose values.yaml the file copies: nine in ten of its settings are that release's defaults,
// and at least 50. Of several, the checked release or the newest is returned; without any, the zero Version.
func (in *installation) copyOf() (best chart.Version) {
	if in.flags || in.isResource() || len(in.Settings) < 50 {
		return best
	}
	most := len(in.Settings) * 9 / 10
	for _, v := range in.Table.Versions() {
		same := 0
		for _, s := range in.Settings {
			if in.isDefaultOf(v, s) {
				same++
			}
		}
		if same > most || same == most && (best != in.Version) {
			best, most = v, same
		}
	}
	return best
}

// isDefaultOf reports whether a setting equals the default of a release.
func (in *installation) isDefaultOf(v chart.Version, s *model.Setting) bool {
	value, known := in.Table.Default(v, s.Name())
	return known && !s.Unknown && chart.Same(value, s.Value)
}

// isResource reports whether the settings are fields of a custom resource.
func (in *installation) isResource() bool { return in.kind != kindValues }

// correct returns the correction of a setting, which the caller may change.
func (in *installation) correct(s *model.Setting) *correction {
	if in.corrections[s] == nil {
		in.corrections[s] = &correction{Edit: fix.Edit{Path: s.Path}}
	}
	return in.corrections[s]
}

// correction returns a copy of the correction of a setting.
func (in *installation) correction(s *model.Setting) correction {
	if c := in.corrections[s]; c != nil {
		return *c
	}
	return correction{}
}

// set corrects the value of a setting.
func (in *installation) set(s *model.Setting, value string) { in.correct(s).Value = &value }

// mistake is a finding with the settings that it is about.
type mistake struct {
	check.Finding
	settings []*model.Setting
	// names is the depth of the name that is wrong for all settings below it. It is 0 for other findings.
	names int
}

// add adds a finding, at the position of the first setting.
func (in *installation) add(id *check.Check, severity check.Severity, reason, fix string, settings ...*model.Setting) {
	f := check.Finding{Check: id, Severity: severity, Reason: reason, Fix: fix}
	if len(settings) > 0 {
		names := make([]string, len(settings))
		for i, s := range settings {
			names[i] = s.Name()
		}
		f.Subject = strings.Join(names, ", ")
		f.File, f.Line, f.Column = settings[0].File, settings[0].Line, settings[0].Column
	}
	in.mistakes = append(in.mistakes, mistake{Finding: f, settings: settings})
}

// releaseDependent lists the findings that depend on the chart's release.
var releaseDependent = []*check.Check{keyGone, keyNotYet, oldDefault}

// findings returns the findings. For a command, findings of the same kind are merged.
func (in *installation) findings() []check.Finding {
	var out []check.Finding
	for _, m := range in.mistakes {
		if in.assumed && slices.Contains(releaseDependent, m.Check) || in.chartMissing && m.Check == fields.UnknownKey {
			m.Severity = min(m.Severity, check.Warning)
		}
		i := slices.IndexFunc(out, func(f check.Finding) bool {
			return f.Check == m.Check && f.Severity == m.Severity && f.Reason == m.Reason && f.Fix == m.Fix
		})
		if in.flags && i >= 0 && m.Subject != "" {
			out[i].Subject += ", " + m.Subject
			continue
		}
		out = append(out, m.Finding)
	}
	return out
}

// keys checks each setting's path against the chart's keys. A wrong name is one finding for all settings below it.
func (in *installation) keys() {
	seen := map[string]int{}
	for _, s := range in.Settings {
		v := in.Match(s)
		switch v.Status {
		case chart.TooDeep, chart.BelowList:
			v.Bad--
		case chart.Group:
			v.Bad = len(s.Path) - 1
		}
		row := in.key(s, v)
		if row.Check == nil {
			continue
		}
		parent := s.Path[:v.Bad+1].String()
		if i, again := seen[row.Check.ID+parent]; again {
			m := &in.mistakes[i]
			m.settings, m.Severity = append(m.settings, s), max(m.Severity, row.Severity)
			continue
		}
		seen[row.Check.ID+parent] = len(in.mistakes)
		row.Subject, row.File, row.Line, row.Column = s.Name(), s.File, s.Line, s.Column
		if v.Bad < len(s.Path)-1 {
			row.Subject = parent
			if v.Bad < len(s.Keys) && v.Status != chart.TooDeep {
				row.Line, row.Column = s.Keys[v.Bad].Line+s.Shift, s.Keys[v.Bad].Column
			}
		}
		in.mistakes = append(in.mistakes, mistake{row, []*model.Setting{s}, v.Bad + 1})
	}
}

// key checks the path of a setting and corrects it. The row of a valid path has no ID.
func (in *installation) key(s *model.Setting, v chart.Match) check.Finding {
	row := check.Finding{Severity: check.Error}
	switch v.Status {
	case chart.Unknown:
		if isAnchor(s) {
			return check.Finding{}
		}
		row.Check, row.Fix = fields.UnknownKey, "delete it, unless your own tools read it"
		row.Reason = fmt.Sprintf("no version of the chart has this key; %s silently ignores it", in.Version)
		if isNested(s.Path) {
			row.Reason, row.Fix = nested(s.Path)
		} else if in.modified {
			row.Reason = fmt.Sprintf("gpu-operator %s does not have this key; the templates of this modified copy may read it", in.Version)
			row.Severity, row.Fix = check.Note, ""
		} else if v.Nearest != nil {
			row.Fix = "did you mean " + suggestion(s, v).String() + "?"
		} else if v.Bad > 0 && len(v.Names) > 0 && len(v.Names) <= maxNames {
			slices.Sort(v.Names)
			row.Fix = s.Path[:v.Bad].String() + " has the keys " + strings.Join(slices.Compact(v.Names), ", ")
		}
	case chart.Misspelt:
		row.Check, row.Severity, row.Fix = misspeltKey, check.Warning, "did you mean "+suggestion(s, v).String()+"?"
		row.Reason = fmt.Sprintf("did you mean %s? this adds a second entry", suggestion(s, v))
	case chart.BelowList:
		row.Check, row.Reason = fields.WrongType, "found a group of keys, expected a list"
	case chart.TooDeep:
		path := v.Key.Path.String()
		row.Check, row.Reason, row.Fix = belowValue, path+" is a single value in this chart, not a group of keys", "set "+path+" itself"
		if component, isImage := strings.CutSuffix(path, ".image"); isImage {
			row.Reason = path + ` is a string in this chart; with keys below it the image's name becomes "map[…]" and cannot be pulled`
			row.Fix = fmt.Sprintf("set %s.repository, %s.image and %s.version", component, component, component)
		}
	case chart.NotYet, chart.Gone:
		row.Check, row.Severity, row.Reason, row.Fix = in.otherRelease(s, v)
	case chart.Known:
		if until := v.Key.Until(); until != (chart.Version{}) && (in.flags || !in.repeatsDefault(s)) {
			next, _ := in.Table.Next(until)
			row.Check, row.Severity, row.Fix = keyGoes, check.Note, chart.Advice(s.Path)
			row.Reason = fmt.Sprintf("works with %s, but was removed in %s", in.Version, next)
		}
	case chart.Group:
		in.valueOfGroup(s, &row)
	}
	return row
}

// maxNames limits how many keys a fix lists.
const maxNames = 12

// isAnchor reports whether a setting is below a top-level key that only holds YAML anchors: .common, x-common.
func isAnchor(s *model.Setting) bool {
	return s.Node != nil && (strings.HasPrefix(s.Path[0], ".") || strings.HasPrefix(s.Path[0], "x-"))
}

// suggestion returns the suggested path. If only the wrong name differs, it ends there.
func suggestion(s *model.Setting, v chart.Match) chart.Path {
	if len(v.Nearest) == len(s.Path) && slices.Equal(v.Nearest[v.Bad+1:], s.Path[v.Bad+1:]) {
		return v.Nearest[:v.Bad+1]
	}
	return v.Nearest
}

// otherRelease checks a key that only earlier or later releases have. Its value moves to the successor if that means
// the same.
func (in *installation) otherRelease(s *model.Setting, v chart.Match) (id *check.Check, state check.Severity, reason, fix string) {
	advice := chart.Advice(s.Path)
	state = check.Error
	if !s.Unknown && in.Table.WasDefault(s.Setting) {
		state = check.Note
	}
	c := in.correct(s)
	c.Drop = true
	if in.Version.Before(v.Key.Since()) {
		return keyNotYet, state, fmt.Sprintf("added in %s; %s silently ignores it", v.Key.Since(), in.Version),
			"delete it, or install " + v.Key.Since().String() + " or later"
	}
	if state == check.Error && chart.IsObsolete(s.Path) {
		state = check.Warning
	}
	if advice == "" {
		advice = "delete it"
	}
	next, _ := in.Table.Next(v.Key.Until())
	if v.Nearest != nil && in.Table.Lookup(in.Version, v.Nearest).Status == chart.Known {
		switch s.Path.String() {
		case "driver.useOpenKernelModules":
			if s.Text() == "true" && in.Explicit(v.Nearest.String()) == nil {
				c.Drop, c.Rename = false, v.Nearest
				in.set(s, "open")
			}
		case "kataManager.enabled": // the successor enables something else
		default:
			if in.Explicit(v.Nearest.String()) == nil {
				c.Drop, c.Rename = false, v.Nearest
			}
		}
	}
	return keyGone, state, fmt.Sprintf("removed in %s: %s no longer reads it", next, in.Version), advice
}

// valueOfGroup checks a value at the path of a group. If all keys of the group are commented out, Helm removes the
// group's defaults, unless another file or flag sets a key in it.
func (in *installation) valueOfGroup(s *model.Setting, row *check.Finding) {
	if _, isMap := s.Value.(map[string]any); isMap || s.Unknown {
		return
	}
	example := s.Name()
	for _, k := range in.Table.Keys(in.Version) {
		if len(k.Path) > len(s.Path) && slices.Equal(k.Path[:len(s.Path)], s.Path) {
			example = k.Path.String()
			break
		}
	}
	if s.Value == nil {
		filled := slices.ContainsFunc(in.Below(s.Name()), func(below *model.Setting) bool { return below.Value != nil })
		if in.moreFlags || filled || s.Path[0] == "node-feature-discovery" { // a subchart keeps its own defaults
			return
		}
		row.Check, row.Fix = nullGroup, "delete the key, or write one of its keys, for example "+example
		row.Severity, row.Reason = check.Note, "it is empty, so Helm deletes the chart's defaults below it"
		if in.Table.Needed(in.Version, s.Path) {
			row.Severity, row.Reason = check.Error, row.Reason+", and the templates fail with a nil pointer"
		}
		return
	}
	row.Check, row.Fix = fields.WrongType, "set one of its keys, for example "+example
	row.Reason = s.Name() + " is a group of settings in the chart, not a value of its own"
	var doc yaml.Node
	if text, isText := s.Value.(string); isText && yaml.Unmarshal([]byte(text), &doc) == nil && len(doc.Content) == 1 && doc.Content[0].Kind == yaml.MappingNode {
		row.Reason = fmt.Sprintf("found a string that contains the settings; %s is a group of settings in %s", s.Name(), in.Version)
		row.Fix = "write them as keys, without the |"
		if _, once := in.Table.Key(s.Path); once && in.assumed {
			row.Severity = check.Warning // another release has a string here
		}
	}
}

// twice reports flags that set the same key again. For files, the YAML reader reports duplicates.
func (in *installation) twice() {
	last := map[string]*model.Setting{}
	for _, s := range in.Settings {
		before := last[s.Name()]
		last[s.Name()] = s
		if before == nil || before.Node != nil || s.Node != nil || before.Perhaps || s.Perhaps || before.Text() == s.Text() {
			continue
		}
		in.correct(before).Drop = true
		in.add(setTwice, check.Warning, fmt.Sprintf("set twice; %q is used, %q is ignored", s.Text(), before.Text()), "keep one", s)
	}
}
