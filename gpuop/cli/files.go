package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

const (
	// maxInput limits the size of one file, in bytes. A Kubernetes object is at most 1.5 MiB.
	maxInput = 8 << 20
	// maxInputs limits the total size of the inputs in bytes. The files that inputs refer to have the same limit of
	// their own.
	maxInputs = 64 << 20
)

var errInputsTooLarge = errors.New("inputs too large")

// inputName returns the name of an input for findings.
func inputName(path string) string {
	if path == "-" {
		return "stdin"
	}
	return path
}

// read returns the content of a file, or of standard input for "-". It adds the secrets in the content to e.secrets.
func (e *env) read(path string) ([]byte, error) {
	data, err := e.load(path)
	e.secrets.LearnYAML(data)
	return data, err
}

// load is like read, but does not scan the content for secrets, which is slow. Use it for files that might turn out to
// be irrelevant.
func (e *env) load(path string) ([]byte, error) {
	if path == "-" {
		return readAll("standard input", e.In, &e.total)
	}
	e.inputs = append(e.inputs, path)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(path, f, &e.total)
}

// readAll reads an input and adds its size to total. It returns an error if the size exceeds maxInput or total exceeds
// maxInputs.
func readAll(name string, in io.Reader, total *int) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	*total += len(data)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	case len(data) > maxInput:
		return nil, fmt.Errorf("read %s: input too large: more than %d MiB", name, maxInput>>20)
	case *total > maxInputs:
		return nil, fmt.Errorf("read %s: %w: more than %d MiB in total", name, errInputsTooLarge, maxInputs>>20)
	}
	return data, nil
}

// fileReader returns a function that reads a file to which an input refers. The name may be relative to the working
// directory or to the input's folder, and the file must be below the folder, so that an untrusted input cannot make
// gpuop print other files of the machine. The folder is the input's entry in folders, or else its directory.
func (e *env) fileReader(folders map[string]string) func(file, name string) ([]byte, error) {
	return func(file, name string) ([]byte, error) {
		folder := cmp.Or(folders[file], filepath.Dir(file))
		root, err := os.OpenRoot(folder)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		base, _ := filepath.Abs(folder) // both are empty if the working directory was removed
		absolute, _ := filepath.Abs(name)
		below, _ := filepath.Rel(base, absolute)
		for _, at := range []string{below, name} {
			f, err := root.OpenFile(at, os.O_RDONLY|syscall.O_NONBLOCK, 0)
			if err != nil {
				continue
			}
			defer f.Close()
			if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
				return nil, fmt.Errorf("%s: not a file", name)
			}
			e.inputs = append(e.inputs, filepath.Join(folder, at))
			return readAll(name, f, &e.referenced)
		}
		return nil, fmt.Errorf("%s: does not exist, or is outside the checked folder", name)
	}
}
