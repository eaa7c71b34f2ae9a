// Package images lists the images that an installation pulls, for mirroring: those of enabled operands, of the
// driver for each operating system and kernel, and of Node Feature Discovery. Only Check contacts registries.
package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/sync/errgroup"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

// ErrNodes is returned for operating systems or kernels that cannot be part of a tag.
var ErrNodes = errors.New("unusable node description")

// Component is an operand or Node Feature Discovery, with the parts of its image reference.
type Component struct {
	Operand, Repository, Image string
	// Version is the tag or digest. It is empty if it is set neither in the settings nor in the chart.
	Version string
}

// Image is an image to pull.
type Image struct {
	Operand string `json:"operand"`
	// Name is the image reference. It has no tag if the tag is unknown. Note says what is uncertain about it.
	Name string `json:"image"`
	Note string `json:"note,omitempty"`
}

// view looks up effective values: the settings over the chart's defaults.
type view struct {
	table    *chart.Table
	version  chart.Version
	settings []chart.Setting
}

func (v view) text(path string) string {
	value, _ := v.table.Default(v.version, path)
	for _, s := range v.settings {
		if s.Path.String() == path {
			value = s.Value
		}
	}
	return chart.Text(value)
}

// on reports whether the release has the switch at path, and the switch is on.
func (v view) on(path string) bool {
	k, known := v.table.Key(chart.ParsePath(path))
	return known && k.In(v.version) && v.text(path) == "true"
}

// tag returns the tag of an operand's image. The chart replaces an empty one only in its own images and NFD's.
func (v view) tag(operand string) string {
	tag := v.text(chart.VersionKey(operand))
	if chart.Released(operand) || operand == "nfd" {
		tag = cmp.Or(tag, v.table.Tag(v.version, operand))
	}
	return tag
}

// Components returns the operands that these settings run on the nodes. Node Feature Discovery, if enabled, comes last,
// as "nfd". If all is true, disabled operands are included.
func Components(t *chart.Table, v chart.Version, settings []chart.Setting, nodes Nodes, all bool) []Component {
	w := view{t, v, settings}
	// the operator's Deployment and a GPUCluster use these images
	runs := map[string]bool{"operator": true, "draDriver": true}
	for _, o := range t.Operands(v) {
		for _, c := range o.Containers {
			runs[c.Image] = runs[c.Image] || w.hold(o.When, o.Standard, nodes) && w.hold(c.When, false, nodes)
		}
	}
	var out []Component
	for _, name := range t.Images(v) {
		if image := w.text(name + ".image"); w.deployed(name) && image != "" && (all || runs[name]) {
			out = append(out, Component{name, w.text(name + ".repository"), image, w.tag(name)})
		}
	}
	if w.on("nfd.enabled") {
		name := w.text("node-feature-discovery.image.repository")
		last := strings.LastIndexByte(name, '/')
		out = append(out, Component{"nfd", name[:max(last, 0)], name[last+1:], w.tag("nfd")})
	}
	return out
}

// deployed reports whether the chart creates a resource that uses the image of a section. Since v26.7.0, the policy is
// optional. With NVIDIADrivers, the driver image is that of the default NVIDIADriver, if the chart creates one.
func (v view) deployed(part string) bool {
	_, optional := v.table.Default(v.version, "clusterPolicy.deployCR")
	policy, cluster := v.on("clusterPolicy.deployCR"), v.on("gpuCluster.deployCR")
	instances := v.on("driver.nvidiaDriverCRD.enabled")
	instance := instances && v.on("driver.nvidiaDriverCRD.deployDefaultCR")
	switch part {
	case "operator", "validator", "driver.manager":
		return true
	case "draDriver":
		policy = cluster
	case "dcgm", "dcgmExporter":
		policy = policy || cluster
	case "driver":
		policy = policy && !instances || instance
	case "gds", "gdrcopy":
		policy = policy || instance
	}
	return policy || !optional
}

// hold reports whether all conditions are true. absent is the result for a setting that must be true and is unset.
func (v view) hold(list []chart.Condition, absent bool, nodes Nodes) bool {
	isRedHat := func(s string) bool { return strings.HasPrefix(s, "rhel") || strings.HasPrefix(s, "rhcos") }
	isCoreOS := func(s string) bool { return strings.HasPrefix(s, "rhcos") }
	noSystem := len(nodes.Systems) == 0
	return !slices.ContainsFunc(list, func(c chart.Condition) bool {
		switch c {
		case chart.Openshift:
			return !noSystem && !v.on("platform.openshift") && !slices.ContainsFunc(nodes.Systems, isCoreOS)
		case chart.RedHat:
			return !noSystem && !slices.ContainsFunc(nodes.Systems, isRedHat)
		}
		return !c.Holds(v.text(c.Key()), absent)
	})
}

// ByNVIDIADriver reports whether the driver is configured by NVIDIADriver resources instead of by the ClusterPolicy.
func ByNVIDIADriver(t *chart.Table, v chart.Version, settings []chart.Setting) bool {
	return view{t, v, settings}.on("driver.nvidiaDriverCRD.enabled")
}

// Nodes describes the nodes, which determine the driver images.
type Nodes struct {
	Systems []string // operating systems as in the driver's tags: ubuntu24.04, rhel9.6, rhcos4.19
	Kernels []string // kernel versions, for precompiled drivers: 6.8.0-60-generic
}

