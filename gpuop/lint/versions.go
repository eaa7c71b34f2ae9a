package lint

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

var (
	repositoryName = regexp.MustCompile(`^[a-z0-9]+([._-][a-z0-9]+)*(:[0-9]+)?(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*$`)
)

// components are the operands with an image triple (repository, image, version) of their own.
func (in *installation) components() []string {
	return in.Table.Images(in.Version)
}

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
	for _, c := range in.components() {
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
	return known && model.ScalarText(value) == ""
}

// imageName judges a name with a tag, a digest or the registry in it.
func (in *installation) imageName(component string, s *model.Setting) {
	value, _ := in.Value(component + ".repository")
	registry, _, _ := strings.Cut(model.ScalarText(value), "/")
	name := s.Text()
	inRegistry := in.Explicit(component+".repository") == nil && strings.Contains(name, "/") || strings.HasPrefix(name, registry+"/")
	if inRegistry || strings.ContainsAny(name, ":@ ") { // a mirror may keep the image at any path
		in.add("image", report.Failed, fmt.Sprintf("%q holds more than the image's name; the operator joins repository/image:version, which cannot be pulled", name),
			fmt.Sprintf("set %s.repository, %s.image and %s.version apart", component, component, component), s)
	}
}

// mustVersion resolves a release that the table is known to have.
func mustVersion(t *chart.Table, s string) chart.Version {
	v, _, err := t.Resolve(s)
	if err != nil {
		return t.Latest()
	}
	return v
}

// versions compares the operand versions that the user pins with those that the chart is made for. A pin works, so it
// stays, but for one case: a command that is brought to another release leaves the defaults of older releases behind.
func (in *installation) versions() {
	for _, c := range in.components() {
		s := in.given(c + ".version")
		if s == nil || c == "gfd" && in.gfdImage(s) {
			continue
		}
		if in.correction(s).Drop || !in.flags && in.repeatsDefault(s) || in.ownImage(c) {
			continue
		}
		if c == "driver" {
			in.driverVersion(s)
		} else if made := in.made(in.Version, s); made != "" && !sameVersion(s.Text(), made) {
			in.pinned(s, made)
		}
	}
	s := in.given("node-feature-discovery.image.tag")
	if s != nil && !in.correction(s).Drop && compareVersions(s.Text(), in.made(in.Version, s)) < 0 {
		in.pinned(s, in.made(in.Version, s))
	}
}

// made is the version of the setting's operand that a release of the chart is made for; "" where it is not known.
func (in *installation) made(v chart.Version, s *model.Setting) string {
	operand := strings.Join(s.Path[:len(s.Path)-1], ".")
	if chart.Released(operand) {
		return in.Table.AppVersion(v)
	}
	if s.Name() == "node-feature-discovery.image.tag" {
		operand = "nfd"
	}
	tag, _ := in.Table.Operand(v, operand)
	return tag
}

// pinned reports a version that the chart is not made for. The default of a later release is a note.
func (in *installation) pinned(s *model.Setting, made string) {
	relation, severity := "not", report.Warning
	order := compareVersions(s.Text(), made)
	switch {
	case order > 0:
		relation = "newer than"
	case order < 0:
		relation = "older than"
	}
	reason := fmt.Sprintf("%s is %s %s, which chart %s is made for", s.Text(), relation, made, in.Version)
	fix := "delete it, unless you need this version: the chart brings the one it was tested with"
	for _, v := range slices.Backward(in.Table.Versions()) {
		if tag := in.made(v, s); tag != "" && v != in.Version && slices.Equal(numbers(tag), numbers(s.Text())) {
			reason, fix = reason+": it is the default of "+v.String(), "delete it: the chart brings the version it was tested with"
			if order > 0 {
				severity = report.Note
			}
			if in.lifted && v.Before(in.Version) {
				in.correct(s).Drop = true
			}
			break
		}
	}
	in.add("operand-version", severity, reason, fix, s)
}

// driverVersion judges a pinned driver. NVIDIA supports several branches with each release, so that a pin is never
// taken out, and is not judged at all where the table does not name the branches.
func (in *installation) driverVersion(s *model.Setting) {
	made, known := in.Table.Drivers(in.Version)
	if !known || slices.ContainsFunc(made, func(v string) bool { return branch(v) == branch(s.Text()) }) {
		return
	}
	names := make([]string, len(made))
	for i, v := range made {
		names[i] = branch(v)
	}
	slices.Sort(names)
	fix := "see the driver support matrix"
	if !in.isResource() {
		fix += "; delete it to get the chart's own"
	}
	in.add("driver-version", report.Warning, fmt.Sprintf("the driver %s is of no branch that NVIDIA names for %s: want %s", s.Text(), in.Version, alternatives(slices.Compact(names))), fix, s)
}

// branch is the first number of a driver's version.
func branch(version string) string {
	b, _, _ := strings.Cut(version, ".")
	return b
}

