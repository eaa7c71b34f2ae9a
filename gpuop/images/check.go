package images

import (
	"context"
	"errors"
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

const (
	checkTimeout = 30 * time.Second // for one image
	checkers     = 8                // images checked at the same time
)

// Check asks the registries for the images, with the credentials of Docker's configuration. It sends HEAD requests,
// which download nothing and do not count against Docker Hub's pull limit.
func Check(ctx context.Context, list []Image) []Checked {
	out := make([]Checked, len(list))
	var group errgroup.Group
	group.SetLimit(checkers)
	for i, image := range list {
		out[i] = Checked{Image: image}
		group.Go(func() error {
			out[i].Answer, out[i].Why = ask(ctx, image)
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
		limited, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		_, err = remote.Head(reference, remote.WithContext(limited), remote.WithAuthFromKeychain(authn.DefaultKeychain),
			remote.WithRetryBackoff(remote.Backoff{Steps: 1}))
	}
	if err == nil {
		return Exists, ""
	}
	status := 0
	if refused := (*transport.Error)(nil); errors.As(err, &refused) {
		status = refused.StatusCode
	}
	switch status {
	case 404:
		return Missing, ""
	case 401, 403:
		host := reference.Context().RegistryStr()
		return Unknown, "access denied: the repository does not exist or needs a login (docker login " + host + ")"
	}
	why, _, _ = strings.Cut(err.Error(), "\n")
	return Unknown, why
}
