package main

import (
	"fmt"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
)

// packChart packs the Helm chart in folder, like "helm package", and writes the archive to the folder into. It takes
// the version of the chart and the default image tag from tag.
func packChart(folder, tag, into string) error {
	c, err := loader.LoadDir(folder)
	if err != nil {
		return fmt.Errorf("chart %s: %w", folder, err)
	}
	c.Metadata.Version, c.Metadata.AppVersion = strings.TrimPrefix(tag, "v"), tag
	if err := c.Validate(); err != nil {
		return fmt.Errorf("chart %s: %w", folder, err)
	}
	_, err = chartutil.Save(c, into)
	return err
}
