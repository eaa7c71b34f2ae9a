package lint

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/schema"
)

// falseCondition describes the first condition that is false, and the setting that would make it true, if any.
func (in *installation) falseCondition(when []chart.Condition) (is, wanted string) {
	for _, c := range when {
		key, want, _ := strings.Cut(string(c), "=")
		value, known := in.Value(key)
		k, has := in.Table.Key(strings.Split(key, "."))
		switch text := chart.Text(value); {
		case in.kind != kindValues && strings.HasSuffix(key, ".deployCR"): // the object exists
		case c == chart.Never:
			return fmt.Sprintf("the operator of %s does not use it", in.Version), ""
		case !has || !k.In(in.Version) || !known:
		case text == want || want == "*" && text != "" || want == "" && text != "false":
		case want == "*":
			return key + " is not set", ""
		default:
			if is = key + "=" + text; in.Explicit(key) == nil {
				is += ", which is the default"
			}
			return is, key + "=" + cmp.Or(want, "true")
		}
	}
	return "", ""
}

// deadSettings reports settings that a switch disables, other than the defaults in a copy of a values.yaml, and the
// images and versions in a file with at least four images, which is probably for a registry mirror.
func (in *installation) deadSettings() {
	defaults, sources := 0, 0
	for _, s := range in.Settings {
		if in.Table.WasDefault(s.Setting) {
			defaults++
		}
		if imageSource.MatchString(s.Name()) {
			sources++
		}
	}
	copied := !in.flags && defaults > 50 && defaults > len(in.Settings)/2
	mirrored := !in.flags && sources >= 4
	done := map[*model.Setting]bool{}
	for _, p := range in.Table.Parts(in.Version) {
		groupIs, groupWanted := in.falseCondition(p.When)
		ownIs, ownWanted := in.falseCondition(p.When[1:])
		for _, s := range in.Below(p.Group, p.Except...) {
			is, wanted, fix := groupIs, groupWanted, "delete it"
			own := s.Name() == string(p.When[0])
			if own {
				is, wanted = ownIs, ownWanted
			}
			if is == "" || own && s.Text() != "true" || done[s] || !in.mayBeDead(s) ||
				mirrored && imageSource.MatchString(s.Name()) {
				continue
			}
			done[s] = true
			silent := copied && in.Table.WasDefault(s.Setting) || mirrored && s.Path[len(s.Path)-1] == "version"
			if silent || !own || p.Host != "" || wanted == "" {
				c := in.correction(s)
				c.Drop, c.idle = true, true
			}
			if wanted != "" {
				fix += ", or set " + wanted
			}
			if !silent {
				in.add(deadSetting, "has no effect: "+is, fix, s)
			}
		}
	}
}

// mayBeDead reports whether deadSettings should check a setting. It skips settings that are dropped or renamed, unknown
// keys and values, defaults that a file repeats, and settings that an enabled operand reads from another one's group.
func (in *installation) mayBeDead(s *model.Setting) bool {
	c := in.correction(s)
	if c.Drop || s.Unknown || c.Rename != nil || !in.flags && in.repeatsDefault(s) {
		return false
	}
	isRead := func(r chart.Part) bool {
		name, field := s.Name()+".", r.Group+"."
		is, _ := in.falseCondition(r.When)
		return is == "" && (strings.HasPrefix(name, field) || strings.HasPrefix(field, name))
	}
	return in.Match(s).Status != chart.Unknown && !slices.ContainsFunc(in.Table.Reads(in.Version), isRead)
}

// repeatsDefault reports whether a setting equals its default. The chart itself writes lists to its custom resources.
func (in *installation) repeatsDefault(s *model.Setting) bool {
	_, isList := s.Value.([]any)
	isVersion := s.Path[len(s.Path)-1] == "version" && chart.Released(s.Path[0])
	value, known := in.Table.Default(in.Version, s.Name())
	return isList && in.kind != kindValues || isVersion && s.Text() == in.Table.AppVersion(in.Version) ||
		known && chart.Same(value, s.Value)
}

// contradictions reports settings that must not be combined.
func (in *installation) contradictions() {
	for _, e := range in.Table.Exclusions() {
		fails := func(c chart.Condition) bool {
			value, known := in.Value(c.Key())
			s := in.Explicit(c.Key())
			return !known || s != nil && in.correction(s).Drop || !c.Holds(chart.Text(value), false)
		}
		var given []*model.Setting
		for _, path := range e.At {
			if s := in.Explicit(path); s != nil {
				given = append(given, s)
			}
		}
		if len(given) > 0 && !slices.ContainsFunc(e.When, fails) {
			in.add(excludes, e.Reason, e.Fix, given...).Severity = e.State
		}
	}
}

