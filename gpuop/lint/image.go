package lint

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

var (
	imageName      = regexp.MustCompile(`^[a-zA-Z0-9-]+$`)
	repositoryName = regexp.MustCompile(`^[a-z0-9]+([._-][a-z0-9]+)*(:[0-9]+)?(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*$`)
	tagName        = regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9._-]{0,127}|sha256:[0-9a-f]{64})$`)
)

// components are the operands with an image triple (repository, image, version) of their own.
func (in *installation) components() []string {
	return slices.Sorted(maps.Keys(in.table.Images(in.version)))
}

// releasedWithChart reports whether an operand's image is built from the operator's own source, with its version.
func (in *installation) releasedWithChart(component string) bool {
	return in.table.Images(in.version)[component].Release
}

// images judges image triples: the operator joins them as repository/image:version.
func (in *installation) images() {
	const join = "the operator joins repository/image:version"
	for _, c := range in.components() {
		if s := in.explicit(c + ".repository"); s != nil && !s.unknown && s.text() != "" && !repositoryName.MatchString(s.text()) {
			fix := ""
			trimmed := strings.Trim(strings.TrimPrefix(strings.TrimPrefix(s.text(), "https://"), "http://"), "/ ")
			if repositoryName.MatchString(trimmed) {
				fix, s.edit.Value = "write "+trimmed, &trimmed
			}
			in.add("image", report.Failed, fmt.Sprintf("%q is no registry and path; %s", s.text(), join), fix, sourceOperator, s)
		}
		if s := in.explicit(c + ".image"); s != nil && !s.unknown && s.text() != "" && !imageName.MatchString(s.text()) {
			in.imageName(c, s)
		}
		if s := in.explicit(c + ".version"); s != nil && !s.unknown && s.text() != "" && !tagName.MatchString(s.text()) {
			in.add("image", report.Failed, fmt.Sprintf("%q cannot be an image's tag or sha256 digest", s.text()), "", sourceOperator, s)
		}
	}
}

func (in *installation) imageName(component string, s *setting) {
	repository, image, hasPath := cutLast(s.text(), "/")
	image, tag, hasTag := strings.Cut(image, ":")
	if !hasPath && !hasTag {
		in.add("image", report.Failed, fmt.Sprintf("%q is no image's name", s.text()), "", sourceCRD, s)
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
		s.edit.Drop, s.added = true, parts
	}
	in.add("image", report.Failed, fmt.Sprintf("%q holds more than the image's name; the operator joins repository/image:version, and the API server refuses the rest", s.text()),
		"write "+strings.Join(parts, ", "), sourceCRD, s)
}
