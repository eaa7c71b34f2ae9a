{{/* Fills in values that are missing. "helm upgrade --reuse-values" renders this chart with the values of the old release,
which lacks the keys that are new here. Every template calls it first. Sections are filled key by key. Other keys at the
top stay missing, so that null removes a default, except those without which the DaemonSet is incomplete. */}}
{{- define "dcgm-exporter.defaults" -}}
{{- if not (and (.Files.Glob "files/rules/*.yml") (.Files.Glob "files/dashboards/*.json") (.Files.Get "files/default-counters.csv" | contains "DCGM_FI_")) -}}
{{- fail "this copy of the chart has not followed the symbolic links in files/, which lead to rules, dashboards and counters: run \"helm package deployment/chart\" in a Git checkout on Linux or macOS, and install the archive" -}}
{{- end -}}
{{- $defaults := .Files.Get "files/defaults.yaml" | fromYaml -}}
{{- range $path, $default := $defaults.sections -}}
{{- $section := $.Values -}}
{{- range $key := splitList "." $path -}}
{{- if not (kindIs "map" (get $section $key)) }}{{ $_ := set $section $key dict }}{{ end -}}
{{- $section = get $section $key -}}
{{- end -}}
{{- include "dcgm-exporter.fill" (dict "given" $section "defaults" $default) -}}
{{- end -}}
{{- include "dcgm-exporter.fill" (dict "given" .Values "defaults" $defaults.required) -}}
{{- end -}}

