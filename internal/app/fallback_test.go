package app

import (
	"context"
	"log/slog"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

func TestAddressesOfThisMachine(t *testing.T) {
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]bool{
		"localhost": true, "localhost:5555": true, "LOCALHOST:1": true, "127.0.0.1": true, "127.3.2.1:5555": true, "[::1]:5555": true,
		"tcp://localhost": true, "tcp://127.0.0.1:5555": true, "unix:///run/dcgm.sock": true, machine + ":5555": true,
		"10.255.254.253": false, "engine:5555": false, "localhost.example:5555": false, "tcp://engine": false, "vsock://2:5555": false,
		"[2001:db8::1]:5555": false, "vsock://1:5555": true, "[::1%lo]:5555": true, "[fe80::12:3456%lo]": false,
		"": true,
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok {
			cases[net.JoinHostPort(n.IP.String(), "5555")] = true
		}
	}
	for text, want := range cases {
		address, err := gpu.ParseEngineAddress(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := isThisMachine(address); got != want {
			t.Errorf("isThisMachine(%q) = %v", text, got)
		}
		if got := mayStandIn(config.Source{Kind: config.SourceAuto, Remote: address, Fallback: config.FallbackAuto}); got != want {
			t.Errorf("mayStandIn for %q = %v", text, got)
		}
		if mayStandIn(config.Source{Kind: config.SourceDCGM, Remote: address, Fallback: config.FallbackNVML}) {
			t.Errorf("%q: NVML stands in though --source=dcgm", text)
		}
	}
}

// An engine that is configured and away makes the exporter not ready after its grace time, whether
// its Open fails or does not return; it is ready again with the engine.
func TestAnEngineThatIsAwayIsNotReady(t *testing.T) {
	for name, takes := range map[string]time.Duration{"refuses": 0, "does not return": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				state := &engineState{}
				err := error(gpu.ErrUnavailable)
				source := patientSource{engineState: state, log: slog.New(slog.DiscardHandler),
					Source: collector.SourceOf(func(context.Context, *gpu.Plan) (still, error) {
						time.Sleep(takes)
						return still{}, err
					})}
				open := func() { _, _ = source.Open(t.Context(), nil) }
				if !state.reachable() {
					t.Error("not ready before the first attempt")
				}
				go open()
				time.Sleep(engineGrace - time.Second)
				if takes == 0 {
					open() // a further attempt does not begin the time again
				}
				if !state.reachable() {
					t.Error("not ready within the grace time")
				}
				time.Sleep(2 * time.Second)
				if state.reachable() {
					t.Error("ready past the grace time")
				}
				time.Sleep(2 * time.Hour)
				synctest.Wait() // for the attempt that did not return
				takes, err = 0, nil
				open()
				if !state.reachable() {
					t.Error("not ready with the engine")
				}
			})
		})
	}
}
