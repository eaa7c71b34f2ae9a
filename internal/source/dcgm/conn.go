package dcgm

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/hostengine"
)

// A conn is the connection of a session to its engine.
type conn struct {
	engine engine
	addr   hostengine.Address
	log    *slog.Logger

	library, version string        // of libdcgm and the engine
	mayNotProfile    bool          // see Options
	retryAfter       time.Duration // delay before something that the engine refused is tried again

	name string // prefix of the names of groups and field groups; random, since containers share process IDs
	made int    // number of these names
}

// readVersions finds the versions of the library and the engine.
func (c *conn) readVersions() error {
	library, version, err := c.engine.versions()
	c.library, c.version = versionOf(library), versionOf(version)
	if err == nil && releaseOf(c.library) != releaseOf(c.version) {
		c.log.Warn("libdcgm and the engine have different versions; some requests may fail",
			"libdcgm", c.library, "engine_version", c.version)
	}
	return err
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
	numbers := strings.Split(version, ".")
	return strings.Join(numbers[:min(2, len(numbers))], ".")
}

// withVersions adds both versions to a version mismatch error.
func (c *conn) withVersions(err error) error {
	if !errors.Is(err, gpu.ErrVersion) {
		return err
	}
	return fmt.Errorf("libdcgm %s and the engine %s at %v are incompatible; install the same DCGM version on both "+
		"sides: %w", c.library, cmp.Or(c.version, "of unknown version"), c.addr, err)
}

// logged logs an error that does not end the session, and returns one that does.
func (c *conn) logged(err error, message string, args ...any) error {
	if err != nil && severityOf(err) != reopen {
		c.log.Warn(message, append(args, "error", c.withVersions(err))...)
	}
	return reopenOnly(err)
}

// lostError returns the reason why a session ended, for an error whose severity is reopen.
func (c *conn) lostError(err error) error {
	if hasCode(err, codeNotConfigured) {
		return fmt.Errorf("dcgm: %w: the engine at %v was restarted: %w", gpu.ErrLost, c.addr, err)
	}
	return fmt.Errorf("dcgm: the engine at %v is gone: %w", c.addr, err)
}

// profilingError adds what is missing to the error of a refused watch of profiling fields: the capability SYS_ADMIN or
// DCGM's profiling module. The module does not load in a process without the capability.
func (c *conn) profilingError(err error) error {
	unloaded := hasCode(err, codeModuleNotLoaded)
	switch {
	case errors.Is(err, gpu.ErrPermission), unloaded && c.mayNotProfile && c.addr.IsEmbedded():
		return fmt.Errorf("%w: %w", gpu.ErrNeedsAdmin, err)
	case unloaded:
		return fmt.Errorf("%w (package datacenter-gpu-manager-4-proprietary): %w", gpu.ErrNeedsDCGM, err)
	}
	return err
}

// nextName returns a name that no other group of the engine has.
func (c *conn) nextName() string {
	c.made++
	return fmt.Sprintf("%s-%d", c.name, c.made)
}

// readOnce watches fields until they are sampled, and calls learn for each value.
func (c *conn) readOnce(members []entity, ids []gpu.FieldID, learn func(entity, gpu.FieldID, gpu.Value)) error {
	if len(members) == 0 {
		return nil
	}
	group, _, err := c.engine.createGroup(c.nextName(), members)
	if err != nil || group == 0 {
		return err // without a group, all members are lost and have no values
	}
	defer c.engine.destroyGroup(group)
	fields, err := c.engine.createFieldGroup(c.nextName(), ids)
	if err != nil {
		return err
	}
	defer c.engine.destroyFieldGroup(fields)
	if err := c.engine.watch(group, fields, time.Second, 0, 1); err != nil {
		return err
	}
	defer c.engine.unwatch(group, fields)
	if err := c.engine.update(); err != nil {
		return err
	}
	found, err := c.engine.latest(group, fields)
	if err != nil {
		return err
	}
	for i := range found.samples {
		raw := &found.samples[i]
		value, _ := decode(&gpu.Field{Text: raw.kind == kindText}, raw, found.textOf(raw))
		if !value.IsAbsent() {
			learn(entity{raw.group, raw.entity}, gpu.FieldID(raw.field), value)
		}
	}
	return nil
}
