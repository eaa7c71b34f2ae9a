package lint

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

var (
	repositoryName = regexp.MustCompile(`^[a-z0-9]+([._-][a-z0-9]+)*(:[0-9]+)?(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*$`)
)

// given returns the setting that the user gives a known text; nil for none.
func (in *installation) given(path string) *model.Setting {
	if s := in.Explicit(path); s != nil && !s.Unknown && s.Text() != "" {
		return s
	}
	return nil
}

// images judges image triples: the operator joins them as repository/image:version, and takes the image alone for the
// whole reference where both others are empty.
func (in *installation) images() {
	const join = "the operator joins repository/image:version"
	for _, c := range in.Table.Images(in.Version) {
		if s := in.given(c + ".repository"); s != nil && !repositoryName.MatchString(s.Text()) {
			fix := ""
			trimmed := strings.Trim(strings.TrimPrefix(strings.TrimPrefix(s.Text(), "https://"), "http://"), "/ ")
			if repositoryName.MatchString(trimmed) {
				fix = "write " + trimmed
				in.set(s, trimmed)
			}
			in.add("image", report.Failed, fmt.Sprintf("%q is no registry and path; %s", s.Text(), join), fix, s)
		}
		if s := in.given(c + ".image"); s != nil && !(in.empty(c+".repository") && in.empty(c+".version")) {
			in.imageName(c, s)
		}
	}
}

// empty reports whether the chart sees no text at the path.
func (in *installation) empty(path string) bool {
	value, known := in.Value(path)
	return known && chart.Text(value) == ""
}

// imageName judges a name with a tag, a digest or the registry in it.
func (in *installation) imageName(component string, s *model.Setting) {
	value, _ := in.Value(component + ".repository")
	registry, _, _ := strings.Cut(chart.Text(value), "/")
	name := s.Text()
	inRegistry := in.Explicit(component+".repository") == nil && strings.Contains(name, "/") || strings.HasPrefix(name, registry+"/")
	if inRegistry || strings.ContainsAny(name, ":@ ") { // a mirror may keep the image at any path
		in.add("image", report.Failed, fmt.Sprintf("%q holds more than the image's name; the operator joins repository/image:version, which cannot be pulled", name),
			fmt.Sprintf("set %s.repository, %s.image and %s.version apart", component, component, component), s)
	}
}

// versions compares the operand versions that the user pins with those that the chart is made for. A pin works, so it
// stays, but for one case: a command that is brought to another release leaves the defaults of older releases behind.
func (in *installation) versions() {
	for _, c := range append(in.Table.Images(in.Version), "nfd") {
		name := c + ".version"
		if c == "nfd" {
			name = "node-feature-discovery.image.tag"
		}
		s, made := in.given(name), in.Table.Tag(in.Version, c)
		if s == nil || c == "driver" || made == "" || chart.SameTag(s.Text(), made) {
			continue // NVIDIA supports several branches of the driver with each release
		}
		if given := in.correction(s); given.Changes() || !in.flags && in.repeatsDefault(s) || in.ownImage(c) {
			continue
		}
		relation, severity, order := "not", report.Warning, chart.CompareTags(s.Text(), made)
		switch {
		case order > 0:
			relation = "newer than"
		case order < 0:
			relation = "older than"
		}
		reason := fmt.Sprintf("%s is %s %s, which chart %s is made for", s.Text(), relation, made, in.Version)
		fix := "delete it, unless you need this version: the chart brings the one it was tested with"
		for _, v := range slices.Backward(in.Table.Versions()) {
			if chart.SameTag(s.Text(), in.Table.Tag(v, c)) {
				reason, fix = reason+": it is the default of "+v.String(), "delete it: the chart brings the version it was tested with"
				if order > 0 {
					severity = report.Note
				}
				in.correct(s).Drop = in.lifted && v.Before(in.Version)
				break
			}
		}
		in.add("operand-version", severity, reason, fix, s)
	}
}

// ownImage reports whether the operand is pulled from a path that is no mirror of upstream's, so that its versions are
// not upstream's either: another exporter, or a driver that the user builds.
func (in *installation) ownImage(component string) bool {
	s := in.Explicit(component + ".repository")
	if s == nil {
		return false
	}
	upstream, known := in.Table.Default(in.Version, component+".repository")
	_, path, hasPath := strings.Cut(chart.Text(upstream), "/")
	return known && hasPath && s.Text() != path && !strings.HasSuffix(s.Text(), "/"+path)
}

// oldDefaults reports former defaults of the chart that something else has replaced. A file keeps the setting, with the
// release's own value.
func (in *installation) oldDefaults() {
	for _, s := range in.Settings {
		k, known := in.Table.Key(s.Path)
		if !known || !k.In(in.Version) || in.correction(s).Drop || s.Text() == "" {
			continue
		}
		value, _ := k.Default(in.Version)
		current := chart.Text(value)
		since, found := k.Replaced(s.Text())
		found = found && current != s.Text() && !in.Version.Before(since)
		switch last := s.Path[len(s.Path)-1]; {
		case last == "repository":
			in.moved(k, s, current)
		case last == "image" && found:
			all, component := []*model.Setting{s}, strings.Join(s.Path[:len(s.Path)-1], ".")
			in.replaceOrDrop(s, current)
			if version := in.given(component + ".version"); version != nil { // of the other image
				in.replaceOrDrop(version, in.Table.Tag(in.Version, component))
				all = append(all, version)
			}
			in.add("old-default", report.Failed, fmt.Sprintf("was the chart's default before %s; this release has the image as %s", since, current), "delete it", all...)
		case s.Name() == "migManager.config.name" && found:
			in.correct(s).Drop = in.lifted
			in.add("old-default", report.Warning, fmt.Sprintf("was the chart's default before %s; naming it turns off the configs that the MIG manager makes for each node's GPUs", since), "delete it", s)
		}
	}
}

func (in *installation) replaceOrDrop(s *model.Setting, current string) {
	if in.keep && current != "" {
		in.set(s, current)
	} else {
		in.correct(s).Drop = true
	}
}

// moved reports a path at which upstream keeps the image no more: in its own registry nothing is there, and a mirror
// follows.
func (in *installation) moved(k *chart.Key, s *model.Setting, current string) {
	_, now, _ := strings.Cut(current, "/")
	for _, d := range k.Defaults() {
		_, before, hasPath := strings.Cut(chart.Text(d.Value), "/")
		registry, is := strings.CutSuffix(s.Text(), "/"+before)
		if !is || !hasPath || now == "" || before == now || in.Version.Before(d.From) {
			continue
		}
		severity, right := report.Warning, registry+"/"+now
		if right == current {
			severity = report.Failed
		}
		in.set(s, right)
		in.add("old-default", severity, fmt.Sprintf("upstream keeps the image under %s in this release, under %s before", now, before), "write "+right, s)
		return
	}
}
