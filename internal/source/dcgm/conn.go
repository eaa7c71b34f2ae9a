package dcgm

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

func (s *Session) readVersions() error {
	library, version, err := s.engine.versions()
	s.library, s.version = versionOf(library), versionOf(version)
	if err != nil {
		return err
	}
	if releaseOf(s.library) != releaseOf(s.version) {
		s.log.Warn("libdcgm and the engine have different versions; some requests may fail",
			"libdcgm", s.library, "engine_version", s.version)
	}
	return nil
}

// versionOf returns the version in DCGM's build information (key:value;key:value), or "".
func versionOf(buildInfo string) string {
	for pair := range strings.SplitSeq(buildInfo, ";") {
		if key, value, ok := strings.Cut(pair, ":"); ok && strings.TrimSpace(key) == "version" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// releaseOf returns the major and minor number of a version, for example "4.6" for "4.6.1".
func releaseOf(version string) string {
	if numbers := strings.Split(version, "."); len(numbers) > 2 {
		return strings.Join(numbers[:2], ".")
	}
	return version
}

// withVersions adds both versions to a version mismatch error.
func (s *Session) withVersions(err error) error {
	if !errors.Is(err, gpu.ErrVersion) {
		return err
	}
	version := s.version
	if version == "" {
		version = "of unknown version"
	}
	return fmt.Errorf("libdcgm %s and the engine %s at %v are incompatible; install the same DCGM version on both sides: %w",
		s.library, version, s.addr, err)
}

func (s *Session) lostError(err error) error {
	if hasCode(err, codeNotConfigured) {
		return fmt.Errorf("dcgm: %w: the engine at %v was restarted: %w", gpu.ErrLost, s.addr, err)
	}
	return fmt.Errorf("dcgm: the engine at %v is gone: %w", s.addr, err)
}

// profilingError adds what is missing to the error of a refused watch of profiling fields: the capability SYS_ADMIN or
// DCGM's profiling module. The module does not load in a process without the capability.
func (s *Session) profilingError(err error) error {
	denied := errors.Is(err, gpu.ErrPermission)
	unloaded := hasCode(err, codeModuleNotLoaded)
	switch {
	case denied, unloaded && s.mayNotProfile && s.addr.IsEmbedded():
		return fmt.Errorf("%w: %w", gpu.ErrNeedsAdmin, err)
	case unloaded:
		return fmt.Errorf("%w (package datacenter-gpu-manager-4-proprietary): %w", gpu.ErrNeedsDCGM, err)
	default:
		return err
	}
}

// nextName returns a name that no other group of the engine has.
func (s *Session) nextName() string {
	s.made++
	return fmt.Sprintf("%s-%d", s.name, s.made)
}

// readOnce watches fields until they are sampled, and calls learn for each value.
func (s *Session) readOnce(members []entity, ids []gpu.FieldID, learn func(entity, gpu.FieldID, gpu.Value)) error {
	if len(members) == 0 {
		return nil
	}
	group, _, err := s.engine.createGroup(s.nextName(), members)
	if err != nil || group == 0 {
		return err // only lost GPUs, which have no values
	}
	defer s.engine.destroyGroup(group)
	fields, err := s.engine.createFieldGroup(s.nextName(), ids)
	if err != nil {
		return err
	}
	defer s.engine.destroyFieldGroup(fields)
	if err := s.engine.watch(group, fields, time.Second, 0, 1); err != nil {
		return err
	}
	defer s.engine.unwatch(group, fields)
	if err := s.engine.update(); err != nil {
		return err
	}
	r, err := s.engine.latest(group, fields)
	if err != nil {
		return err
	}
	for i := range r.samples {
		x := &r.samples[i]
		v, _ := decode(&gpu.Field{Text: x.kind == kindText}, x, r.textOf(x))
		if !v.IsAbsent() {
			learn(entity{x.group, x.entity}, gpu.FieldID(x.field), v)
		}
	}
	return nil
}
