package kube

import (
	"log/slog"

	"k8s.io/klog/v2"
)

// LogTo has client-go log to log: it writes to standard error otherwise. It is called once, before
// any Client is made.
func LogTo(log *slog.Logger) { klog.SetSlogLogger(log) }
