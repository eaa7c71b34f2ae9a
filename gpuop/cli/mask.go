package cli

import (
	"bytes"
	"io"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// maskRendered masks the secrets in a rendered answer. With KeepSecrets, the document keeps them. In JSON, everything
// except the document is then still masked.
func (e *env) maskRendered(out *bytes.Buffer, a *answer) error {
	var masked []byte
	switch {
	case e.format != "text":
		var document bytes.Buffer
		if a.KeepSecrets {
			if err := a.Text(&document, check.Style{}); err != nil {
				return err
			}
		}
		masked = e.secrets.ReplaceJSON(out.Bytes(), document.String())
	case a.KeepSecrets:
		return nil
	default:
		masked = []byte(e.secrets.Replace(out.String()))
	}
	*out = *bytes.NewBuffer(masked)
	return nil
}

// maskedWriter masks the secrets in everything that is written to standard error.
type maskedWriter struct {
	to      io.Writer
	secrets *check.Secrets
}

func (m *maskedWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(m.to, m.secrets.Replace(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// maskedError is an error whose text contains no secret.
type maskedError struct {
	error
	text string
}

func (e maskedError) Error() string { return e.text }
func (e maskedError) Unwrap() error { return e.error }

// maskError wraps err in an error whose text has the secrets masked. It returns nil if err is nil.
func (e *env) maskError(err error) error {
	if err == nil {
		return nil
	}
	return maskedError{err, e.secrets.Mask(err.Error())}
}