var (
	systemName = regexp.MustCompile(`^(ubuntu|rhel|rocky|ol|rhcos|centos|sles|sl-micro|amzn|debian)([0-9][0-9.]*)$`)
	kernelName = regexp.MustCompile(`^[0-9]+\.[0-9A-Za-z._+-]+$`)
)

// List returns the images that an installation pulls, in the order of the operands. If all is true, the images of
// disabled operands are included.
func List(t *chart.Table, v chart.Version, settings []chart.Setting, nodes Nodes, all bool) ([]Image, error) {
	for _, s := range nodes.Systems {
		if !systemName.MatchString(s) {
			return nil, fmt.Errorf("%w: --os %q, expected a name and version such as rhel9.6", ErrNodes, s)
		}
	}
	for _, k := range nodes.Kernels {
		if !kernelName.MatchString(k) {
			return nil, fmt.Errorf("%w: --kernel %q, expected a version such as 6.8.0-60-generic", ErrNodes, k)
		}
	}
	var out []Image
	for _, c := range Components(t, v, settings, nodes, all) {
		for _, i := range (view{t, v, settings}).images(c, nodes) {
			if !slices.ContainsFunc(out, func(o Image) bool { return o.Name == i.Name }) {
				out = append(out, i)
			}
		}
	}
	return out, nil
}

// images returns the images of a component. Some components, such as the driver, have an image for each operating
// system: <version>-<os>. A precompiled driver has an image for each kernel too: <branch>-<kernel>-<os>.
func (v view) images(c Component, nodes Nodes) []Image {
	one := func(name, note string) []Image { return []Image{{c.Operand, name, note}} }
	base := strings.Trim(c.Repository+"/"+c.Image, "/")
	tagged := base + ":" + c.Version
	switch {
	case c.Version == "":
		return one(base, "neither the values nor the chart set a version: set "+chart.VersionKey(c.Operand))
	case strings.HasPrefix(c.Version, "sha256:"):
		return one(base+"@"+c.Version, "")
	case !slices.Contains(v.table.SystemImages(v.version), c.Operand):
		return one(tagged, "")
	case len(nodes.Systems) == 0:
		return one(tagged, "one image for each operating system: the tag ends in -<os>; "+
			"specify the operating systems with --os")
	}
	kernels, note := []string{""}, ""
	if c.Operand == "driver" && v.on("driver.usePrecompiled") {
		kernels = nodes.Kernels
		if len(kernels) == 0 {
			kernels, note = []string{"<kernel>"}, "one image for each kernel: specify the kernels with --kernel"
		}
		if !chart.DriverBranch(c.Version) {
			note = "driver.usePrecompiled=true needs a driver branch such as 580 in driver.version: " +
				"precompiled images are not tagged with full versions"
		}
	}
	var out []Image
	for _, system := range nodes.Systems {
		parts := systemName.FindStringSubmatch(system)
		tag, hint := "-"+v.version.SystemTag(parts[1], parts[2]), note
		if strings.HasSuffix(tagged, tag) {
			hint = "the tag has the operating system twice: remove it from " + c.Operand + ".version"
		}
		for _, kernel := range kernels {
			name := strings.TrimSuffix(tagged+"-"+kernel, "-") + tag
			out = append(out, Image{c.Operand, name, hint})
		}
	}
	return out
}

// Answer says whether a registry has an image.
type Answer string

// Answers of a registry.
const (
	Exists  Answer = "exists"
	Missing Answer = "missing"
	Unknown Answer = "unknown"
)

// Checked is an image with the answer of its registry.
type Checked struct {
	Image
	Answer Answer `json:"registry,omitempty"`
	// Why is the reason for Unknown.
	Why string `json:"reason,omitempty"`
}

// Check queries the registries for the images, with the credentials of Docker's configuration. It sends HEAD requests,
// which download nothing and do not count against Docker Hub's pull limit.
func Check(ctx context.Context, list []Image) []Checked {
	out := make([]Checked, len(list))
	var group errgroup.Group
	group.SetLimit(8)
	for i, image := range list {
		group.Go(func() error {
			answer, why := ask(ctx, image)
			out[i] = Checked{image, answer, why}
			return nil
		})
	}
	_ = group.Wait() // no error: each image has its own answer
	return out
}

func ask(ctx context.Context, image Image) (answer Answer, why string) {
	if image.Note != "" {
		return Unknown, "the name is not certain: " + image.Note
	}
	reference, err := name.ParseReference(image.Name, name.StrictValidation)
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		_, err = remote.Head(reference, remote.WithContext(limited), remote.WithAuthFromKeychain(authn.DefaultKeychain),
			remote.WithRetryBackoff(remote.Backoff{Steps: 1}))
	}
	refused := &transport.Error{}
	switch errors.As(err, &refused); {
	case err == nil:
		return Exists, ""
	case refused.StatusCode == http.StatusNotFound:
		return Missing, ""
	case refused.StatusCode == http.StatusUnauthorized, refused.StatusCode == http.StatusForbidden:
		host := reference.Context().RegistryStr()
		return Unknown, "access denied: the repository does not exist or needs a login (docker login " + host + ")"
	}
	why, _, _ = strings.Cut(err.Error(), "\n")
	return Unknown, why
}
