package doctor

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A Machine is what the checks look at. The zero Machine is this one.
type Machine struct {
	// Root is the folder that stands for /.
	Root string
	// Dial is net.Dialer.DialContext where it is nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Listen is net.Listen where it is nil.
	Listen func(network, address string) (net.Listener, error)
}

// dialLimit bounds how long a peer may take to answer.
const dialLimit = 3 * time.Second

func (m Machine) withDefaults() Machine {
	if m.Dial == nil {
		dialer := &net.Dialer{}
		m.Dial = dialer.DialContext
	}
	if m.Listen == nil {
		m.Listen = net.Listen
	}
	return m
}

// at returns where the path lies on this machine.
func (m Machine) at(path string) string { return filepath.Join(m.Root, path) }

func (m Machine) read(path string) (string, error) {
	data, err := os.ReadFile(m.at(path))
	return string(data), err
}

// glob returns the paths that match, without the root.
func (m Machine) glob(pattern string) []string {
	found, err := filepath.Glob(m.at(pattern))
	if err != nil { // only for a malformed pattern, and ours are constant
		return nil
	}
	for i, path := range found {
		found[i] = "/" + strings.TrimPrefix(strings.TrimPrefix(path, m.Root), "/")
	}
	return found
}

// reach connects to an address and closes the connection.
func (m Machine) reach(ctx context.Context, network, address string) error {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	conn, err := m.Dial(ctx, network, address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// libraryFolders are where the dynamic linker and the images of the field have libraries, beside
// those of LD_LIBRARY_PATH and ld.so.conf.
func libraryFolders() []string {
	return []string{
		"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/lib64", "/usr/lib", "/usr/local/lib",
		"/usr/local/nvidia/lib64",                     // NVIDIA's images and GKE
		"/usr/local/cuda/compat",                      // CUDA's images
		"/run/opengl-driver/lib",                      // NixOS
		"/run/nvidia/driver/usr/lib/x86_64-linux-gnu", // the GPU Operator's driver container
	}
}

// library returns the paths of the files that begin with the library's name, "libdcgm.so.4" before
// "libdcgm.so.4.6.0".
func (m Machine) library(name string, env func(string) (string, bool)) []string {
	var folders []string
	if list, ok := env("LD_LIBRARY_PATH"); ok {
		folders = filepath.SplitList(list)
	}
	for _, conf := range append([]string{"/etc/ld.so.conf"}, m.glob("/etc/ld.so.conf.d/*.conf")...) {
		text, err := m.read(conf)
		if err != nil {
			continue
		}
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "/") {
				folders = append(folders, line)
			}
		}
	}
	var found []string
	for _, folder := range append(folders, libraryFolders()...) {
		if strings.HasPrefix(folder, "/") {
			found = append(found, m.glob(folder+"/"+name+"*")...)
		}
	}
	return found
}
