package dcgm

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

//go:embed library/*
var sources embed.FS

// File name of the library, and the module with the headers that it is built with.
const (
	soname = "libdcgm.so.4"
	module = "github.com/NVIDIA/go-dcgm"
)

// ErrNoCompiler is returned if the compiler is not installed.
var ErrNoCompiler = errors.New("gcc is not installed")

// Headers returns the folder of go-dcgm's C headers in the module cache.
func Headers() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", module, err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "pkg", "dcgm"), nil
}

// Build compiles the library without the named functions and returns its folder. A library that was built from the same
// source is reused.
func Build(without ...string) (string, error) { return BuildWith("gcc", without...) }

// BuildWith is like Build with another compiler, for example a cross compiler.
func BuildWith(compiler string, without ...string) (string, error) {
	gcc, err := exec.LookPath(compiler)
	if err != nil {
		return "", fmt.Errorf("%s: %w", compiler, ErrNoCompiler)
	}
	headers, err := Headers()
	if err != nil {
		return "", err
	}
	files, err := sourceFiles(headers, without)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(hash, "%s %d\n", name, len(files[name]))
		hash.Write(files[name])
	}
	fmt.Fprintln(hash, headers)
	if compiler != "gcc" {
		fmt.Fprintln(hash, compiler)
	}
	dir := filepath.Join(os.TempDir(),
		fmt.Sprintf("fakedcgm-%d-%s", os.Getuid(), hex.EncodeToString(hash.Sum(nil)[:8])))
	if _, err := os.Stat(filepath.Join(dir, soname)); err == nil {
		return dir, nil
	}
	work, err := os.MkdirTemp("", "fakedcgm-build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(work, name), content, 0o600); err != nil {
			return "", err
		}
	}
	cmd := exec.Command(gcc, "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-pthread",
		"-DDCGM_API_EXPORT", "-I", headers, "-Wl,--version-script=exports.map", "-Wl,-soname,"+soname,
		"-o", soname, "engine.c", "world.c")
	cmd.Dir = work
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("gcc: %w\n%s", err, out)
	}
	// Several test binaries may build at the same time. A rename makes sure that none of them loads a partial library.
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	temporary := filepath.Join(dir, filepath.Base(work))
	library, err := os.ReadFile(filepath.Join(work, soname))
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(temporary, library, 0o700); err != nil {
		return "", err
	}
	return dir, os.Rename(temporary, filepath.Join(dir, soname))
}

// sourceFiles returns all sources of the library, including generated ones, by name.
func sourceFiles(headers string, without []string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := fs.WalkDir(sources, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files[d.Name()], err = sources.ReadFile(path)
		return err
	})
	if err != nil {
		return nil, err
	}
	fields, err := os.ReadFile(filepath.Join(headers, "dcgm_fields.h"))
	if err != nil {
		return nil, err
	}
	files["known_fields.h"] = knownFields(fields)
	exports := "{ global: dcgm*; errorString; local: *; };\n"
	if len(without) > 0 {
		// An exact name takes precedence over a pattern.
		exports = "{ global: dcgm*; errorString; local: " + strings.Join(without, "; ") + "; *; };\n"
	}
	files["exports.map"] = []byte(exports)
	return files, nil
}

// knownFields returns a C table of the field IDs in the header.
func knownFields(header []byte) []byte {
	var ids []int
	for _, m := range regexp.MustCompile(`(?m)^#define DCGM_FI_\w+\s+(\d+)\s*$`).FindAllSubmatch(header, -1) {
		if id, err := strconv.Atoi(string(m[1])); err == nil && id > 0 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	var b bytes.Buffer
	b.WriteString("static const unsigned short known_fields[] = {")
	for _, id := range slices.Compact(ids) {
		fmt.Fprintf(&b, "%d,", id)
	}
	b.WriteString("};\n")
	return b.Bytes()
}
