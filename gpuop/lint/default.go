package lint

import (
	"fmt"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// oldDefaults reports former defaults of the chart that something else has replaced.
func (in *installation) oldDefaults() {
	for _, s := range in.Settings {
		k, known := in.Table.Key(s.Path)
		if !known || !k.In(in.Version) || s.Edit.Drop || s.Text() == "" {
			continue
		}
		last := s.Path[len(s.Path)-1]
		current, _ := k.Default(in.Version)
		if last != "image" && last != "repository" && s.Name() != "migManager.config.name" || model.ScalarText(current) == s.Text() {
			continue
		}
		if last == "repository" && in.moved(k, s) {
			continue
		}
		since, found := replacedAt(k, s.Text())
		if !found || in.Version.Before(since) {
			continue
		}
		s.Edit.Drop = s.Name() != "migManager.config.name" || in.lifted
		severity, reason := report.Failed, fmt.Sprintf("was the chart's default before %s; this release has the image in %s", since, model.ScalarText(current))
		switch {
		case last == "image":
			reason = fmt.Sprintf("was the chart's default before %s; this release has the image as %s", since, model.ScalarText(current))
		case s.Name() == "migManager.config.name":
			severity, reason = report.Warning, fmt.Sprintf("was the chart's default before %s; naming it turns off the configs that the MIG manager makes for each node's GPUs", since)
		}
		in.add("old-default", severity, reason, "delete it", sourceValues, s)
	}
}

// moved reports a mirror of a path at which upstream keeps the image no more, and corrects it.
func (in *installation) moved(k *chart.Key, s *model.Setting) bool {
	current, _ := k.Default(in.Version)
	_, now, _ := strings.Cut(model.ScalarText(current), "/")
	for _, d := range k.Defaults() {
		_, before, hasPath := strings.Cut(model.ScalarText(d.Value), "/")
		mirror, isMirror := strings.CutSuffix(s.Text(), "/"+before)
		if in.Version.Before(d.From) || !hasPath || before == now || !isMirror || model.ScalarText(d.Value) == s.Text() || now == "" {
			continue
		}
		right := mirror + "/" + now
		s.Edit.Value = &right
		in.add("old-default", report.Warning, fmt.Sprintf("upstream keeps the image under %s in this release, under %s before; a mirror follows", now, before), "write "+right, sourceValues, s)
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