// ownImage reports whether the operand is pulled from a path that is no mirror of upstream's, so that its versions are
// not upstream's either: another exporter, or a driver that the user builds.
func (in *installation) ownImage(component string) bool {
	s := in.Explicit(component + ".repository")
	if s == nil {
		return false
	}
	upstream, known := in.Table.Default(in.Version, component+".repository")
	_, path, hasPath := strings.Cut(model.ScalarText(upstream), "/")
	return known && hasPath && s.Text() != path && !strings.HasSuffix(s.Text(), "/"+path)
}

// gfdImage reports a version of the old gpu-feature-discovery image, which the chart left with v24.3.0.
func (in *installation) gfdImage(s *model.Setting) bool {
	const reason = "GPU Feature Discovery is part of the image k8s-device-plugin since v24.3.0, whose tags are the device plugin's"
	image, _ := in.Value("gfd.image")
	early := in.Version.Before(mustVersion(in.Table, "v24.3.0"))
	switch {
	case compareVersions(s.Text(), "0.9.0") >= 0:
	case early && (in.flags || !in.repeatsDefault(s)):
		in.add("gfd-image", report.Note, fmt.Sprintf("works with %s, but %s: %s is then a tag that does not exist", in.Version, reason, s.Text()),
			"delete it when you upgrade", s)
	case !early && image == "k8s-device-plugin":
		in.replaceOrDrop(s, in.made(in.Version, s))
		in.add("gfd-image", report.Failed, fmt.Sprintf("%s; %s is a version of the old image gpu-feature-discovery and cannot be pulled", reason, s.Text()),
			"delete it", s)
		return true
	}
	return false
}

// replaceOrDrop corrects what cannot be pulled any more. A file keeps the setting, with the release's own value.
func (in *installation) replaceOrDrop(s *model.Setting, current string) {
	if in.keep && current != "" {
		in.set(s, current)
	} else {
		in.correct(s).Drop = true
	}
}

// oldDefaults reports former defaults of the chart that something else has replaced.
func (in *installation) oldDefaults() {
	for _, s := range in.Settings {
		k, known := in.Table.Key(s.Path)
		if !known || !k.In(in.Version) || in.correction(s).Drop || s.Text() == "" {
			continue
		}
		value, _ := k.Default(in.Version)
		current, last := model.ScalarText(value), s.Path[len(s.Path)-1]
		configs := s.Name() == "migManager.config.name"
		if last != "image" && last != "repository" && !configs || current == s.Text() || last == "repository" && in.moved(k, s, current) {
			continue
		}
		since, found := replacedAt(k, s.Text())
		if !found || in.Version.Before(since) {
			continue
		}
		severity, effect := report.Failed, "this release has the image as "+current
		if last == "repository" {
			effect = "this release has the image in " + current
		}
		if configs {
			severity, effect = report.Warning, "naming it turns off the configs that the MIG manager makes for each node's GPUs"
			in.correct(s).Drop = in.lifted
		} else {
			in.replaceOrDrop(s, current)
		}
		in.add("old-default", severity, fmt.Sprintf("was the chart's default before %s; %s", since, effect), "delete it", s)
	}
}

// moved reports a mirror of a path at which upstream keeps the image no more, and corrects it.
func (in *installation) moved(k *chart.Key, s *model.Setting, current string) bool {
	_, now, _ := strings.Cut(current, "/")
	for _, d := range k.Defaults() {
		former := model.ScalarText(d.Value)
		_, before, hasPath := strings.Cut(former, "/")
		mirror, isMirror := strings.CutSuffix(s.Text(), "/"+before)
		if !isMirror || !hasPath || now == "" || before == now || former == s.Text() || in.Version.Before(d.From) {
			continue
		}
		in.set(s, mirror+"/"+now)
		in.add("old-default", report.Warning, fmt.Sprintf("upstream keeps the image under %s in this release, under %s before; a mirror follows", now, before),
			"write "+mirror+"/"+now, s)
		return true
	}
	return false
}

// replacedAt returns the release at which another default took the place of value.
func replacedAt(k *chart.Key, value string) (since chart.Version, found bool) {
	was := false
	for _, d := range k.Defaults() {
		is := model.ScalarText(d.Value) == value
		if was && !is {
			since, found = d.From, true
		}
		was = is
	}
	return since, found && !was
}

// numbers are the leading version numbers of a tag: v0.12.2-ubi8 is 0, 12, 2 and 3.1.7-3.1.4-ubuntu20.04 is 3, 1, 7, 3, 1, 4.
func numbers(tag string) []int {
	var out []int
	for _, part := range strings.FieldsFunc(strings.TrimPrefix(tag, "v"), func(r rune) bool { return r == '-' || r == '.' }) {
		n, err := strconv.Atoi(part)
		if err != nil {
			break
		}
		out = append(out, n)
	}
	return out
}

// compareVersions compares two tags as far as both have numbers.
func compareVersions(a, b string) int {
	x, y := numbers(a), numbers(b)
	n := min(len(x), len(y))
	return slices.Compare(x[:n], y[:n])
}

// sameVersion reports whether a tag is of a version: v0.12.2-ubi8 is of 0.12.2.
func sameVersion(tag, version string) bool {
	return tag == version || len(numbers(tag)) > 0 && len(numbers(version)) > 0 && compareVersions(tag, version) == 0
}
