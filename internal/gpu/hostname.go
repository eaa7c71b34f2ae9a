package gpu

// HostnameLabel is the name of the label that holds the host name.
type HostnameLabel string

// The names of the host label.
const (
	HostnameLower HostnameLabel = "hostname" // NVIDIA's dcgm-exporter since 4.8.3
	HostnameUpper HostnameLabel = "Hostname" // NVIDIA's dcgm-exporter before 4.8.3
	HostnameBoth  HostnameLabel = "both"     // both labels
)
