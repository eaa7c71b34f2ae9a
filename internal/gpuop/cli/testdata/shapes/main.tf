resource "helm_release" "gpu_operator" {
  chart = "gpu-operator"
}
