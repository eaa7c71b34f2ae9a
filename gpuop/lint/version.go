package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// mustVersion resolves a release that the table is known to have.
func mustVersion(t *chart.Table, s string) chart.Version {
	v, _, err := t.Resolve(s)
	if err != nil {
		return t.Latest()
	}
	return v
}

// versions compares the operand versions that the user pins with those that the chart is made for.
// A pin works, so it stays, but for one case: a command that is brought to another release leaves
// the defaults of older releases behind.
func (in *installation) versions() {
	for _, c := range in.components() {
		s := in.Explicit(c + ".version")
		if s == nil || s.Unknown || !tagName.MatchString(s.Text()) || c == "gfd" && in.gfdImage(s) {
			continue
		}
		if s.Edit.Drop || !in.flags && in.repeatsDefault(s) || in.ownImage(c) {
			continue
		}
		if c == "driver" {
			in.driverVersion(s)
			continue
		}
		made, known := in.Table.Operand(in.Version, c)
		if in.releasedWithChart(c) {
			made, known = in.Table.AppVersion(in.Version), true
		}
		if known && s.Text() != made && !sameVersion(s.Text(), made) {
			in.pinned(s, made)
		}
	}
	s := in.Explicit("node-feature-discovery.image.tag")
	made, known := in.Table.Operand(in.Version, "nfd")
	if s != nil && !s.Unknown && !s.Edit.Drop && known && s.Text() != "" && compareVersions(s.Text(), made) < 0 {
		in.pinned(s, made)
	}
}

// pinned reports a version that the chart is not made for. That of a later release is a note.
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
	if from, found := in.defaultOf(s); found {
		s.Edit.Drop = in.lifted && from.Before(in.Version)
		if order > 0 {
			severity = report.Note
		}
		in.add("operand-version", severity, fmt.Sprintf("%s: it is the default of %s", reason, from), "delete it: the chart brings the version it was tested with", sourceValues, s)
		return
	}
	in.add("operand-version", severity, reason, "delete it, unless you need this version: the chart brings the one it was tested with", sourceValues, s)
}

// defaultOf finds the newest other release whose default the setting repeats; where only the
// version number is given, any tag of that version counts.
func (in *installation) defaultOf(s *model.Setting) (from chart.Version, found bool) {
	for _, v := range slices.Backward(in.Table.Versions()) {
		tag, known := in.Table.Operand(v, strings.Join(s.Path[:len(s.Path)-1], "."))
		if s.Path.String() == "node-feature-discovery.image.tag" {
			tag, known = in.Table.Operand(v, "nfd")
		}
		if in.releasedWithChart(s.Path[0]) && len(s.Path) == 2 {
			tag, known = in.Table.AppVersion(v), true
		}
		if known && v != in.Version && slices.Equal(numbers(tag), numbers(s.Text())) {
			return v, true
		}
	}
	return chart.Version{}, false
}

// driverVersion judges a pinned driver. NVIDIA supports several branches with each release, so that
// a pin is never taken out, and is not judged at all where the table does not name the branches.
func (in *installation) driverVersion(s *model.Setting) {
	made, known := in.Table.Drivers(in.Version)
	if !known || slices.ContainsFunc(made, func(v string) bool { return sameBranch(s.Text(), v) }) {
		return
	}
	if own, found := in.Table.Operand(in.Version, "driver"); found {
		made = append([]string{own}, made...)
	}
	fix := "see the driver support matrix; delete it to get " + made[0]
	if in.resource {
		fix = "see the driver support matrix"
	}
	in.add("driver-version", report.Warning, fmt.Sprintf("the driver %s is of no branch that NVIDIA names for %s: %s", s.Text(), in.Version, list(made)), fix, sourceMatrix, s)
}

// ownImage reports whether the operand is pulled from a path that is no mirror of upstream's, so
// that its versions are not upstream's either: another exporter, or a driver that the user builds.
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
	if compareVersions(s.Text(), "0.9.0") >= 0 || s.Text() == "" {
		return false
	}
	image, _ := in.Value("gfd.image")
	moved := mustVersion(in.Table, "v24.3.0")
	const reason = "GPU Feature Discovery is part of the image k8s-device-plugin since v24.3.0"
	if in.Version.Before(moved) && !in.flags && in.repeatsDefault(s) {
		return false
	}
	if in.Version.Before(moved) {
		in.add("gfd-image", report.Note, fmt.Sprintf("works with %s, but %s, whose tags are the device plugin's: %s is then a tag that does not exist", in.Version, reason, s.Text()),
			"delete it when you upgrade", sourceValues, s)
		return false
	}
	if image != "k8s-device-plugin" {
		return false
	}
	s.Edit.Drop = true
	in.add("gfd-image", report.Failed, fmt.Sprintf("%s, whose tags are the device plugin's; %s is a version of the old image gpu-feature-discovery and cannot be pulled", reason, s.Text()),
		"delete it", sourceValues, s)
	return true
}

// numbers are the leading version numbers of a tag: v0.12.2-ubi8 is 0, 12, 2 and
// 3.1.7-3.1.4-ubuntu20.04 is 3, 1, 7, 3, 1, 4.
func numbers(tag string) []int {
	var out []int
	for part := range strings.SplitSeq(strings.TrimPrefix(tag, "v"), "-") {
		for f := range strings.SplitSeq(part, ".") {
			n, err := strconv.Atoi(f)
			if err != nil {
				return out
			}
			out = append(out, n)
		}
	}
	return out
}

func compareVersions(a, b string) int {
	x, y := numbers(a), numbers(b)
	n := min(len(x), len(y))
	return slices.Compare(x[:n], y[:n])
}

// sameVersion reports whether a tag is of a version: v0.12.2-ubi8 is of 0.12.2.
func sameVersion(tag, version string) bool {
	x, y := numbers(tag), numbers(version)
	return len(x) >= len(y) && slices.Equal(x[:len(y)], y) || len(x) > 0 && len(x) < len(y) && slices.Equal(x, y[:len(x)])
}

func sameBranch(a, b string) bool {
	x, y := numbers(a), numbers(b)
	return len(x) > 0 && len(y) > 0 && x[0] == y[0]
}
