package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// jobFiles checks the folder of job files. It returns a row for each file whose name matches no GPU.
func (e *examination) jobFiles(ctx context.Context) (rows []row) {
	dir, topology := e.cfg.HPC.Dir, e.topology
	if topology == nil { // the source is not open: check only the folder
		topology = gpu.NewTopology(nil)
	}
	unmatched, err := app.UnmatchedJobFiles(ctx, e.at(dir), topology)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []row{fails(dir+" does not exist",
			"Create it at boot, for example with tmpfiles.d. In a container, mount the host's folder.")}
	case errors.Is(err, fs.ErrPermission):
		return []row{fails(dir+": permission denied", "Let the exporter's user read the folder.")}
	case err != nil:
		return []row{fails(dir+": "+err.Error(),
			"Set --hpc-job-mapping-dir to the folder that the scheduler writes.")}
	case e.topology == nil || len(unmatched) == 0:
		return []row{passes(dir + " can be read")}
	}
	for _, name := range unmatched {
		rows = append(rows, warns(fmt.Sprintf("%s in %s matches no GPU", name, dir),
			"Name it by GPU index (0), GPU instance (0.1), GPU-UUID, GPU-UUID.INSTANCE or MIG-UUID."))
	}
	return limited(rows, "file", "Rename or remove the files above first.")
}

// containers checks the container runtime's socket. Like the exporter, it uses the first one that exists.
func (e *examination) containers(ctx context.Context) row {
	sockets := app.ContainerSockets(e.cfg)
	for _, socket := range sockets {
		if _, err := os.Stat(e.at(socket)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		err := e.reach(ctx, "unix", e.at(socket))
		switch {
		case err == nil:
			return passes(socket + " answers")
		case errors.Is(err, fs.ErrPermission):
			return fails(socket+": permission denied", "Run as a user or group that may use the socket.")
		}
		return fails(socket+": "+err.Error(), "Start the container runtime, or set --container-runtime-socket.")
	}
	return fails(strings.Join(sockets, ", ")+": no such socket",
		"Start the container runtime, or set --container-runtime-socket. In a container, mount the socket.")
}
