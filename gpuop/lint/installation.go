package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fix"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
)

// installation holds the settings for one release of the chart, and the findings about them.
type installation struct {
	model.Values
	mistakes    []mistake
	corrections map[*model.Setting]*correction
	kind        kind // kindValues or a custom resource, in which the chart has filled in all fields
	flags       bool // the settings come from the flags and the values files of a command
	moreFlags   bool // the command contains words such as $HELM_OPTIONS, which may expand to further flags
	upgraded    bool // the command names another release, whose defaults the settings may copy
	assumed     bool // the release is a guess: findings that depend on it are at most warnings
	unreadChart bool // the chart is in a folder that could not be read, and may be a modified one
	modified    bool // the values are beside a modified chart: its values.yaml has other keys than NVIDIA's
	keep        bool // a values file is edited: settings without effect stay, old images are replaced
}

// correction is the change of a setting.
type correction struct {
	fix.Edit
	idle bool // the setting is dropped only because it has no effect
}

func newInstallation(table *chart.Table, v chart.Version, settings []*model.Setting) *installation {
	return &installation{kind: kindValues, Values: model.Values{Table: table, Version: v, Settings: settings},
		corrections: map[*model.Setting]*correction{}}
}

// runRules runs the rules that apply to the kind. Later rules ignore settings that earlier rules drop.
func (in *installation) runRules() {
	isValues := in.kind == kindValues
	if isValues {
		in.keys()
		in.duplicateFlags()
		in.types()
	}
	in.images()
	if in.kind != kindNVIDIADriver {
		in.deadSettings()
	}
	in.precompiledVersion()
	in.contradictions()
	in.configs()
	if isValues {
		in.oldDefaults()
	}
	in.versions()
	if isValues && !in.flags && len(in.Settings) >= 50 {
		in.foldCopy()
	}
}

// foldCopy merges the findings about defaults of another release if the file is a copy of that release's values.yaml:
// nine in ten settings equal the defaults. If several releases match equally, the checked one or else the newest wins.
func (in *installation) foldCopy() {
	var release chart.Version
	most := len(in.Settings) * 9 / 10
	isDefault := func(v chart.Version, s *model.Setting) bool {
		value, known := in.Table.Default(v, s.Name())
		return known && !s.Unknown && chart.Same(value, s.Value)
	}
	for _, v := range in.Table.Versions() {
		same := 0
		for _, s := range in.Settings {
			if isDefault(v, s) {
				same++
			}
		}
		if same > most || same == most && release != in.Version {
			release, most = v, same
		}
	}
	if release == (chart.Version{}) || release == in.Version {
		return
	}
	before := len(in.mistakes)
	in.mistakes = slices.DeleteFunc(in.mistakes, func(m mistake) bool {
		return !slices.ContainsFunc(m.settings, func(s *model.Setting) bool { return !isDefault(release, s) })
	})
	if folded := before - len(in.mistakes); folded > 0 {
		const fix = "to check them for their release, add --version %s; to upgrade: gpuop values migrate --from %[1]s"
		f := check.Finding{Check: oldDefault, File: in.Settings[0].File, Fix: fmt.Sprintf(fix, release)}
		f.Say(check.Warning, "the file contains the defaults of %s, which cause %s for %s", release,
			check.Count(folded, "finding"), in.Version)
		in.mistakes = append(in.mistakes, mistake{Finding: f})
	}
}

// correction returns the correction of a setting, for the caller to change.
func (in *installation) correction(s *model.Setting) *correction {
	if in.corrections[s] == nil {
		in.corrections[s] = &correction{Edit: fix.Edit{Path: s.Path}}
	}
	return in.corrections[s]
}

// set records value as the correction of a setting.
func (in *installation) set(s *model.Setting, value string) { in.correction(s).Value = &value }

// mistake is a finding with its settings.
type mistake struct {
	check.Finding
	settings []*model.Setting
	names    int // the number of names up to and including the wrong one, or 0 if the finding is not about a name
}

// add adds a finding at the position of the first setting. The caller may change the returned finding.
func (in *installation) add(id *check.Check, reason, fix string, settings ...*model.Setting) *mistake {
	names := make([]string, len(settings))
	for i, s := range settings {
		names[i] = s.Name()
	}
	f := placeOf(settings[0], "")
	f.Check, f.Severity, f.Subject, f.Reason, f.Fix = id, id.Severity, strings.Join(names, ", "), reason, fix
	in.mistakes = append(in.mistakes, mistake{Finding: f, settings: settings})
	return &in.mistakes[len(in.mistakes)-1]
}

