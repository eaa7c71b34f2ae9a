package lint

// Sources of the facts.
const (
	sourceValues     = "gpu-operator values.yaml, tags v1.7.0 to v26.7.0"
	sourceTemplates  = "gpu-operator deployments/gpu-operator/templates"
	sourceOperator   = "gpu-operator controllers/object_controls.go"
	sourceMatrix     = "GPU Operator component matrix"
	sourceDocs       = "GPU Operator documentation"
	sourceCRD        = "gpu-operator custom resource definitions, v26.7.0"
	sourceKubernetes = "Kubernetes documentation: schedule GPUs, device plugins"
)
