package app

import (
	"io"
	"log/slog"

	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
)

func newLogger(c config.Log, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.LevelInfo}
	if c.Debug {
		options.Level = slog.LevelDebug
	}
	if c.Format == config.LogJSON {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