// findings returns the findings, merged by cause. Errors that depend on a guess become warnings.
func (in *installation) findings() []check.Finding {
	var out []check.Finding
	for _, m := range in.mistakes {
		if in.assumed && (m.Check == keyGone || m.Check == keyNotYet || m.Check == oldDefault) ||
			in.unreadChart && m.Check == fields.UnknownKey {
			m.Severity = min(m.Severity, check.Warning)
		}
		// in files, most findings have a line of their own
		isRepeated := in.flags || m.Severity == check.Warning && (m.Check == keyGone || m.Check == deadSetting)
		if isRepeated && m.Cause == "" {
			m.Cause = strings.Join([]string{m.Check.ID, m.Severity.String(), m.File, m.Reason, m.Fix}, "\n")
		}
		out = append(out, m.Finding)
	}
	// a merged finding has the line of the first one
	slices.SortStableFunc(out, func(a, b check.Finding) int { return cmp.Compare(a.Line, b.Line) })
	return check.Together(out)
}

// keys checks the path of each setting. If a name is wrong, there is one finding for all settings below it.
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
		f := in.key(s, v)
		if f.Check == nil {
			continue
		}
		parent := s.Path[:v.Bad+1].String()
		if i, again := seen[f.Check.ID+parent]; again {
			m := &in.mistakes[i]
			m.settings, m.Severity = append(m.settings, s), max(m.Severity, f.Severity)
			continue
		}
		seen[f.Check.ID+parent] = len(in.mistakes)
		f.Subject, f.File, f.Line, f.Column = s.Name(), s.File, s.Line, s.Column
		if v.Bad < len(s.Path)-1 {
			f.Subject = parent
			if v.Bad < len(s.Keys) && v.Status != chart.TooDeep {
				f.Line, f.Column = s.Keys[v.Bad].Line+s.Shift, s.Keys[v.Bad].Column
			}
		}
		in.mistakes = append(in.mistakes, mistake{f, []*model.Setting{s}, v.Bad + 1})
	}
}

// key checks the path of a setting. The returned finding has no check if there is nothing to report.
func (in *installation) key(s *model.Setting, v chart.Match) check.Finding {
	f := check.Finding{Severity: check.Error}
	switch v.Status {
	case chart.Unknown:
		in.unknownKey(s, v, &f)
	case chart.Misspelled:
		f.Check, f.Severity, f.Fix = misspeltKey, check.Warning, "did you mean "+suggestion(s, v).String()+"?"
		f.Reason = fmt.Sprintf("the chart has %s; this name adds a second entry", suggestion(s, v))
	case chart.BelowList:
		f.Check, f.Reason = fields.WrongType, "found a group of keys, expected a list"
	case chart.TooDeep:
		path := v.Key.Path.String()
		f.Check, f.Fix = belowValue, "set "+path+" itself"
		f.Reason = path + " is a single value in this chart, not a group of keys"
		if component, isImage := strings.CutSuffix(path, ".image"); isImage {
			f.Reason += `: the image's name becomes "map[…]" and cannot be pulled`
			f.Fix = "set " + component + ".repository, .image and .version"
		}
	case chart.NotYet, chart.Gone:
		in.otherRelease(s, v, &f)
	case chart.Known:
		if removed := v.Key.Removed(); removed != (chart.Version{}) && (in.flags || !in.repeatsDefault(s)) {
			f.Check, f.Severity = keyGoes, check.Note
			_, f.Fix = chart.Successor(s.Path)
			f.Reason = fmt.Sprintf("works with %s, but was removed in %s", in.Version, removed)
		}
	case chart.Group:
		in.valueOfGroup(s, &f)
	}
	return f
}

// unknownKey reports a key that no release has, unless it only holds YAML anchors, such as .common or x-common.
func (in *installation) unknownKey(s *model.Setting, v chart.Match, f *check.Finding) {
	if s.Node != nil && (strings.HasPrefix(s.Path[0], ".") || strings.HasPrefix(s.Path[0], "x-")) {
		return
	}
	f.Check, f.Fix = fields.UnknownKey, "delete it, unless your own tools read it"
	f.Reason = fmt.Sprintf("no version of the chart has this key; %s silently ignores it", in.Version)
	switch {
	case s.Path[0] == model.OperatorNamespace:
		f.Reason = "the chart's own values are not nested below its name; everything below this key is ignored"
		f.Fix = "write the keys without " + s.Path[0] + ": above them"
	case in.modified:
		f.Severity, f.Fix = check.Note, ""
		f.Reason = "gpu-operator " + in.Version.String() +
			" does not have this key; the templates of this modified copy may read it"
	case v.Nearest != nil:
		f.Fix = "did you mean " + suggestion(s, v).String() + "?"
	case v.Bad > 0 && len(v.Names) > 0 && len(v.Names) <= 12:
		slices.Sort(v.Names)
		f.Fix = s.Path[:v.Bad].String() + " has the keys " + strings.Join(slices.Compact(v.Names), ", ")
	}
}

