package app_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
)

// The whole exporter in a process of one's own: a simulated node, scraped once.
func ExampleRun() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	listening := make(chan net.Addr, 1)
	done := make(chan error, 1)
	go func() {
		done <- app.Run(ctx, app.Process{
			Args: []string{"--source=sim", "--sim-node=single", "--address=127.0.0.1:0"},
			Env:  func(string) (string, bool) { return "", false },
			Out:  os.Stdout, Err: io.Discard, Start: time.Now(),
			Listening: func(a net.Addr) { listening <- a },
		})
	}()
	url := "http://" + (<-listening).String()
	for ready := false; !ready; {
		resp, err := http.Get(url + "/-/ready")
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		ready = resp.StatusCode == http.StatusOK
	}
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		fmt.Println(err)
		return
	}
	page, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	fmt.Println(err, strings.Count(string(page), "\nDCGM_FI_DEV_GPU_TEMP{"))
	stop()
	fmt.Println(<-done)
	// Output:
	// <nil> 1
	// <nil>
}
