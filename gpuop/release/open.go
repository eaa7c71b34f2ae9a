package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
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

// Open reads a release from a chart's folder, its archive, an OCI layout, or the output of helm get
// values -a or helm get manifest.
func Open(name string) (*chart.Release, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		if _, err := os.Stat(filepath.Join(name, "oci-layout")); err == nil {
			return openLayout(name)
		}
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
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		f, err := archive(data)
		if err != nil {
			return nil, fmt.Errorf("%w %s: %w", ErrChart, name, err)
		}
		return read(f, strings.TrimPrefix(strings.TrimSuffix(filepath.Base(name), ".tgz"), "gpu-operator-"))
	}
	return installed(name, data)
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
	out := files{}
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

const chartLayer = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"

// descriptor points to a blob of an OCI layout.
type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
}

// openLayout reads the first chart of an OCI layout.
func openLayout(root string) (*chart.Release, error) {
	blob := func(d descriptor, into any) ([]byte, error) {
		algorithm, sum, found := strings.Cut(d.Digest, ":")
		if !found || strings.ContainsAny(algorithm+sum, `/\.`) {
			return nil, fmt.Errorf("%w %s: digest %q", ErrChart, root, d.Digest)
		}
		data, err := limited(filepath.Join(root, "blobs", algorithm, sum))
		if err == nil && into != nil {
			err = json.Unmarshal(data, into)
		}
		return data, err
	}
	data, err := limited(filepath.Join(root, "index.json"))
	if err != nil {
		return nil, err
	}
	var index struct {
		Manifests []descriptor `json:"manifests"`
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, fmt.Errorf("%w %s: index.json: %w", ErrChart, root, err)
	}
	for _, m := range index.Manifests {
		var manifest struct {
			Layers []descriptor `json:"layers"`
		}
		if _, err := blob(m, &manifest); err != nil {
			return nil, fmt.Errorf("%w %s: %w", ErrChart, root, err)
		}
		for _, l := range manifest.Layers {
			if l.MediaType != chartLayer {
				continue
			}
			packed, err := blob(l, nil)
			if err != nil {
				return nil, err
			}
			f, err := archive(packed)
			if err != nil {
				return nil, fmt.Errorf("%w %s: %w", ErrChart, root, err)
			}
			return read(f, filepath.Base(root))
		}
	}
	return nil, fmt.Errorf("%w %s: no manifest with a Helm chart in it", ErrChart, root)
}