// precompiledVersion checks that driver.version is a branch such as 580 if precompiled drivers are used.
func (in *installation) precompiledVersion() {
	s, at := in.Explicit("driver.version"), in.Explicit("driver.usePrecompiled")
	value, known := in.Value("driver.version")
	precompiled, sure := in.Value("driver.usePrecompiled")
	version := chart.Text(value)
	if !known || !sure || chart.Text(precompiled) != "true" || s == nil && in.kind != kindValues ||
		version == "" || chart.DriverBranch(version) || in.ownImage("driver") {
		return
	}
	if s == nil {
		version += " by default"
	}
	fix := "set driver.version to a branch such as 580"
	if major, _, _ := strings.Cut(version, "."); chart.DriverBranch(major) {
		fix = "set driver.version=" + major
		if s != nil && !in.correction(s).Drop {
			in.set(s, major)
		}
	}
	if at = cmp.Or(s, at); s != nil || at != nil && !in.correction(at).Drop {
		reason := "driver.usePrecompiled=true needs a driver branch, but driver.version is " + version +
			"; precompiled images are tagged <branch>-<kernel>-<os>"
		in.add(precompiledVersion, reason, fix, at)
	}
}

// given returns the user's setting at a path if its value is known and not empty, or else nil.
func (in *installation) given(path string) *model.Setting {
	if s := in.Explicit(path); s != nil && !s.Unknown && s.Text() != "" {
		return s
	}
	return nil
}

var (
	// imageSource matches settings of the repository, name, pull policy or pull secrets of an image.
	imageSource    = regexp.MustCompile(`\.(repository|image|imagePullPolicy|imagePullSecrets)$`)
	repositoryName = regexp.MustCompile(`^[a-z0-9]+([._-][a-z0-9]+)*(:[0-9]+)?(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*$`)
	scheme         = regexp.MustCompile(`^https?://`)
	// systemSuffix matches the operating system at the end of a driver image's tag.
	systemSuffix = regexp.MustCompile(`-(ubuntu|rhel|rhcos|rocky|ol|sles|sle|sl-micro|centos|debian|fedora|amzn|` +
		`flatcar|photon|cos)[0-9][0-9.]*$`)
)

// images checks image settings. The operator joins them as repository/image:version. An image alone is a reference.
func (in *installation) images() {
	for _, c := range in.Table.Images(in.Version) {
		if s := in.given(c + ".repository"); s != nil && !repositoryName.MatchString(s.Text()) {
			fix, right := "", strings.Trim(scheme.ReplaceAllString(s.Text(), ""), "/ ")
			if repositoryName.MatchString(right) {
				fix = "write " + right
				in.set(s, right)
			}
			const reason = " is not a registry and path; the operator joins repository/image:version"
			in.add(imageParts, s.Text()+reason, fix, s)
		}
		repository, known := in.Value(c + ".repository")
		version, sure := in.Value(c + ".version")
		isWhole := known && sure && chart.Text(repository)+chart.Text(version) == ""
		if s := in.given(c + ".image"); s != nil && !isWhole {
			registry, _, _ := strings.Cut(chart.Text(repository), "/")
			// a path in a mirror may be part of the name
			isPath := in.Explicit(c+".repository") == nil && strings.Contains(s.Text(), "/")
			if isPath || strings.HasPrefix(s.Text(), registry+"/") || strings.ContainsAny(s.Text(), ":@ ") {
				reason := s.Text() + " contains more than the image's name: repository/image:version cannot be pulled"
				in.add(imageParts, reason, "split it into "+c+".repository, .image and .version", s)
			}
		}
		s := in.given(c + ".version")
		if s == nil || !slices.Contains(in.Table.SystemImages(in.Version), c) {
			continue
		}
		if suffix := systemSuffix.FindString(s.Text()); suffix != "" {
			right := strings.TrimSuffix(s.Text(), suffix)
			in.set(s, right)
			reason := "the operator appends the operating system to the tag, which becomes " + s.Text() + suffix
			in.add(imageParts, reason, "write "+right, s)
		}
	}
}

