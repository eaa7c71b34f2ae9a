package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// subject is the program or image that an SBOM describes.
type subject struct{ name, version, date string }

// source is the URL of the repository.
const source = "https://github.com/gpu-telemetry/dcgm-exporter"

// writeSBOM writes a CycloneDX SBOM of a program, or of all images in an OCI layout. It lists the Go modules that the
// programs record, and the Debian packages in the images.
func writeSBOM(out io.Writer, of subject, from string) error {
	var components []cdx.Component
	var err error
	if layout, isLayout := strings.CutPrefix(from, "oci:"); isLayout {
		components, err = imageComponents(layout)
	} else {
		var program []byte
		if program, err = os.ReadFile(from); err == nil {
			components, err = programComponents(filepath.Base(from), program)
		}
	}
	if err != nil {
		return err
	}
	components = distinct(components)
	bom := cdx.NewBOM()
	bom.SpecVersion = cdx.SpecVersion1_6
	bom.JSONSchema = "http://cyclonedx.org/schema/bom-1.6.schema.json"
	kind := cdx.ComponentTypeApplication
	if strings.HasPrefix(from, "oci:") {
		kind = cdx.ComponentTypeContainer
	}
	bom.Metadata = &cdx.Metadata{
		Timestamp: of.date,
		Component: &cdx.Component{
			BOMRef: of.name + "@" + of.version, Type: kind, Name: of.name, Version: of.version,
			Licenses:           &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
			ExternalReferences: &[]cdx.ExternalReference{{Type: cdx.ERTypeVCS, URL: source}},
		},
	}
	bom.Components = &components
	// the serial number is derived from the content, so that all builds of a commit have the same one
	content, err := json.Marshal(bom)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	// set the version and variant bits of a UUID of version 8 (RFC 9562)
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	bom.SerialNumber = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
	encoder := cdx.NewBOMEncoder(out, cdx.BOMFileFormatJSON).SetPretty(true)
	return encoder.EncodeVersion(bom, cdx.SpecVersion1_6)
}

// distinct sorts the components by reference and removes duplicates.
func distinct(list []cdx.Component) []cdx.Component {
	slices.SortFunc(list, func(a, b cdx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })
	return slices.CompactFunc(list, func(a, b cdx.Component) bool { return a.BOMRef == b.BOMRef })
}

// programComponents returns the components of a program: the program itself, the Go standard library and the modules.
func programComponents(name string, program []byte) ([]cdx.Component, error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	arch := ""
	for _, s := range info.Settings {
		if s.Key == "GOARCH" {
			arch = s.Value
		}
	}
	sum := sha256.Sum256(program)
	list := []cdx.Component{
		{
			BOMRef: "file:" + name + "?arch=" + arch, Type: cdx.ComponentTypeApplication, Name: name,
			Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
			Properties: &[]cdx.Property{{Name: "go:arch", Value: arch}},
		},
		component("golang", "stdlib", strings.TrimPrefix(info.GoVersion, "go"), nil),
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		// package URLs of Go modules are in lower case
		module := component("golang", strings.ToLower(m.Path), m.Version, nil)
		module.Name = m.Path
		list = append(list, module)
	}
	return list, nil
}

// component returns a library with its package URL.
func component(kind, name, version string, qualifiers url.Values) cdx.Component {
	purl := "pkg:" + kind + "/" + name + "@" + url.PathEscape(version)
	if len(qualifiers) > 0 {
		purl += "?" + qualifiers.Encode()
	}
	return cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: name, Version: version, PackageURL: purl}
}

// These types are the parts of an OCI layout that the SBOM needs.
type (
	descriptor struct {
		MediaType, Digest string
	}
	document struct {
		Manifests []descriptor
		Layers    []descriptor
	}
)

// imageComponents returns the components of all images in an OCI layout.
func imageComponents(layout string) ([]cdx.Component, error) {
	var list []cdx.Component
	var visit func(file string) error
	visit = func(file string) error {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var d document
		if err := json.Unmarshal(content, &d); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, m := range d.Manifests {
			blob, err := blobOf(layout, m)
			if err == nil {
				err = visit(blob)
			}
			if err != nil {
				return err
			}
		}
		for _, l := range d.Layers {
			blob, err := blobOf(layout, l)
			if err != nil {
				return err
			}
			found, err := layerComponents(blob)
			if err != nil {
				return fmt.Errorf("%s: %w", blob, err)
			}
			list = append(list, found...)
		}
		return nil
	}
	if err := visit(filepath.Join(layout, "index.json")); err != nil {
		return nil, err
	}
	return list, nil
}

// blobOf returns the path of a descriptor's blob.
func blobOf(layout string, d descriptor) (string, error) {
	algorithm, digest, ok := strings.Cut(d.Digest, ":")
	if !ok || algorithm != "sha256" || len(digest) != 64 || strings.Trim(digest, "0123456789abcdef") != "" {
		return "", fmt.Errorf("%s: %q is not a sha256 digest", layout, d.Digest)
	}
	return filepath.Join(layout, "blobs", algorithm, digest), nil
}

// layerComponents returns the components of the exporter, gpuop and the Debian packages in a layer.
func layerComponents(blob string) ([]cdx.Component, error) {
	file, err := os.Open(blob)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	var list []cdx.Component
	for archive := tar.NewReader(unpacked); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		dir, name := path.Split(path.Clean("/" + header.Name))
		if header.Typeflag != tar.TypeReg || dir != "/var/lib/dpkg/status.d/" && name != "dcgm-exporter" &&
			name != "gpuop" {
			continue
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return nil, err
		}
		if dir == "/usr/bin/" {
			found, err := programComponents(name, content)
			if err != nil {
				return nil, err
			}
			list = append(list, found...)
		} else if dir == "/var/lib/dpkg/status.d/" {
			p, err := packageComponent(content)
			if err != nil {
				return nil, fmt.Errorf("%s%s: %w", dir, name, err)
			}
			list = append(list, p)
		}
	}
}

// packageComponent parses the control entry of a Debian package.
func packageComponent(entry []byte) (cdx.Component, error) {
	fields := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(entry)); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ": "); ok && !strings.HasPrefix(key, " ") {
			fields[key] = value
		}
	}
	for _, key := range []string{"Package", "Version", "Architecture"} {
		if fields[key] == "" {
			return cdx.Component{}, fmt.Errorf("field %s missing", key)
		}
	}
	c := component("deb", "debian/"+fields["Package"], fields["Version"], url.Values{"arch": {fields["Architecture"]}})
	c.Name = fields["Package"]
	return c, nil
}