// suggestion returns the path to suggest for a wrong one. If only one name differs, the path ends with that name.
func suggestion(s *model.Setting, v chart.Match) chart.Path {
	if len(v.Nearest) == len(s.Path) && slices.Equal(v.Nearest[v.Bad+1:], s.Path[v.Bad+1:]) {
		return v.Nearest[:v.Bad+1]
	}
	return v.Nearest
}

// otherRelease reports a key of other releases. The correction renames it to its successor, or drops it.
func (in *installation) otherRelease(s *model.Setting, v chart.Match, f *check.Finding) {
	if !s.Unknown && in.Table.WasDefault(s.Setting) {
		f.Severity = check.Note
	}
	c := in.correction(s)
	c.Drop = true
	if since := v.Key.Since(); in.Version.Before(since) {
		f.Check, f.Fix = keyNotYet, "delete it, or install "+since.String()+" or later"
		f.Reason = fmt.Sprintf("added in %s; %s silently ignores it", since, in.Version)
		return
	}
	_, advice := chart.Successor(s.Path)
	if advice != "" && v.Nearest == nil {
		f.Severity = min(f.Severity, check.Warning)
	}
	f.Check, f.Fix = keyGone, cmp.Or(advice, "delete it")
	f.Reason = fmt.Sprintf("removed in %s: %s no longer reads it", v.Key.Removed(), in.Version)
	known := in.Table.Lookup(in.Version, v.Nearest).Status == chart.Known
	name := s.Path.String()
	isOpen := name == "driver.useOpenKernelModules"
	if !known || in.Explicit(v.Nearest.String()) != nil || isOpen && s.Text() != "true" ||
		name == "kataManager.enabled" { // the successor does something else
		return
	}
	if c.Drop, c.Rename = false, v.Nearest; isOpen {
		in.set(s, "open")
	}
}

// valueOfGroup checks a value at the path of a group. Helm removes the defaults of an empty group.
func (in *installation) valueOfGroup(s *model.Setting, f *check.Finding) {
	isSet := func(below *model.Setting) bool { return below.Value != nil }
	text, isText := s.Value.(string)
	_, isMap := s.Value.(map[string]any)
	keys := ": gpuop explain .Values." + s.Name() + " lists them"
	switch {
	case isMap || s.Unknown:
	case s.Value == nil && (in.moreFlags || slices.ContainsFunc(in.Below(s.Name()), isSet) ||
		s.Path[0] == "node-feature-discovery"): // a subchart keeps its own defaults
	case s.Value == nil:
		f.Check, f.Fix = nullGroup, "delete the key, or write one of its keys"+keys
		f.Severity, f.Reason = check.Note, "it is empty, so Helm deletes the chart's defaults below it"
		if in.Table.Needed(in.Version, s.Path) {
			f.Severity, f.Reason = check.Error, f.Reason+", and the templates fail with a nil pointer"
		}
	default:
		f.Check, f.Fix = fields.WrongType, "set one of its keys"+keys
		f.Reason = s.Name() + " is a group of settings in " + in.Version.String() + ", not a value of its own"
		if isText && isMapping([]byte(text)) {
			f.Fix = "write the settings in the text as keys, without the |"
			if _, everKey := in.Table.Key(s.Path); everKey && in.assumed { // it may have been a string once
				f.Severity = check.Warning
			}
		}
	}
}

// duplicateFlags reports flags that set the same key to different values. The YAML reader does it for files.
func (in *installation) duplicateFlags() {
	last := map[string]*model.Setting{}
	for _, s := range in.Settings {
		if s.Node != nil || s.Perhaps {
			delete(last, s.Name())
			continue
		}
		before := last[s.Name()]
		last[s.Name()] = s
		if before != nil && before.Text() != s.Text() {
			in.correction(before).Drop = true
			reason := fmt.Sprintf("set twice; %q is used, %q is ignored", s.Text(), before.Text())
			in.add(setTwice, reason, "keep one", s)
		}
	}
}
