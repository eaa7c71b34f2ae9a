package images

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/sync/errgroup"
)

// Answer says whether a registry has an image.
type Answer string

// Answers of a registry.
const (
	Exists  Answer = "exists"
	Missing Answer = "missing"
	Unknown Answer = "unknown"
)

// Checked is an image with the answer of its registry.
type Checked struct {
	Image
	Answer Answer `json:"registry,omitempty"`
	// Why is the reason for Unknown.
	Why string `json:"reason,omitempty"`
}

// Check asks the registries for the images, with the credentials of Docker's configuration. It sends HEAD requests,
// which download nothing and do not count against Docker Hub's pull limit.
func Check(ctx context.Context, list []Image) []Checked {
	out := make([]Checked, len(list))
	var group errgroup.Group
	group.SetLimit(8)
	for i, image := range list {
		group.Go(func() error {
			answer, why := ask(ctx, image)
			out[i] = Checked{image, answer, why}
			return nil
		})
	}
	_ = group.Wait() // no error: each image has its own answer
	return out
}

// ask returns the answer of an image's registry and, if it is Unknown, the reason.
func ask(ctx context.Context, image Image) (answer Answer, why string) {
	if image.Note != "" {
		return Unknown, "the name is not certain: " + image.Note
	}
	reference, err := name.ParseReference(image.Name, name.StrictValidation)
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		_, err = remote.Head(reference, remote.WithContext(limited), remote.WithAuthFromKeychain(authn.DefaultKeychain),
			remote.WithRetryBackoff(remote.Backoff{Steps: 1}))
	}
	refused := &transport.Error{}
	switch errors.As(err, &refused); {
	case err == nil:
		return Exists, ""
	case refused.StatusCode == http.StatusNotFound:
		return Missing, ""
	case refused.StatusCode == http.StatusUnauthorized, refused.StatusCode == http.StatusForbidden:
		host := reference.Context().RegistryStr()
		return Unknown, "access denied: the repository does not exist or needs a login (docker login " + host + ")"
	}
	why, _, _ = strings.Cut(err.Error(), "\n")
	return Unknown, why
}
