package lint

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

var (
	imageName      = regexp.MustCompile(`^[a-zA-Z0-9-]+$`)
	repositoryName = regexp.MustCompile(`^[a-z0-9]+([._-][a-z0-9]+)*(:[0-9]+)?(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*$`)
	tagName        = regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9._-]{0,127}|sha256:[0-9a-f]{64})$`)
)

// components are the operands with an image triple (repository, image, version) of their own.
func (in *installation) components() []string {
	return slices.Sorted(maps.Keys(in.Table.Images(in.Version)))
}

// releasedWithChart reports whether an operand's image is built from the operator's own source, with its version.
func (in *installation) releasedWithChart(component string) bool {
	return in.Table.Images(in.Version)[component].Release
}

// images judges image triples: the operator joins them as repository/image:version.
func (in *installation) images() {
	const join = "the operator joins repository/image:version"
	for _, c := range in.components() {
		if s := in.Explicit(c + ".repository"); s != nil && !s.Unknown && s.Text() != "" && !repositoryName.MatchString(s.Text()) {
			fix := ""
			trimmed := strings.Trim(strings.TrimPrefix(strings.TrimPrefix(s.Text(), "https://"), "http://"), "/ ")
			if repositoryName.MatchString(trimmed) {
				fix, s.Edit.Value = "write "+trimmed, &trimmed
			}
			in.add("image", report.Failed, fmt.Sprintf("%q is no registry and path; %s", s.Text(), join), fix, sourceOperator, s)
		}
		if s := in.Explicit(c + ".image"); s != nil && !s.Unknown && s.Text() != "" && !imageName.MatchString(s.Text()) {
			in.imageName(c, s)
		}
		if s := in.Explicit(c + ".version"); s != nil && !s.Unknown && s.Text() != "" && !tagName.MatchString(s.Text()) {
			in.add("image", report.Failed, fmt.Sprintf("%q cannot be an image's tag or sha256 digest", s.Text()), "", sourceOperator, s)
		}
	}
}

func (in *installation) imageName(component string, s *model.Setting) {
	repository, image, hasPath := cutLast(s.Text(), "/")
	image, tag, hasTag := strings.Cut(image, ":")
	if !hasPath && !hasTag {
		in.add("image", report.Failed, fmt.Sprintf("%q is no image's name", s.Text()), "", sourceCRD, s)
		return
	}
	var parts []string
	if hasPath {
		parts = append(parts, component+".repository="+repository)
	}
	parts = append(parts, component+".image="+image)
	if hasTag {
		parts = append(parts, component+".version="+tag)
	}
	if imageName.MatchString(image) {
		s.Edit.Drop, s.Added = true, parts
	}
	in.add("image", report.Failed, fmt.Sprintf("%q holds more than the image's name; the operator joins repository/image:version, and the API server refuses the rest", s.Text()),
		"write "+strings.Join(parts, ", "), sourceCRD, s)
}
