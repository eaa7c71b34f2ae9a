package app_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
)

func TestReleaseOnPauseNeedsTheNode(t *testing.T) {
	err := app.Run(t.Context(), app.Process{
		Args: []string{"--source=sim", "--address=127.0.0.1:0", "--kubernetes-release-on-pause"},
		Env:  func(string) (string, bool) { return "", false }, Out: io.Discard, Err: io.Discard, Start: time.Now(),
	})
	if err == nil || !strings.HasPrefix(err.Error(), "NODE_NAME is not set: --kubernetes-release-on-pause") {
		t.Errorf("Run: %v", err)
	}
}
