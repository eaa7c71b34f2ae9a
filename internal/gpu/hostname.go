package gpu

// HostnameLabel is the name of the label that has the host.
type HostnameLabel string

// The names of the host label. The zero value is HostnameLower.
const (
	HostnameLower HostnameLabel = "hostname" // as the reference since 4.8.3
	HostnameUpper HostnameLabel = "Hostname" // as the reference before that
	HostnameBoth  HostnameLabel = "both"
)