// versions reports pinned versions of operands. In an upgrade, it drops those that are defaults of older releases.
func (in *installation) versions() {
	for _, c := range append(in.Table.Images(in.Version), "nfd") {
		s, made := in.given(chart.VersionKey(c)), in.Table.Tag(in.Version, c)
		if s == nil || c == "driver" || made == "" || chart.SameTag(s.Text(), made) {
			continue // each release supports several driver branches, so the driver's version is not compared
		}
		given := in.correction(s)
		if given.Changes() || !in.flags && in.repeatsDefault(s) || in.ownImage(c) {
			continue
		}
		severity, order := check.Warning, chart.CompareTags(s.Text(), made)
		relation := []string{"older than", "not", "newer than"}[order+1]
		reason := fmt.Sprintf("%s is %s %s, the version tested with chart %s", s.Text(), relation, made, in.Version)
		for _, v := range slices.Backward(in.Table.Versions()) {
			if chart.SameTag(s.Text(), in.Table.Tag(v, c)) {
				reason += ": it is the default of " + v.String()
				if order > 0 {
					severity = check.Note
				}
				given.Drop = in.upgraded && v.Before(in.Version)
				break
			}
		}
		m := in.add(operandVersion, reason, "delete it, unless you need this version", s)
		m.Severity = severity
		if in.assumed && severity == check.Warning { // probably written for a release that is not named
			m.Cause = "other operand versions"
			m.Together = "not the versions that were tested with chart " + in.Version.String()
		}
	}
}

// ownImage reports whether the user sets a repository that is neither NVIDIA's nor a mirror of it.
func (in *installation) ownImage(component string) bool {
	s := in.Explicit(component + ".repository")
	upstream, known := in.Table.Default(in.Version, component+".repository")
	_, path, hasPath := strings.Cut(chart.Text(upstream), "/")
	return s != nil && known && hasPath && !strings.HasSuffix("/"+s.Text(), "/"+path)
}

// oldDefaults reports images and a ConfigMap of the MIG manager that are defaults of older releases.
func (in *installation) oldDefaults() {
	for _, s := range in.Settings {
		k, known := in.Table.Key(s.Path)
		if !known || !k.In(in.Version) || in.correction(s).Drop || s.Text() == "" {
			continue
		}
		value, _ := k.Default(in.Version)
		current := chart.Text(value)
		since, found := k.Replaced(s.Text())
		found = found && current != s.Text() && !in.Version.Before(since)
		reason := "was the chart's default before " + since.String()
		switch group, last := s.Path[:len(s.Path)-1].String(), s.Path[len(s.Path)-1]; {
		case last == "repository":
			in.moved(k, s, current)
		case last == "image" && found:
			all := []*model.Setting{s}
			in.replaceOrDrop(s, current)
			if version := in.given(group + ".version"); version != nil { // this version belongs to the old image
				in.replaceOrDrop(version, in.Table.Tag(in.Version, group))
				all = append(all, version)
			}
			in.add(oldDefault, reason+"; in this release the image is "+current, "delete it", all...)
		case s.Name() == "migManager.config.name" && found:
			in.correction(s).Drop = in.upgraded
			reason += "; setting it disables the configs that the MIG manager generates for each node"
			in.add(oldDefault, reason, "delete it", s).Severity = check.Warning
		}
	}
}

func (in *installation) replaceOrDrop(s *model.Setting, current string) {
	if in.keep && current != "" {
		in.set(s, current)
	} else {
		in.correction(s).Drop = true
	}
}

// moved reports a repository path that NVIDIA no longer uses for the image. Mirrors have NVIDIA's paths.
func (in *installation) moved(k *chart.Key, s *model.Setting, current string) {
	_, now, _ := strings.Cut(current, "/")
	for _, d := range k.Defaults() {
		_, before, hasPath := strings.Cut(chart.Text(d.Value), "/")
		registry, is := strings.CutSuffix(s.Text(), "/"+before)
		if !is || !hasPath || now == "" || before == now || in.Version.Before(d.From) {
			continue
		}
		right := registry + "/" + now
		in.set(s, right)
		reason := "NVIDIA publishes the image as " + now + " for this release; it was " + before + " before"
		if m := in.add(oldDefault, reason, "write "+right, s); right != current {
			m.Severity = check.Warning
		}
		return
	}
}

// spacedQuantity matches a quantity with a space before its unit.
var spacedQuantity = regexp.MustCompile(`^([0-9.]+)\s+(m|[kKMGTPE]i?)$`)