{{- define "dcgm-exporter.fill" -}}
{{- $given := .given -}}
{{- range $key, $default := .defaults -}}
{{- if or (not (hasKey $given $key)) (kindIs "invalid" (get $given $key)) }}{{ $_ := set $given $key $default }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Names */}}
{{- define "dcgm-exporter.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "dcgm-exporter.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "dcgm-exporter.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{- define "dcgm-exporter.serviceAccountName" -}}
{{- default (ternary (include "dcgm-exporter.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{/* A scalar as a string. The API requires strings in labels, annotations and variables, but YAML and --set parse true as a
boolean and 9400 as a number. */}}
{{- define "dcgm-exporter.word" -}}
{{- if kindIs "invalid" . -}}
{{- else if and (kindIs "float64" .) (eq . (floor .)) -}}
{{- if ge (mulf . .) 8.1e31 }}{{ fail (printf "the number %v has more digits than YAML keeps: expected it in quotes" .) }}{{ end -}}
{{- int64 . }}
{{- else -}}{{ . }}
{{- end -}}
{{- end -}}

{{- define "dcgm-exporter.words" -}}
{{- $words := dict -}}
{{- range $key, $value := . }}{{ $_ := set $words $key (include "dcgm-exporter.word" $value) }}{{ end -}}
{{- toYaml $words -}}
{{- end -}}

{{/* A list of objects, such as tolerations and variables, in which each field "value" is converted to a string. */}}
{{- define "dcgm-exporter.valued" -}}
{{- $list := list -}}
{{- range . -}}
{{- $element := . -}}
{{- if hasKey . "value" }}{{ $element = set (deepCopy .) "value" (include "dcgm-exporter.word" .value) }}{{ end -}}
{{- $list = append $list $element -}}
{{- end -}}
{{- toYaml $list -}}
{{- end -}}

{{/* A Prometheus duration, such as 1m30s, in milliseconds. */}}
{{- define "dcgm-exporter.milliseconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 "w" 604800000 "y" 31536000000 -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9]+(ms|[smhdwy])" (toString .) -1 -}}
{{- $sum = add $sum (mul (regexFind "^[0-9]+" . | int64) (get $units (regexFind "[a-z]+$" .))) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{/* "true" if the scrape timeout is longer than the scrape interval. The Prometheus Operator drops such a monitor, and only
its log says so. */}}
{{- define "dcgm-exporter.slow" -}}
{{- $interval := include "dcgm-exporter.milliseconds" .interval | int64 -}}
{{- if and $interval (gt (include "dcgm-exporter.milliseconds" .scrapeTimeout | int64) $interval) }}true{{ end -}}
{{- end -}}

{{- define "dcgm-exporter.scrapeTimeout" -}}
{{- ternary .interval .scrapeTimeout (eq (include "dcgm-exporter.slow" .) "true") -}}
{{- end -}}

{{/* The selector labels. They must never change, because the selector of a DaemonSet is immutable. */}}
{{- define "dcgm-exporter.selectorLabels" -}}
app.kubernetes.io/name: {{ include "dcgm-exporter.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: {{ include "dcgm-exporter.name" . }}
{{- end -}}

{{- define "dcgm-exporter.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "dcgm-exporter.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* The metadata of an object of the release's namespace. */}}
{{- define "dcgm-exporter.metadata" -}}
namespace: {{ include "dcgm-exporter.namespace" . }}
labels:
  {{- include "dcgm-exporter.labels" . | nindent 2 }}
{{- end -}}

{{/* "true" if the image is NVIDIA's, as in values files for NVIDIA's chart. */}}
{{- define "dcgm-exporter.nvidiasImage" -}}
{{- if regexMatch "(^|/)nvidia/k8s/dcgm-exporter$" .Values.image.repository }}true{{ end -}}
{{- end -}}

{{/* The variant of the image, from image.variant or from the end of the tag. NVIDIA's image has none. */}}
{{- define "dcgm-exporter.variant" -}}
{{- if include "dcgm-exporter.nvidiasImage" . }}
{{- else if .Values.image.variant }}{{ .Values.image.variant }}
{{- else if hasSuffix "-nvml" (include "dcgm-exporter.word" .Values.image.tag) }}nvml{{ end -}}
{{- end -}}

{{/* The image. NVIDIA's repository has no tags of this chart, so its default tag is the one of NVIDIA's chart 4.8.2. */}}
{{- define "dcgm-exporter.image" -}}
{{- $tag := include "dcgm-exporter.word" .Values.image.tag -}}
{{- if include "dcgm-exporter.nvidiasImage" . }}
{{- $tag = $tag | default "4.5.3-4.8.2-distroless" -}}
{{- else -}}
{{- $variant := include "dcgm-exporter.variant" . -}}
{{- $tag = list ($tag | default .Chart.AppVersion | trimSuffix (print "-" $variant)) $variant | compact | join "-" -}}
{{- end -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository $tag -}}
{{- end -}}
{{- end -}}

{{/* Paths in the container */}}
{{- define "dcgm-exporter.countersFolder" -}}/etc/dcgm-exporter/counters{{- end -}}
{{- define "dcgm-exporter.defaultCounters" -}}/etc/dcgm-exporter/default-counters.csv{{- end -}}

{{/* What extraVolumeMounts mounts at the path of the default counters: "file", or "folder" for one of its parent folders.
Otherwise empty. The chart mounts its own counters as a folder elsewhere, because the kubelet updates folders, but not
single files (subPath). */}}
{{- define "dcgm-exporter.mounted" -}}
{{- $mounted := "" -}}
{{- range .Values.extraVolumeMounts -}}
{{- $at := toString .mountPath | trimSuffix "/" -}}
{{- if hasPrefix (printf "%s/" $at) (include "dcgm-exporter.defaultCounters" $) }}{{ $mounted = "folder" }}{{ end -}}
{{- if eq $at (include "dcgm-exporter.defaultCounters" $) }}{{ $mounted = "file" }}{{ end -}}
{{- end -}}
{{- $mounted -}}
{{- end -}}

{{/* The counters file that .Values.counters names. Under strict compatibility, the health counters are left out, which
NVIDIA's file does not have. NVIDIA's image exits if the file names a family that it does not know, so it gets the default
file. */}}
{{- define "dcgm-exporter.countersFile" -}}
{{- $strict := regexMatch "(?i)compatibility[^}]*strict" (toJson (list .Values.extraEnv .Values.arguments)) -}}
{{- $default := or (include "dcgm-exporter.nvidiasImage" .) (and $strict (eq .Values.counters "health")) -}}
{{- printf "files/%s-counters.csv" (ternary "default" .Values.counters (not (empty $default))) -}}
{{- end -}}

{{- define "dcgm-exporter.ownCounters" -}}
{{- if not (include "dcgm-exporter.mounted" .) }}true{{ end -}}
{{- end -}}

{{/* A text in which the path of the default counters is replaced by the path of the chart's counters, if it has some. */}}
{{- define "dcgm-exporter.withCounters" -}}
{{- $path := include "dcgm-exporter.defaultCounters" .root -}}
{{- if include "dcgm-exporter.ownCounters" .root -}}
{{- replace $path (printf "%s/default-counters.csv" (include "dcgm-exporter.countersFolder" .root)) .text -}}
{{- else -}}
{{- .text -}}
{{- end -}}
{{- end -}}

{{/* "true" if the chart writes the web configuration, for TLS or passwords. */}}
{{- define "dcgm-exporter.ownWebConfig" -}}
{{- if and (not .Values.webConfig.existingSecret) (or .Values.tlsServerConfig.enabled .Values.basicAuth.users) }}true{{ end -}}
{{- end -}}

{{- define "dcgm-exporter.webConfigSecret" -}}
{{- .Values.webConfig.existingSecret | default (printf "%s-web-config" (include "dcgm-exporter.fullname" .)) -}}
{{- end -}}

{{- define "dcgm-exporter.tlsSecret" -}}
{{- if .Values.tlsServerConfig.existingSecret -}}
{{- tpl .Values.tlsServerConfig.existingSecret . -}}
{{- else -}}
{{- printf "%s-tls" (include "dcgm-exporter.fullname" .) -}}
{{- end -}}
{{- end -}}

{{- define "dcgm-exporter.tls" -}}
{{- if and .Values.tlsServerConfig.enabled (not .Values.webConfig.existingSecret) }}true{{ end -}}
{{- end -}}

{{/* The scheme, the TLS settings and the password of a scrape. The scrape verifies a certificate that the chart has created.
It verifies other certificates only if the monitor has a tlsConfig. */}}
{{- define "dcgm-exporter.scrape" -}}
{{- $root := .root -}}
{{- if include "dcgm-exporter.tls" $root }}
scheme: https
tlsConfig:
  {{- if .monitor.tlsConfig }}
  {{- toYaml .monitor.tlsConfig | nindent 2 }}
  {{- else if and $root.Values.tlsServerConfig.autoGenerated (not $root.Values.tlsServerConfig.existingSecret) }}
  ca:
    secret:
      name: {{ include "dcgm-exporter.tlsSecret" $root }}
      key: {{ $root.Values.tlsServerConfig.caFilename }}
  serverName: {{ include "dcgm-exporter.fullname" $root }}
  {{- else }}
  insecureSkipVerify: true
  {{- end }}
{{- else if .monitor.tlsConfig }}
scheme: https
tlsConfig:
  {{- toYaml .monitor.tlsConfig | nindent 2 }}
{{- end }}
{{- if and $root.Values.basicAuth.users (not $root.Values.webConfig.existingSecret) }}
basicAuth:
  username:
    name: {{ include "dcgm-exporter.fullname" $root }}-scrape
    key: username
  password:
    name: {{ include "dcgm-exporter.fullname" $root }}-scrape
    key: password
{{- end }}
{{- end -}}

{{/* The target relabelings of a monitor. Alerts and dashboards show the label node. With honorLabels, an idle GPU would get
the labels of the exporter's own pod, so the target drops them. A value that does either itself replaces the chart's rule. */}}
{{- define "dcgm-exporter.relabelings" -}}
{{- $node := list (dict "sourceLabels" (list "__meta_kubernetes_pod_node_name") "targetLabel" "node") -}}
{{- $pod := list -}}
{{- $drop := list -}}
{{- if .honorLabels -}}
{{- $pod = list (dict "sourceLabels" (list "pod") "targetLabel" "exporter_pod") -}}
{{- $drop = list (dict "action" "labeldrop" "regex" "pod|namespace|container") -}}
{{- end -}}
{{- range .relabelings -}}
{{- if eq (toString .targetLabel) "node" }}{{ $node = list }}{{ end -}}
{{- if has (toString .action | lower) (list "labeldrop" "labelkeep") }}{{ $pod = list }}{{ $drop = list }}{{ end -}}
{{- end -}}
{{- toYaml (concat $node $pod (default list .relabelings) $drop) -}}
{{- end -}}

{{/* A rule with the settings of .Values.alerts. The threshold of an alert is the number at the end of its expression. */}}
{{- define "dcgm-exporter.rule" -}}
{{- $rule := .rule -}}
{{- $alerts := .alerts -}}
{{- if $rule.alert -}}
{{- $threshold := get (default dict $alerts.thresholds) $rule.alert -}}
{{- if not (kindIs "string" $threshold) -}}
{{- $_ := set $rule "expr" (regexReplaceAll "[0-9.]+$" $rule.expr (toString $threshold)) -}}
{{- end -}}
{{- range $key, $value := $alerts.additionalRuleLabels -}}
{{- $_ := set $rule.labels $key (include "dcgm-exporter.word" $value) -}}
{{- end -}}
{{- with $alerts.runbookURL -}}
{{- $_ := set $rule.annotations "runbook_url" (printf "%s#%s" . (lower $rule.alert)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $rule -}}
{{- end -}}

{{/* "true" if the chart creates a ServiceMonitor. "auto" creates it if the cluster has the CRD, or if the chart is rendered
without a cluster. It does not create it if there is a PodMonitor, because every series would then exist twice. */}}
{{- define "dcgm-exporter.serviceMonitor" -}}
{{- $enabled := .Values.serviceMonitor.enabled -}}
{{- if eq (toString $enabled) "auto" -}}
{{- $known := .Capabilities.APIVersions.Has "apps/v1/DaemonSet" -}}
{{- $enabled = or (not $known) (.Capabilities.APIVersions.Has (printf "%s/ServiceMonitor" .Values.serviceMonitor.apiVersion)) -}}
{{- $enabled = and $enabled (not .Values.podMonitor.enabled) -}}
{{- end -}}
{{- if and $enabled (ne (toString $enabled) "false") }}true{{ end -}}
{{- end -}}

{{- define "dcgm-exporter.quota" -}}
{{- $create := .Values.priorityClassQuota.create -}}
{{- if eq (toString $create) "auto" -}}
{{- $create = contains "-gke." .Capabilities.KubeVersion.Version -}}
{{- end -}}
{{- if and $create (ne (toString $create) "false") .Values.priorityClassName (ne (include "dcgm-exporter.namespace" .) "kube-system") }}true{{ end -}}
{{- end -}}

{{/* The ConfigMap from which the exporter reads counters, as NAMESPACE:NAME in the arguments or the environment. */}}
{{- define "dcgm-exporter.configMapData" -}}
{{- $data := "" -}}
{{- $next := false -}}
{{- range .Values.extraEnv -}}
{{- if eq (toString .name) "DCGM_EXPORTER_CONFIGMAP_DATA" }}{{ $data = toString .value }}{{ end -}}
{{- end -}}
{{- range .Values.arguments -}}
{{- $argument := toString . -}}
{{- $flag := regexReplaceAll "^--?([^=]+).*$" $argument "${1}" -}}
{{- if $next -}}
{{- $data = $argument -}}{{- $next = false -}}
{{- else if and (hasPrefix "-" $argument) (has $flag (list "m" "configmap-data")) -}}
{{- if contains "=" $argument }}{{ $data = regexReplaceAll "^[^=]*=" $argument "" }}{{ else }}{{ $next = true }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if regexMatch "^[^:]+:[^:]+$" $data }}{{ $data }}{{ end -}}
{{- end -}}

{{/* The RBAC rules that the exporter needs in the cluster, depending on the values. */}}
{{- define "dcgm-exporter.needs" -}}
{{- $k := .Values.kubernetes -}}
{{- if or $k.enablePodLabels $k.enablePodUID }}
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
{{- end }}
{{- if $k.readNode }}
- apiGroups: [""]
  resources: [nodes]
  verbs: [get]
{{- end }}
{{- if .Values.kubernetesDRA.enabled }}
- apiGroups: [resource.k8s.io]
  resources: [resourceslices]
  verbs: [list, watch]
- apiGroups: [resource.k8s.io]
  resources: [resourceclaims]
  verbs: [get]
{{- end }}
{{- end -}}

{{/* The RBAC rules that the chart grants: all of them, or none with kubernetes.rbac.create=false. */}}
{{- define "dcgm-exporter.rules" -}}
{{- if .Values.kubernetes.rbac.create }}{{ include "dcgm-exporter.needs" . }}{{ end -}}
{{- end -}}

{{- define "dcgm-exporter.token" -}}
{{- $derived := or (not (empty (include "dcgm-exporter.needs" . | trim))) (not (empty (include "dcgm-exporter.configMapData" .))) -}}
{{- $set := .Values.serviceAccount.automountServiceAccountToken -}}
{{- if kindIs "invalid" $set }}{{ $derived }}{{ else }}{{ $set }}{{ end -}}
{{- end -}}

{{/* The action of a probe. If the exporter requires a client certificate or a password, the probe only opens a connection. */}}
{{- define "dcgm-exporter.probe" -}}
{{- $root := .root -}}
{{- if or $root.Values.basicAuth.users $root.Values.webConfig.existingSecret (and (include "dcgm-exporter.tls" $root) (hasPrefix "Require" $root.Values.tlsServerConfig.clientAuthType)) }}
tcpSocket:
  port: metrics
{{- else }}
httpGet:
  path: {{ .path }}
  port: metrics
  scheme: {{ ternary "HTTPS" "HTTP" (eq (include "dcgm-exporter.tls" $root) "true") }}
{{- end }}
{{- range $key, $value := omit .probe "path" }}
{{ $key }}: {{ $value }}
{{- end }}
{{- end -}}

{{/* "true" if the container's user is root. The kubelet's folder is 0750 root, and only root can use a capability. */}}
{{- define "dcgm-exporter.root" -}}
{{- $required := or .Values.kubernetes.podResources .Values.kernelLog.enabled (eq (toString .Values.profiling.enabled) "true") -}}
{{- $user := ternary 0 65534 $required -}}
{{- range list .Values.podSecurityContext .Values.securityContext -}}
{{- if hasKey (default dict .) "runAsUser" }}{{ $user = .runAsUser }}{{ end -}}
{{- end -}}
{{- if eq (toString $user) "0" }}true{{ end -}}
{{- end -}}

{{/* "true" if the exporter may collect profiling metrics. The chart knows its own counters file. A file that the values
name elsewhere may have any counter. */}}
{{- define "dcgm-exporter.collectsProfiling" -}}
{{- $names := `"--?(f|m|collectors|configmap-data|config-file)[="]|"DCGM_EXPORTER_(COLLECTORS|CONFIGMAP_DATA|CONFIG_FILE)"` -}}
{{- $elsewhere := regexMatch $names (toJson (list .Values.arguments .Values.extraEnv)) -}}
{{- $own := .Values.customMetrics | default (.Files.Get (include "dcgm-exporter.countersFile" .)) -}}
{{- if or $elsewhere .Values.config.enabled (include "dcgm-exporter.mounted" .) (regexMatch `(?m)^\s*DCGM_FI_PROF_` $own) }}true{{ end -}}
{{- end -}}

{{/* "true" if the container gets SYS_ADMIN, without which DCGM cannot read profiling metrics before Hopper. */}}
{{- define "dcgm-exporter.profiling" -}}
{{- $enabled := toString .Values.profiling.enabled -}}
{{- if eq $enabled "auto" -}}
{{- $dcgm := not (or (eq (include "dcgm-exporter.variant" .) "nvml") (has .Values.exporter.source (list "nvml" "sim"))) -}}
{{- $enabled = and $dcgm (include "dcgm-exporter.root" .) (include "dcgm-exporter.collectsProfiling" .) | empty | not | toString -}}
{{- end -}}
{{- if eq $enabled "true" }}true{{ end -}}
{{- end -}}

{{- define "dcgm-exporter.securityContext" -}}
{{- $context := deepCopy (default dict .Values.securityContext) -}}
{{- $root := include "dcgm-exporter.root" . -}}
{{- if not (or (hasKey $context "runAsUser") (hasKey (default dict .Values.podSecurityContext) "runAsUser")) -}}
{{- $_ := set $context "runAsUser" (ternary 65534 0 (empty $root)) -}}
{{- end -}}
{{- if and (not $root) (not (hasKey $context "runAsNonRoot")) }}{{ $_ := set $context "runAsNonRoot" true }}{{ end -}}
{{- $capabilities := default dict $context.capabilities -}}
{{- if include "dcgm-exporter.profiling" . -}}
{{- $_ := set $capabilities "add" (append (default list $capabilities.add) "SYS_ADMIN" | uniq) -}}
{{- end -}}
{{- if .Values.kernelLog.enabled -}}
{{- $_ := set $capabilities "add" (append (default list $capabilities.add) "SYSLOG" | uniq) -}}
{{- if not (hasKey $context "privileged") }}{{ $_ := set $context "privileged" true }}{{ end -}}
{{- end -}}
{{- with $capabilities }}{{ $_ := set $context "capabilities" . }}{{ end -}}
{{- /* The API server rejects allowPrivilegeEscalation: false for a privileged container, or with SYS_ADMIN. */}}
{{- $added := get (default dict $context.capabilities) "add" | default list -}}
{{- if or $context.privileged (has "CAP_SYS_ADMIN" $added) }}{{ $_ := unset $context "allowPrivilegeEscalation" }}{{ end -}}
{{- toYaml $context -}}
{{- end -}}

{{/* The environment. A variable of extraEnv replaces the chart's variable of the same name, because server-side apply rejects
a list with duplicate names. */}}
{{- define "dcgm-exporter.environment" -}}
{{- $v := .Values -}}
{{- $env := dict "DCGM_EXPORTER_LISTEN" $v.service.address "DCGM_EXPORTER_KUBERNETES" (toString $v.kubernetes.podResources) -}}
{{- if and (include "dcgm-exporter.ownCounters" .) (not $v.config.enabled) -}}
{{- $_ := set $env "DCGM_EXPORTER_COLLECTORS" (printf "%s/default-counters.csv" (include "dcgm-exporter.countersFolder" .)) -}}
{{- end -}}
{{- with $v.exporter.source }}{{ $_ := set $env "DCGM_EXPORTER_SOURCE" . }}{{ end -}}
{{- with $v.exporter.vocabulary }}{{ $_ := set $env "DCGM_EXPORTER_VOCABULARY" . }}{{ end -}}
{{- with $v.exporter.ownerLabels }}{{ $_ := set $env "DCGM_EXPORTER_OWNER_LABELS" . }}{{ end -}}
{{- with $v.exporter.healthIgnore }}{{ $_ := set $env "DCGM_EXPORTER_HEALTH_IGNORE" (join "," .) }}{{ end -}}
{{- with $v.exporter.collectInterval }}{{ $_ := set $env "DCGM_EXPORTER_INTERVAL" (include "dcgm-exporter.word" .) }}{{ end -}}
{{- with $v.service.webReadTimeout }}{{ $_ := set $env "DCGM_EXPORTER_WEB_READ_TIMEOUT" (toString .) }}{{ end -}}
{{- with $v.service.webWriteTimeout }}{{ $_ := set $env "DCGM_EXPORTER_WEB_WRITE_TIMEOUT" (toString .) }}{{ end -}}
{{- if $v.kubernetes.enablePodLabels }}{{ $_ := set $env "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS" "true" }}{{ end -}}
{{- if $v.kubernetes.enablePodUID }}{{ $_ := set $env "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID" "true" }}{{ end -}}
{{- with $v.kubernetes.podLabelAllowlistRegex }}{{ $_ := set $env "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX" (join "," .) }}{{ end -}}
{{- if $v.kubernetesDRA.enabled }}{{ $_ := set $env "KUBERNETES_ENABLE_DRA" "true" }}{{ end -}}
{{- if $v.kernelLog.enabled }}{{ $_ := set $env "DCGM_EXPORTER_XID_KERNEL_LOG" "/dev/kmsg" }}{{ end -}}
{{- if $v.config.enabled }}{{ $_ := set $env "DCGM_EXPORTER_CONFIG_FILE" $v.config.mountPath }}{{ end -}}
{{- if or $v.webConfig.existingSecret (include "dcgm-exporter.ownWebConfig" .) -}}
{{- $_ := set $env "DCGM_EXPORTER_WEB_CONFIG_FILE" "/etc/dcgm-exporter/web/web-config.yaml" -}}
{{- end -}}
{{- $_ := set $env "NVIDIA_VISIBLE_DEVICES" "all" -}}
{{- $_ := set $env "NVIDIA_DRIVER_CAPABILITIES" "compute,utility" -}}
{{- $_ := set $env "NVIDIA_MIG_MONITOR_DEVICES" "all" -}}
{{- $given := dict -}}
{{- range $v.extraEnv }}{{ $_ := set $given (toString .name) true }}{{ end -}}
{{- range $name, $value := $env }}
{{- if not (hasKey $given $name) }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}
{{- if not (hasKey $given "NODE_NAME") }}
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
{{- end }}
{{- with $v.extraEnv }}
{{ include "dcgm-exporter.valued" . }}
{{- end }}
{{- end -}}

{{- define "dcgm-exporter.configName" -}}
{{- if .Values.config.name -}}
{{- .Values.config.name -}}
{{- else if .Values.config.create -}}
{{- printf "%s-config" (include "dcgm-exporter.fullname" .) -}}
{{- else -}}
{{- fail "config.create is false, and config.name is empty: expected the name of a ConfigMap that exists" -}}
{{- end -}}
{{- end -}}
