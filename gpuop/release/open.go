package release

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

// Bounds of what is read of a chart: the charts of all releases are below 3 MB.
const (
	maxChart = 64 << 20
	maxFiles = 4096
)

// Open reads a release from a chart's folder or archive. The error wraps ErrChart for what is neither.
func Open(name string) (*chart.Release, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var g gathering
	if info.IsDir() {
		err = g.folder(name)
	} else {
		err = g.archive(io.LimitReader(f, maxChart), "")
	}
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrChart, name, err)
	}
	c, err := loader.LoadFiles(g.files)
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrChart, name, err)
	}
	return read(c, strings.TrimPrefix(strings.TrimSuffix(filepath.Base(name), ".tgz"), "gpu-operator-"))
}

// A gathering is the files of a chart that say something about it.
type gathering struct {
	files []*loader.BufferedFile
	bytes int
}

func (g *gathering) add(p string, data []byte) error {
	if g.bytes += len(data); g.bytes > maxChart || len(g.files) == maxFiles {
		return fmt.Errorf("more than %d MiB or %d files", maxChart>>20, maxFiles)
	}
	g.files = append(g.files, &loader.BufferedFile{Name: p, Data: data})
	return nil
}

// wanted reports whether a file of a chart says something about it.
func wanted(p string) bool {
	for strings.HasPrefix(p, "charts/") {
		_, p, _ = strings.Cut(strings.TrimPrefix(p, "charts/"), "/")
	}
	return p == "Chart.yaml" || p == "values.yaml" || strings.HasPrefix(p, "templates/") || strings.HasPrefix(p, "crds/")
}

// archive adds the files of a packed chart, below the folder of a subchart or "".
func (g *gathering) archive(in io.Reader, below string) error {
	files, err := loader.LoadArchiveFiles(in)
	for _, f := range files {
		if err == nil && wanted(f.Name) {
			err = g.add(below+f.Name, f.Data)
		}
	}
	return err
}

// folder adds the files of an unpacked chart. Subcharts may be archives inside it; links are not followed.
func (g *gathering) folder(root string) error {
	return fs.WalkDir(os.DirFS(root), ".", func(p string, entry fs.DirEntry, err error) error {
		packed := path.Dir(p) == "charts" && path.Ext(p) == ".tgz"
		if err != nil || !entry.Type().IsRegular() || !wanted(p) && !packed {
			return err
		}
		f, err := os.Open(filepath.Join(root, p))
		if err != nil {
			return err
		}
		defer f.Close()
		in := io.LimitReader(f, maxChart+1)
		if packed {
			return g.archive(in, strings.TrimSuffix(p, ".tgz")+"/")
		}
		data, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		return g.add(p, data)
	})
}
