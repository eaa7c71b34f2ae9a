package drift

import "github.com/gpu-telemetry/dcgm-exporter/gpuop/check"

const releaseStates = "Helm: release states, pkg/release"

var (
	releaseState = check.New("drift-release", check.Error,
		"The last revision of the Helm release is not deployed: it is pending or failed, for example.",
		"Roll it back, or run helm again.", releaseStates)
	noRelease = check.New("drift-no-release", check.Warning, "There is no Helm release to compare with.",
		"Set its namespace with -n, or compare in Argo CD.", releaseStates)
	unreadableRelease = check.New("drift-release-unreadable", check.Warning, "The Helm release could not be read.",
		"Check the data of the Secret that the message names.", releaseStates)
	otherValue = check.New("drift-value", check.Error, "The release and the file have different values.",
		"Run helm upgrade with the file.", releaseStates)
	extraValue = check.New("drift-value-extra", check.Warning, "The release has a value that is not in the file.",
		"Add it to the file, or remove it from the release.", releaseStates)
	otherField = check.New("drift-field", check.Error, "A field of the ClusterPolicy was changed after Helm wrote it.",
		"Apply the patch in the message.", "Helm pkg/kube: three-way patches")
	missingObject = check.New("drift-object-missing", check.Error, "The ClusterPolicy of the release was deleted.",
		"Apply the ClusterPolicy that helm get manifest prints.", releaseStates)
	otherOwner = check.New("drift-owner", check.Note, "A HelmRelease or an Application manages the installation.",
		"Change the values there.", "Flux helm-controller and Argo CD: labels of owned objects")
)
