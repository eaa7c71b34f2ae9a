package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
)

const (
	// maxInput bounds what a command reads of one file; a Kubernetes object is at most 1.5 MiB.
	maxInput = 8 << 20
	// maxInputs bounds what a command reads in all.
	maxInputs = 64 << 20
	// writerPatience is how long a named pipe may have no writer.
	writerPatience = 2 * time.Second
)

var (
	errTooLarge = errors.New("input too large")
	errNotFile  = errors.New("neither a file nor a pipe")
	errOutside  = errors.New("outside the folder that is judged")
)

// read returns the content of the file, or of standard input for "-".
func (e *env) read(path string) ([]byte, error) {
	if path == "-" {
		return e.content("standard input", e.In)
	}
	e.inputs = append(e.inputs, path)
	f, err := openInput(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return e.content(path, &pipe{file: f})
}

// content reads an input up to its bound.
func (e *env) content(name string, in io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	case len(data) > maxInput:
		return nil, fmt.Errorf("read %s: %w: more than %d MiB", name, errTooLarge, maxInput>>20)
	}
	if e.total += len(data); e.total > maxInputs {
		return nil, fmt.Errorf("read %s: %w: the inputs are more than %d MiB together", name, errTooLarge, maxInputs>>20)
	}
	return data, nil
}

// openInput opens a regular file or a pipe. A pipe is opened without waiting for its writer.
func openInput(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !readable(info) {
		return nil, fmt.Errorf("%s: %w", path, errNotFile)
	}
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

func readable(info fs.FileInfo) bool {
	return info.Mode().IsRegular() || info.Mode()&(fs.ModeNamedPipe|fs.ModeCharDevice) != 0
}

// A pipe is read until its writer ends; one that nothing writes to ends after writerPatience.
type pipe struct {
	file  *os.File
	begun time.Time
	wrote bool
}

func (p *pipe) Read(b []byte) (int, error) {
	for {
		n, err := p.file.Read(b)
		p.wrote = p.wrote || n > 0
		if n > 0 || !errors.Is(err, io.EOF) || p.wrote {
			return n, err
		}
		info, statErr := p.file.Stat()
		if statErr != nil || info.Mode()&fs.ModeNamedPipe == 0 {
			return n, err
		}
		if p.begun.IsZero() {
			p.begun = time.Now()
		}
		if time.Since(p.begun) > writerPatience {
			return 0, fmt.Errorf("nothing has written to the pipe in %s", writerPatience)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// beside returns how lint reads the files that an input names: those of the folder that was given, or of
// the input's own folder, and no others. A stranger's file cannot have those of the machine printed.
func (e *env) beside(script string, folders map[string]string) func(file, name string) ([]byte, error) {
	return func(file, name string) ([]byte, error) {
		if file == lint.CommandName {
			file = script
		}
		folder := folders[file]
		if folder == "" {
			folder = filepath.Dir(file)
		}
		if file == lint.CommandName || file == "stdin" {
			folder = "."
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
			info, err := f.Stat()
			if err != nil || !info.Mode().IsRegular() {
				return nil, fmt.Errorf("%s: %w", name, errNotFile)
			}
			e.inputs = append(e.inputs, filepath.Join(folder, at))
			return e.content(name, f)
		}
		return nil, fmt.Errorf("%s: %w, or not there", name, errOutside)
	}
}

// placesBelow are the places that a name may mean below a folder: from where the command runs, and from the
// folder itself.
func placesBelow(folder, name string) []string {
	var out []string
	if base, err := filepath.Abs(folder); err == nil {
		if at, err := filepath.Abs(name); err == nil {
			if local, err := filepath.Rel(base, at); err == nil && filepath.IsLocal(local) {
				out = append(out, local)
			}
		}
	}
	if !filepath.IsAbs(name) && filepath.IsLocal(name) {
		out = append(out, name)
	}
	return out
}

// patience is how long a command may go on after it was interrupted.
const patience = 1500 * time.Millisecond

// errInterrupted is returned for a command that does not end when it is interrupted.
var errInterrupted = errors.New("interrupted")

// ended runs a command. When ctx ends and the command does not, its answer is given up.
func (e *env) ended(ctx context.Context, command func(context.Context) error) error {
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
	case <-time.After(patience):
	}
	return errInterrupted
}
