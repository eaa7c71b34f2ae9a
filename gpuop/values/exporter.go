package values

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

// ExporterImage is this project's image of the exporter, without a tag.
const ExporterImage = "ghcr.io/gpu-telemetry/dcgm-exporter"

// ErrImage is returned for a reference that cannot be split into repository, name and tag.
var ErrImage = errors.New("unusable image")

var reference = regexp.MustCompile(`^([a-z0-9.-]+(?::[0-9]+)?(?:/[a-z0-9._-]+)*)/([a-zA-Z0-9-]+)(?::([A-Za-z0-9_][A-Za-z0-9._-]{0,127})|@(sha256:[0-9a-f]{64}))$`)

// splitImage parts an image reference as the operator wants it: the repository, the name and the tag or
// digest.
func splitImage(image string) (repository, name, version string, err error) {
	m := reference.FindStringSubmatch(image)
	if m == nil {
		hint := ""
		if !strings.Contains(image[strings.LastIndex(image, "/")+1:], ":") && !strings.Contains(image, "@") {
			hint = ": it has no tag, and the operator wants one"
		}
		return "", "", "", fmt.Errorf("%w %q, want registry/path/name:tag%s", ErrImage, image, hint)
	}
	return m[1], m[2], m[3] + m[4], nil
}

// exporterSettings returns the values that make the operator run the image as its exporter. The error
// wraps ErrImage.
func exporterSettings(image string) ([]chart.Setting, error) {
	repository, name, version, err := splitImage(image)
	if err != nil {
		return nil, err
	}
	return []chart.Setting{
		chart.Set("dcgmExporter.enabled", true, ""),
		chart.Set("dcgmExporter.repository", repository, "This project's exporter: the operator runs it as its own, with the same port, probes and variables."),
		chart.Set("dcgmExporter.image", name, ""),
		chart.Set("dcgmExporter.version", version, ""),
	}, nil
}
