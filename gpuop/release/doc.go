// Package release reads the facts about a release from NVIDIA's gpu-operator chart. These are the values of the chart
// and its subcharts, the paths that templates read, and the fields of the custom resources.
//
// The chart is a folder or an archive of helm pull. The package renders no templates. The generator of gpuop's tables
// and --chart both use it.
package release
