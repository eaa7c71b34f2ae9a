package lint

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// off is the first condition that does not hold, and its opposite; both are empty where all hold or one is not known.
func (in *installation) off(when []chart.Condition) (is, wanted string) {
	for _, c := range when {
		key, want, compares := strings.Cut(string(c), "=")
		value, known := in.Value(key)
		k, has := in.Table.Key(strings.Split(key, "."))
		switch text := chart.Text(value); {
		case c == chart.Never:
			return fmt.Sprintf("the operator of %s makes nothing of it", in.Version), ""
		case !has || !k.In(in.Version) || !known || want == "*":
		case compares && text != want, !compares && text == "false":
			if is = key + "=" + text; in.Explicit(key) == nil {
				is += ", which is the default"
			}
			return is, key + "=" + cmp.Or(want, "true")
		}
	}
	return "", ""
}

// dead reports settings that a switch turns off. A file may repeat defaults, and a copy of some values.yaml those of its
// release.
func (in *installation) dead() {
	reported, copied := map[*model.Setting]bool{}, !in.flags && in.copied()
	for _, p := range in.Table.Parts(in.Version) {
		groupIs, groupWanted := in.off(p.When)
		ownIs, ownWanted := in.off(p.When[1:])
		for _, s := range in.Below(p.Group, p.Except...) {
			is, wanted := groupIs, groupWanted
			own := s.Name() == string(p.When[0])
			if own {
				is, wanted = ownIs, ownWanted
			}
			if is == "" || own && s.Text() != "true" || reported[s] || !in.mayBeDead(s) {
				continue
			}
			reported[s] = true
			if copied && in.Table.WasDefault(s.Setting) {
				in.correct(s).Drop, in.correct(s).idle = true, true
				continue
			}
			fix := "set " + wanted
			switch {
			case wanted == "":
				fix = "delete it"
			case !own:
				fix = "delete it, or " + fix
			}
			if !own || p.Host != "" || wanted == "" {
				in.correct(s).Drop, in.correct(s).idle = true, true
			}
			in.add("dead-setting", report.Warning, "has no effect: "+is, fix, s)
		}
	}
}

// mayBeDead leaves out dropped, renamed and unknown settings, and the defaults that a file repeats.
func (in *installation) mayBeDead(s *model.Setting) bool {
	c := in.correction(s)
	if c.Drop || s.Unknown || c.Rename != nil || !in.flags && in.repeatsDefault(s) {
		return false
	}
	return in.Verdict(s).Status != chart.Unknown
}

// copied reports whether the file is a copy of values.yaml of some release.
func (in *installation) copied() bool {
	defaults := 0
	for _, s := range in.Settings {
		if in.Table.WasDefault(s.Setting) {
			defaults++
		}
	}
	return defaults > 50 && defaults > len(in.Settings)/2
}

// repeatsDefault reports whether the setting equals the release's own default.
func (in *installation) repeatsDefault(s *model.Setting) bool {
	if last := s.Path[len(s.Path)-1]; last == "version" && chart.Released(s.Path[0]) && s.Text() == in.Table.AppVersion(in.Version) {
		return true
	}
	if _, isList := s.Value.([]any); in.isResource() && isList {
		return true // what the chart writes there by itself
	}
	value, known := in.Table.Default(in.Version, s.Name())
	return known && chart.Same(value, s.Value)
}

// contradictions reports settings that exclude each other.
func (in *installation) contradictions() {
	for _, e := range in.Table.Exclusions {
		holds := true
		for _, condition := range e.When {
			path, want, compares := strings.Cut(condition, "=")
			value, known := in.Value(path)
			text := chart.Text(value)
			holds = holds && known && !in.correction(in.Explicit(path)).Drop && (compares && text == want || !compares && text != "")
		}
		var given []*model.Setting
		for _, path := range e.At {
			if s := in.Explicit(path); s != nil {
				given = append(given, s)
			}
		}
		severity := report.Warning
		if e.Severe {
			severity = report.Failed
		}
		if holds && len(given) > 0 {
			in.add("excludes", severity, e.Reason, e.Fix, given...)
		}
	}
}

// precompiledVersion looks at the version in force: the chart's own default is no branch.
func (in *installation) precompiledVersion() {
	s := in.Explicit("driver.version")
	value, known := in.Value("driver.version")
	version := chart.Text(value)
	if !known || version == "" || chart.DriverBranch(version) || !in.Is("driver.usePrecompiled", true) || s == nil && in.isResource() || in.ownImage("driver") {
		return
	}
	major, _, _ := strings.Cut(version, ".")
	fix, reason := "write a branch such as 580", fmt.Sprintf("found %q", version)
	if chart.DriverBranch(major) {
		fix = "write " + major
		switch {
		case s == nil:
			fix = "set driver.version=" + major
		case !in.correction(s).Drop:
			in.set(s, major)
		}
	}
	if s == nil {
		if s = in.Explicit("driver.usePrecompiled"); s == nil || in.correction(s).Drop {
			return
		}
		reason = "driver.version is the chart's own " + version
	}
	in.add("precompiled-version", report.Failed,
		fmt.Sprintf("driver.usePrecompiled=true wants a driver branch, %s; precompiled images are tagged <branch>-<kernel>-<os>", reason), fix, s)
}
