locals {
  release = "v25.10.1"
  env = [{
    name  = "CONTAINERD_SOCKET"
    value = "/run/k3s/containerd/containerd.sock"
  }]
}

resource "helm_release" "gpu_operator" {
  name       = "gpu-operator"
  repository = "https://helm.ngc.nvidia.com/nvidia"
  chart      = "gpu-operator"
  version    = local.release

  values = [
    yamlencode({
      driver = {
        enabeld = false
        version = var.driver_version
      }
      toolkit = { env = local.env }
      nfd     = { enabled = "false" }
    }),
    <<-EOT
      dcgmExporter:
        serviceMonitr:
          enabled: true
      gfd:
        enabled: ${var.gfd}
    EOT
    ,
    file("${path.module}/not-here.yaml"),
  ]

  set {
    name  = "mig.strategy"
    value = "mixd"
  }
  set_list {
    name  = "driver.imagePullSecrets"
    value = ["a,b"]
  }
  dynamic "set" {
    for_each = var.more
    content {
      name  = set.key
      value = set.value
    }
  }
}

resource "helm_release" "with_attributes" {
  chart     = "oci://ghcr.io/nvidia/charts/gpu-operator"
  namespace = "gpu-operator"
  name      = "second"
  set = [
    { name = "toolkit.enbaled", value = true },
    { name = "toolkit.env[0].name", value = "A" },
    { name = "toolkit.env[0].value", value = "true", type = "string" },
    { name = "toolkit.env[1].value", value = "true" },
    { name = "driver.enabled", value = var.driver ? "true" : "false" },
  ]
}

resource "kubernetes_manifest" "policy" {
  manifest = {
    apiVersion = "nvidia.com/v1alpha1"
    kind       = "NVIDIADriver"
    metadata   = { name = "a" }
    spec       = { driverTyp = "gpu" }
  }
}

resource "kubectl_manifest" "pod" {
  yaml_body = <<-EOT
    apiVersion: v1
    kind: Pod
    metadata: {name: a}
    spec:
      containers:
        - name: a
          image: a
          resources: {limits: {nvidia.com/gpu: 0.5}}
  EOT
}

resource "helm_release" "prometheus" {
  name  = "prometheus"
  chart = "kube-prometheus-stack"
}
