package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

// Bounds of what is read of a chart: the charts of all releases are below 3 MB.
const (
	maxFile  = 8 << 20
	maxChart = 64 << 20
	maxFiles = 4096
)

// Open reads a release from a chart's folder or archive. The error wraps ErrChart for what is neither.
func Open(name string) (*chart.Release, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		f, err := folder(name)
		if err != nil {
			return nil, err
		}
		return read(f, filepath.Base(name))
	}
	data, err := limited(name)
	if err != nil {
		return nil, err
	}
	f, err := archive(data)
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrChart, name, err)
	}
	return read(f, strings.TrimPrefix(strings.TrimSuffix(filepath.Base(name), ".tgz"), "gpu-operator-"))
}

func limited(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxChart+1))
	if err == nil && len(data) > maxChart {
		err = fmt.Errorf("%w %s: more than %d MiB", ErrChart, name, maxChart>>20)
	}
	return data, err
}

// wanted reports whether a file of a chart says something about it.
func wanted(p string) bool {
	for strings.HasPrefix(p, "charts/") {
		_, p, _ = strings.Cut(strings.TrimPrefix(p, "charts/"), "/")
	}
	return p == "Chart.yaml" || p == "values.yaml" || strings.HasPrefix(p, "templates/") || strings.HasPrefix(p, "crds/")
}

// folder reads the files of an unpacked chart. Subcharts may be archives inside it.
func folder(root string) (files, error) {
	out, total := files{}, 0
	err := fs.WalkDir(os.DirFS(root), ".", func(p string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		packed := path.Dir(p) == "charts" && path.Ext(p) == ".tgz"
		if !wanted(p) && !packed {
			return nil
		}
		if len(out) >= maxFiles {
			return fmt.Errorf("%w %s: more than %d files", ErrChart, root, maxFiles)
		}
		data, err := limited(filepath.Join(root, p))
		if total += len(data); total > maxChart {
			return fmt.Errorf("%w %s: more than %d MiB", ErrChart, root, maxChart>>20)
		}
		if err != nil || !packed {
			out[p] = data
			return err
		}
		inner, err := archive(data)
		if err != nil {
			return fmt.Errorf("%w %s: %w", ErrChart, p, err)
		}
		out.unpack(inner)
		return nil
	})
	return out, err
}

// unpack adds a subchart's files under its name.
func (f files) unpack(inner files) {
	name := "node-feature-discovery"
	for line := range strings.Lines(string(inner["Chart.yaml"])) {
		if rest, found := strings.CutPrefix(line, "name:"); found {
			name = strings.Trim(strings.TrimSpace(rest), `"'`)
		}
	}
	for p, data := range inner {
		f["charts/"+name+"/"+p] = data
	}
}

// archive reads a packed chart: everything lies below one folder.
func archive(data []byte) (files, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	out, total := files{}, 0
	reader := tar.NewReader(io.LimitReader(unzipped, maxChart))
	for {
		h, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		_, p, _ := strings.Cut(path.Clean(h.Name), "/")
		if h.Typeflag != tar.TypeReg || !wanted(p) {
			continue
		}
		content, err := io.ReadAll(io.LimitReader(reader, maxFile+1))
		if err != nil {
			return nil, err
		}
		if total += len(content); len(content) > maxFile || total > maxChart || len(out) >= maxFiles {
			return nil, fmt.Errorf("%s: larger than any chart", p)
		}
		out[p] = content
	}
}
