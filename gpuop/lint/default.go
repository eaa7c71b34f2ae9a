package lint

import (
	"fmt"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// oldDefaults reports former defaults of the chart that something else has replaced.
func (in *installation) oldDefaults() {
	for _, s := range in.settings {
		k, known := in.table.Key(s.Path)
		if !known || !k.In(in.version) || s.edit.Drop || s.text() == "" {
			continue
		}
		last := s.Path[len(s.Path)-1]
		current, _ := k.Default(in.version)
		if last != "image" && last != "repository" && s.name() != "migManager.config.name" || scalarText(current) == s.text() {
			continue
		}
		if last == "repository" && in.moved(k, s) {
			continue
		}
		since, found := replacedAt(k, s.text())
		if !found || in.version.Before(since) {
			continue
		}
		s.edit.Drop = s.name() != "migManager.config.name" || in.lifted
		severity, reason := report.Failed, fmt.Sprintf("was the chart's default before %s; this release has the image in %s", since, scalarText(current))
		switch {
		case last == "image":
			reason = fmt.Sprintf("was the chart's default before %s; this release has the image as %s", since, scalarText(current))
		case s.name() == "migManager.config.name":
			severity, reason = report.Warning, fmt.Sprintf("was the chart's default before %s; naming it turns off the configs that the MIG manager makes for each node's GPUs", since)
		}
		in.add("old-default", severity, reason, "delete it", sourceValues, s)
	}
}

// moved reports a mirror of a path at which upstream keeps the image no more, and corrects it.
func (in *installation) moved(k *chart.Key, s *setting) bool {
	current, _ := k.Default(in.version)
	_, now, _ := strings.Cut(scalarText(current), "/")
	for _, d := range k.Defaults() {
		_, before, hasPath := strings.Cut(scalarText(d.Value), "/")
		mirror, isMirror := strings.CutSuffix(s.text(), "/"+before)
		if in.version.Before(d.From) || !d.Known || !hasPath || before == now || !isMirror || scalarText(d.Value) == s.text() || now == "" {
			continue
		}
		right := mirror + "/" + now
		s.edit.Value = &right
		in.add("old-default", report.Warning, fmt.Sprintf("upstream keeps the image under %s in this release, under %s before; a mirror follows", now, before), "write "+right, sourceValues, s)
		return true
	}
	return false
}

// replacedAt returns the release at which another default took the place of value.
func replacedAt(k *chart.Key, value string) (since chart.Version, found bool) {
	was := false
	for _, d := range k.Defaults() {
		is := d.Known && scalarText(d.Value) == value
		if was && !is && d.Known {
			since, found = d.From, true
		}
		was = is
	}
	return since, found && !was
}
