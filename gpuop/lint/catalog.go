package lint

import "github.com/gpu-telemetry/dcgm-exporter/gpuop/check"

const (
	posix      = "POSIX shell command language"
	templates  = "gpu-operator deployments/gpu-operator/templates"
	operator   = "GPU Operator documentation"
	controls   = "gpu-operator controllers/object_controls.go"
	nodeLabels = "gpu-operator controllers/state_manager.go"
	configMgr  = "k8s-device-plugin cmd/config-manager"
)

// Checks for documents.
var (
	fileMissing = check.New("file-not-read", check.Note,
		"The input refers to a file that cannot be read here; it was not checked.",
		"Run gpuop lint where the file is.", check.Gpuop)
	unknownKind = check.New("unknown-kind", check.Note, "gpuop does not check this kind of document.",
		"See gpuop lint --help for the kinds that it checks.", check.CRDs)
	apiVersion = check.New("api-version", check.Error, "The apiVersion does not match the kind.",
		"Use the suggested apiVersion.", check.CRDs)
	badConfigMap = check.New("config-map", check.Error, "An operand's ConfigMap is missing, invalid or incomplete.",
		"Correct its name or data.", check.ChartValues+"; "+configMgr)
	configFallback = check.New("config-fallback", check.Note,
		"Nodes without the label nvidia.com/device-plugin.config get no sharing config.",
		"Set devicePlugin.config.default.", configMgr)
	configLabel = check.New("config-label", check.Error,
		"A node's label selects a config that no ConfigMap in the input contains.",
		"Use the name of a config in the ConfigMap.", configMgr)
)

// Checks for the chart's values.
var (
	misspeltKey = check.New("misspelt-key", check.Warning, "A misspelled name of an entry adds a second entry.",
		"Use the suggested name.", check.ChartValues)
	keyGone = check.New("key-gone", check.Error, "The key was removed: the release ignores it.",
		"Use its replacement, or delete it.", check.ChartValues)
	keyGoes = check.New("key-goes", check.Note, "The key works with this release, but a later release removed it.",
		"Plan to use its successor.", check.ChartValues)
	keyNotYet = check.New("key-not-yet", check.Error, "A later release added the key: this release ignores it.",
		"Install that release, or delete the key.", check.ChartValues)
	belowValue = check.New("below-a-value", check.Error, "The chart has a single value here, not a group of keys.",
		"Set the value itself.", templates)
	nullGroup = check.New("null-group", check.Error,
		"Helm deletes the defaults of an empty group, and templates can fail with a nil pointer.",
		"Delete the key, or write {}.", templates)
	setTwice = check.New("set-twice", check.Warning, "A key is set twice. The last one wins.", "Keep one of them.",
		check.HelmInstall)
	deadSetting = check.New("dead-setting", check.Warning,
		"The setting has no effect, for example because its component is disabled.",
		"Delete it, or enable the component.", controls)
	excludes   = check.New("excludes", check.Error, "Two settings conflict.", "Keep one.", templates+"; "+operator)
	oldDefault = check.New("old-default", check.Error, "The value is an older release's default and hides the new one.",
		"Delete it.", check.ChartValues)
	operandVersion = check.New("operand-version", check.Warning, "A component's version is not the chart's tested one.",
		"Delete the setting, unless you need this version.", check.ChartValues)
	precompiledVersion = check.New("precompiled-version", check.Error,
		"Precompiled drivers are selected by branch, but driver.version is a full version.",
		"Set driver.version to a branch, such as 580.", operator)
	imageParts = check.New("image", check.Error, "repository, image and version do not form a valid image name.",
		"Put the registry and path in repository, the name in image, and the tag in version.", controls)
	chartVersion = check.New("chart-version", check.Error, "The chart has no such release, or gpuop does not know it.",
		"Use an existing release, or add it with --chart.", check.ChartValues)
)

// Checks for shell commands.
var (
	escapedSpace = check.New("escaped-space", check.Error, `"\ " is an escaped space, not a line continuation.`,
		`Break the line right after each \.`, posix)
	braceExpansion = check.New("brace-expansion", check.Error,
		"Bash expands unquoted braces with a comma to several arguments.", "Quote the word.",
		"Bash manual: brace expansion")
	lookalike = check.New("lookalike", check.Error, "A typographic character replaces an ASCII character.",
		"Use the ASCII character.", posix)
	placeholder = check.New("placeholder", check.Error, "The shell reads the placeholder <name> as a redirection.",
		"Replace it with the real value, or quote it.", posix)
	namespace = check.New("namespace", check.Error, "The namespace is missing or looks misspelled.",
		"Use the suggested namespace.", operator)
	unknownChart = check.New("unknown-chart", check.Error, "No chart has this name.", "Use nvidia/gpu-operator.",
		check.HelmInstall)
	staleRepository = check.New("stale-repository", check.Warning, "The repository gets no new releases.",
		"Use https://helm.ngc.nvidia.com/nvidia.", operator)
	reuseValues = check.New("reuse-values", check.Warning, "--reuse-values misses the defaults of the new release.",
		"Use --reset-then-reuse-values, and set --version.", check.HelmInstall)
	unknownLabel = check.New("unknown-label", check.Error, "Nothing reads this label.", "Use the suggested label.",
		nodeLabels)
	overwrite = check.New("overwrite", check.Warning, "kubectl does not change an existing label without --overwrite.",
		"Add --overwrite.", nodeLabels)
)
