package cli

import "github.com/gpu-telemetry/dcgm-exporter/gpuop/check"

var (
	notRead = check.New("not-read", check.Error, "The file cannot be read.", "The message says why.", check.Gpuop)

	uncertainTag = check.New("image-tag", check.Note,
		"The image's tag depends on the nodes' operating system or kernel.",
		"Describe the nodes with --os and --kernel.",
		"GPU Operator component matrix")
	imageMissing = check.New("image-missing", check.Error,
		"A registry does not have an image that the installation pulls.",
		"Correct the repository or the version, or copy the image to the mirror.", "OCI distribution specification")
	imageUnchecked = check.New("image-unchecked", check.Warning,
		"The registry denied access or did not answer, so it is unknown whether the image exists.",
		"Log in with docker login, or check the network.", "OCI distribution specification")
	placementsAssumed = check.New("mig-placements-assumed", check.Note,
		"The placements of this board are derived from other boards.", "Compare with nvidia-smi mig -lgipp.",
		"MIG User Guide, supported MIG profiles and placements")
	waitEnded = check.New("wait", check.Error, "The wait ended before everything was ready.",
		"Run gpuop verify again later.",
		check.Gpuop)
	noServer = check.New("server", check.Error, "The API server did not answer while waiting.", "Check the connection.",
		check.Gpuop)
	migLabel = check.New("mig-label", check.Error,
		"Shows whether gpuop mig apply set the label nvidia.com/mig.config, and why not.",
		"Fix the reported errors, then add --apply.",
		check.Gpuop)
)
