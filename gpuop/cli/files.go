package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
)

const (
	// maxInput limits the size of one file, in bytes. A Kubernetes object is at most 1.5 MiB.
	maxInput = 8 << 20
	// maxInputs limits the total size of the inputs in bytes. The files that inputs refer to have the same limit of
	// their own.
	maxInputs = 64 << 20
)

var (
	errTooLarge       = errors.New("input too large")
	errInputsTooLarge = errors.New("inputs too large")
)

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
		return e.content("standard input", e.In, &e.total)
	}
	e.inputs = append(e.inputs, path)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return e.content(path, f, &e.total)
}

// content reads an input and adds its size to total. It returns an error if the size exceeds maxInput or total exceeds
// maxInputs.
func (e *env) content(name string, in io.Reader, total *int) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	*total += len(data)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	case len(data) > maxInput:
		return nil, fmt.Errorf("read %s: %w: more than %d MiB", name, errTooLarge, maxInput>>20)
	case *total > maxInputs:
		return nil, fmt.Errorf("read %s: %w: more than %d MiB in total", name, errInputsTooLarge, maxInputs>>20)
	}
	return data, nil
}

// fileReader returns a function that reads a file to which an input refers. The file must be below the input's folder,
// so that an untrusted input cannot make gpuop print other files of the machine. The folder is the input's entry in
// folders, or else the directory of the input. For standard input and --command, it is the working directory. script
// names the input from which the command was read; empty if there is no command.
func (e *env) fileReader(script string, folders map[string]string) func(file, name string) ([]byte, error) {
	return func(file, name string) ([]byte, error) {
		if file == lint.CommandName {
			file = script
		}
		folder := folders[file]
		switch {
		case file == lint.CommandName || file == "stdin":
			folder = "."
		case folder == "":
			folder = filepath.Dir(file)
		}
		root, err := os.OpenRoot(folder)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		for _, at := range placesBelow(folder, name) {
			f, err := root.OpenFile(at, os.O_RDONLY|syscall.O_NONBLOCK, 0)
			if err != nil {
				continue
			}
			defer f.Close()
			if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
				return nil, fmt.Errorf("%s: not a file", name)
			}
			e.inputs = append(e.inputs, filepath.Join(folder, at))
			return e.content(name, f, &e.referenced)
		}
		return nil, fmt.Errorf("%s: does not exist, or is outside the checked folder", name)
	}
}

// placesBelow resolves a name relative to the working directory and relative to the folder. It returns the results that
// are inside the folder, as paths relative to the folder.
func placesBelow(folder, name string) []string {
	base, _ := filepath.Abs(folder) // both are empty if the working directory was removed
	at, _ := filepath.Abs(name)
	here, _ := filepath.Rel(base, at)
	return slices.DeleteFunc([]string{here, name}, func(p string) bool { return !filepath.IsLocal(p) })
}

// interruptGrace is the time that a command has to return after an interrupt.
const interruptGrace = 1500 * time.Millisecond

// runInterruptible runs a command until it returns. If ctx ends, it waits for the command only for interruptGrace.
func (e *env) runInterruptible(ctx context.Context, command func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- command(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(interruptGrace):
		return errors.New("interrupted")
	}
}