// types checks values against the custom resource fields that they are copied to, or against the chart's keys.
func (in *installation) types() {
	for _, s := range in.Settings {
		v := in.Match(s)
		if s.Path[0] == "global" && len(s.Path) == 2 && strings.HasPrefix(s.Path[1], "image") {
			const fix = "set <operand>.repository and <operand>.imagePullSecrets of each operand"
			in.add(deadSetting, "the chart does not read it", fix, s)
		}
		if v.Status != chart.Known && v.Status != chart.Free {
			continue
		}
		inResources := slices.Contains(s.Path, "limits") || slices.Contains(s.Path, "requests")
		if q := spacedQuantity.FindStringSubmatch(s.Text()); q != nil && inResources {
			in.set(s, q[1]+q[2])
			in.add(schema.WrongValue, "not a valid quantity: the API server rejects the space", "write "+q[1]+q[2], s)
		}
		if s.Unknown || s.Value == nil || in.correction(s).Rename != nil {
			continue
		}
		f, printed := in.Table.ValueField(in.Version, v, s.Path, model.ListIndex.ReplaceAllString(s.Element, "[]"))
		isSwitch := printed && (s.Name() == "nfd.enabled" || v.Key.Use(in.Version) == chart.Tested)
		switch {
		case f == nil:
		case isSwitch && s.Value == "false":
			const reason = `found the text "false": Helm treats any non-empty text as true, so it stays enabled`
			in.add(fields.WrongType, reason, "write false without quotes", s)
		default:
			in.validate(s, f, printed)
		}
	}
}

// validate checks a setting against a field. printed means that a template prints the value as text.
func (in *installation) validate(s *model.Setting, f *chart.Field, printed bool) {
	node := s.Node
	if node == nil {
		node = &yaml.Node{}
		_ = node.Encode(s.Value) // cannot fail: the value was decoded before
		if printed && s.Typed {
			node.Style = 0 // --set writes plain scalars
		}
	}
	v := &schema.Validator{Table: in.Table, Version: in.Version, Kind: "ClusterPolicy", Printed: printed,
		Reader: &fields.Reader{}}
	v.Value(f, s.Name(), node)
	for _, found := range v.Reader.Findings {
		m := mistake{Finding: found, settings: []*model.Setting{s}}
		m.File = s.File
		if s.Node == nil {
			m.Line, m.Column = s.Line, s.Column
		} else {
			m.Line += s.Shift
		}
		if found.Check == schema.UnknownField {
			m.Check = fields.UnknownKey
		}
		if found.Check == fields.WrongType && f.Type == "string" && s.Text() != "" && s.Typed {
			m.Fix = cmp.Or(s.AsText, "write --set-string")
		}
		in.mistakes = append(in.mistakes, m)
	}
	if v.Near != "" && node.Kind == yaml.ScalarNode {
		in.set(s, v.Near)
	}
}

// resource checks a ClusterPolicy, NVIDIADriver or GPUCluster.
func (r *run) resource(d *doc) {
	v := &schema.Validator{Table: r.table, Version: r.version, Kind: string(d.kind), Reader: d.reader,
		Partial: d.partial || r.isPatch(d.file), Assumed: !r.named}
	found, want := fields.Text(d.root, "apiVersion"), resources[d.kind].api
	if found != want && !(d.partial && found == "") {
		reason := "found " + cmp.Or(found, "nothing") + "; the apiVersion of a " + v.Kind + " is " + want
		v.Add(apiVersion, cmp.Or(fields.Get(d.root, "apiVersion"), d.root), "apiVersion", reason, "write "+want)
	}
	if spec := fields.Get(d.root, "spec"); spec != nil {
		v.Value(schema.Spec, "spec", spec)
		selector := fields.Get(spec, "nodeSelector")
		isDefault := d.kind == kindNVIDIADriver && fields.Text(spec, "default") == "true"
		if isDefault && selector != nil && len(selector.Content) > 0 {
			const reason = "the API server rejects it: the default driver selects all nodes that no other selects"
			v.Add(excludes, selector, "spec.nodeSelector", reason, "delete nodeSelector, or default: true")
		}
		r.rulesOf(d, spec, v.Assumed)
	}
	r.report(d, check.Together(v.Reader.Findings))
}

// rulesOf runs the rules for values on a custom resource, whose fields have the same names as the chart's keys.
func (r *run) rulesOf(d *doc, spec *yaml.Node, assumed bool) {
	var prefix chart.Path
	if d.kind == kindNVIDIADriver {
		prefix = chart.Path{"driver"}
	}
	in := newInstallation(r.table, r.version, model.Flatten(&fields.Reader{}, d.file, d.line, prefix, spec))
	in.kind, in.assumed = d.kind, assumed
	for _, s := range in.Settings {
		if name := s.Name(); name == "driver.gds.enabled" || name == "driver.gdrcopy.enabled" {
			s.Path, s.Called = s.Path[1:], ""
		}
	}
	if !d.partial { // the rules need all values, and a patch has only some
		in.runRules()
	}
	for i := range in.mistakes {
		subject := &in.mistakes[i].Subject
		if prefix != nil {
			*subject = strings.ReplaceAll(*subject, "driver.", "")
		}
		*subject = "spec." + *subject
	}
	r.add(d.file, in.findings()...)
	r.configUses(in, "spec.")
}
